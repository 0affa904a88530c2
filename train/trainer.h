#pragma once
// The training job of a configuration: data, model, sharding, optimizer, the loop over steps, evaluation. Every rank
// runs it; rank 0 alone prints and writes. The model knows nothing of ranks: batches are cut by the loader, losses are
// divided by the global count, and sharding is a policy laid over the model.

#include <ostream>
#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

struct Result {
  double test_accuracy = 0;  ///< exact, over every test sample; 0 of a run that was stopped between evaluations
  int64_t steps = 0;
  double seconds = 0;
  bool stopped = false;  ///< saved and ended early because somebody asked for it (Control::stop_requested)
  std::string folder;    ///< of the run; empty on other ranks than 0
  int64_t step_bytes = 0, predicted_step_bytes = 0;  ///< that a step sent, and was to send; predicted on rank 0 only
};

/// Trains and evaluates. `out` gets rank 0's lines; `terminal` says whether they may be overwritten.
/// The run is saved when it ends or is stopped (checkpoint/checkpoint.h).
/// Throws Error(input) before the first step for data that cannot be read or does not fit the model, and when ranks
/// have different configurations or data, or do not all see the run's folder.
Result train(const Config& config, dist::ProcessGroup& world, std::ostream& out, bool terminal);

}  // namespace shardgrad::train
