#pragma once
// A training run on disk, from which it goes on with the same bits, on any number of ranks to rounding:
//
//     runs/NAME/latest                       the name of the folder to go on from: "step-120"
//     runs/NAME/step-120/model.safetensors       parameters and buffers under their names
//                        optimizer.safetensors   "layer0.weight.exp_avg", …, "layer0.weight.step"
//                        run.json                step, samples seen, loss scale, configuration
//
// Every rank writes the parts of the files that it owns, a piece at a time (fsdp::kPieceBytes), so no rank needs memory
// for more than its shard. A crash at any moment leaves the last checkpoint whole, because each line waits for the one
// above:
//
//     rank 0   makes step-120.tmp with files of their full size
//     all      write their parts, and wait until the disk has them
//     rank 0   writes run.json, renames step-120.tmp to step-120
//              replaces `latest`
//              removes other checkpoints: step-N and step-N.tmp that hold these files and nothing else

#include <optional>
#include <string>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/module.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// How far a run has come. Order of samples, learning rate and random numbers are functions of the step.
struct Reached {
  int64_t step = 0, samples = 0;
  uint64_t data = 0;  ///< fingerprint of the training samples
  optim::GradScaler::State scaler{};
};

/// Whose tensors are saved.
struct TrainingState {
  nn::Module& model;
  fsdp::Sharded& sharded;
  optim::Optimizer& optimizer;
};

/// A collective, between steps. `run` is the run's folder, the same on all ranks, which must all see it. Throws
/// Error(input) when something cannot be written, `latest` is this step, or copies of the model are not the same any
/// more; the last checkpoint is then as it was. Buffers that differ by rank are saved as their mean.
void save_checkpoint(const std::string& run, const Config& config, const Reached& reached, TrainingState state);

/// The folder of the last checkpoint in `run`; nothing when there is none.
std::optional<std::string> latest_checkpoint(const std::string& run);

/// A collective. Fills the state from `folder` and returns how far the run had come. Throws Error(input), naming the
/// file or listing the keys, when the files are damaged or not of this model, or when settings differ that change the
/// run; those that say where and how it is computed may. When a file cannot be read halfway on one rank, every rank
/// throws, and the state is filled in part: load again, or end.
Reached load_checkpoint(const std::string& folder, const Config& config, TrainingState state);

}  // namespace shardgrad::train
