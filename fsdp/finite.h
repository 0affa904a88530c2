#pragma once
// Where a gradient is not finite, found out beside the step and not in its way.

#include <string>
#include <vector>

#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {

/// The largest |g| of this rank's part of a unit's gradient, in pieces (f64, flat, where the gradient is); not a number
/// where a g is none.
struct GradMaxima {
  std::string unit;
  Tensor values;
};
/// Queues the maxima of every unit that has a gradient, the last unit of the model first. Before
/// zero_grad; after the update, which has waited for the reductions, it waits for nothing. Sends nothing.
std::vector<GradMaxima> grad_maxima(Sharded& sharded);

}  // namespace shardgrad::fsdp
