#pragma once
// One training step. The trainer runs it and the plan predicts it: both call this.

#include <optional>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/finite_watch.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

/// What a step works on.
struct Training {
  const Config& config;
  Task& task;
  fsdp::Sharded& sharded;
  std::vector<optim::Optimizer*> optimizers;
  optim::GradScaler& scaler;
  FiniteWatch* watch = nullptr;  ///< looks at loss and gradients
};

struct StepResult {
  Tensor loss;                        ///< this rank's part, without a graph
  Tensor losses;                      ///< (passes): of each of its grains; without grains the loss
  std::optional<double> grad_norm{};  ///< before clipping; known where it was wanted, or is there without waiting
  int64_t bytes_sent = 0;             ///< by this rank, but for a norm that was only wanted
  bool skipped = false;  ///< by all ranks: a gradient overflowed f16; nothing was updated, and buffers are as before
};

/// What a step has queued, and nobody has waited for.
struct QueuedStep {
  StepResult result;  ///< but for the norm
  Tensor power;       ///< of the gradients, scaled; undefined where nobody asked for it
  std::optional<FiniteWatch::Look> look;
};

/// Forward and backward of this rank's part of a batch, in as many parts as passes_of says, then clipping and update.
/// Buffers, such as running statistics, become the ranks' mean. A collective.
StepResult train_step(const Training& training, const data::Batch& batch, bool norm_wanted);

/// Its two halves: what a device does, and what the host makes of it.
QueuedStep queue_step(const Training& training, const data::Batch& batch, bool norm_wanted);
StepResult finish_step(const Training& training, QueuedStep queued, bool norm_wanted);

}  // namespace shardgrad::train
