#pragma once
// One rank of a training job with samples without meaning (zeros): what plans run instead of the job. On device meta
// nothing is computed.

#include <memory>
#include <optional>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/finite_watch.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

/// Rank 0's part of `count` samples, the largest of all ranks' parts.
data::Batch batch_of(const std::vector<data::Field>& fields, int64_t count, int64_t grains, int ranks);
/// The samples of the largest batch of `samples`; 0: an unknown number.
int64_t largest_batch(const Config& config, int64_t samples);

class Rehearsal {
 public:
  /// Refers to all of these. Throws Error(input) for a sharding that cannot work. A collective.
  Rehearsal(const Config& config, const data::Outline& data, dist::ProcessGroup& world);
  /// Rank 0's part of the largest batch of `samples`.
  data::Batch part(int64_t samples) const;
  /// The training step of such a part. True where it was left out, as a gradient overflowed f16. A collective.
  bool step(const data::Batch& batch);
  /// From now on steps look whether loss and gradients are finite, as those of a run do.
  void watch();
  /// Reads what they have seen so far, as a run does where its ranks talk.
  void read_looks();
  Task& task() { return *task_; }
  fsdp::Sharded& sharded() { return *sharded_; }
  const Optimizers& optimizers() const { return optimizers_; }

 private:
  const Config& config_;
  const data::Outline& data_;
  dist::ProcessGroup& world_;
  std::unique_ptr<Task> task_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  Optimizers optimizers_;
  optim::GradScaler scaler_;
  std::optional<FiniteWatch> watch_;
};

}  // namespace shardgrad::train
