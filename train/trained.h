#pragma once
// A task with the weights that a run has saved.

#include <memory>
#include <optional>
#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

struct Trained {
  /// Of the last checkpoint of the run's folder `from`, of the one that `from` names (used_checkpoint), of a file that
  /// ends in .safetensors, or of a Hugging Face folder; in evaluation mode. `dtype`: of the parameters, if not the
  /// model's own, to which they are converted as they are read. A collective. Throws Error(input) when nothing is saved
  /// there, files are damaged, or they are of another model.
  Trained(const Config& config, const std::string& from, dist::ProcessGroup& world, std::optional<DType> dtype = {});

  std::unique_ptr<Task> task;
  std::shared_ptr<fsdp::Sharded> sharded;
  int64_t step = 0;                 ///< unknown for weights alone: 0
  SafetensorsFile::Texts metadata;  ///< of a checkpoint's model file (train/notes.h)
};

}  // namespace shardgrad::train
