#pragma once
// Gradient norms of a sharded model: the tree of optim/clip.h with its subtrees spread over the ranks. Each rank joins
// the whole subtrees inside its shard; their values, a few per parameter that is cut and one per other, are gathered;
// every rank finishes the same tree. All of it happens where the gradients are. So strategy, wrapping and number of
// parts change nothing, and a plain model has the same norm.

#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {

/// The p-norm of all gradients of the step, p = 1, 2, 3, … or infinity. A collective: every rank calls it after
/// backward. Throws Error(input) for gradients that were not reduced.
double grad_norm(Sharded& sharded, double p = 2);
/// The square of grad_norm(sharded): f64, one, where the gradients are; optim::clip_scale makes of it what
/// Optimizer::step takes. Where one rank trains, or ranks talk by NCCL, the host waits for it only in steps in which
/// other parameters have a gradient than in the step before, and for gradients on several devices. A collective.
Tensor grad_power(Sharded& sharded);
/// Multiplies the gradients so that their norm is at most `max_norm`, and returns the norm they had. A collective.
/// Throws Error(input), on every rank, for a norm that is not finite.
double clip_grad_norm(Sharded& sharded, double max_norm, double p = 2);

/// Elements [begin, end) of a shard, neighbouring slices together, whose gradient counts: written in this step, of
/// parameters that are trained. What lies between them may hold anything.
struct GradRun {
  int64_t begin, end;
};
std::vector<GradRun> grad_runs(const FlatParam& flat);

}  // namespace shardgrad::fsdp
