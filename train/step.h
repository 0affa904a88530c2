#pragma once
// One training step. The trainer runs it and the plan predicts it: both call this.

#include <optional>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/containers.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/finite_watch.h>

namespace shardgrad::train {

/// What a step works on.
struct Training {
  const Config& config;
  nn::Child<nn::Sequential>& model;
  fsdp::Sharded& sharded;
  optim::Optimizer& optimizer;
  optim::GradScaler& scaler;
  FiniteWatch* watch = nullptr;  ///< looks at loss and gradients
};

struct StepResult {
  Tensor loss;                        ///< this rank's part
  std::optional<double> grad_norm{};  ///< before clipping; known when the step clips, or it was wanted
  int64_t bytes_sent = 0;             ///< by this rank, but for a norm that was only wanted
};

/// Forward, backward, clipping and update on this rank's samples of a batch that has `count` on all ranks together. A
/// collective.
StepResult train_step(const Training& training, const Tensor& samples, const Tensor& labels, int64_t count,
                      bool norm_wanted);

}  // namespace shardgrad::train
