#pragma once
// What a run has learned, for use.

#include <memory>
#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

/// A run's task with the weights of its last checkpoint, in evaluation mode.
struct Trained {
  /// A collective. Throws Error(input) when nothing is saved, or what is saved is damaged or of another model.
  Trained(const Config& config, const std::string& run, dist::ProcessGroup& world);
  std::unique_ptr<Task> task;
  std::shared_ptr<fsdp::Sharded> sharded;
  std::string folder;  ///< of the checkpoint
  int64_t step;
};

}  // namespace shardgrad::train
