#pragma once

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/optim/grad_scaler.h>

namespace shardgrad::fsdp {

/// A GradScaler whose decisions are the same on every rank of `group`, also on ranks whose shards are finite or empty:
/// it looks at reduced gradients, and the ranks add up what they found. Of a model over an axis of a mesh `group` is
/// Sharded::holders(): along the axis alone, ranks with other parts would step without these.
inline optim::GradScaler sharded_grad_scaler(dist::ProcessGroup& group, optim::GradScalerOptions options = {}) {
  return optim::GradScaler(options, [&group, life = group.life()](double mine) {
    SG_CHECK(!life.expired(), "grad_scaler: the process group that it asks is gone");
    Tensor sum = from_vector<double>({mine}, {1}, {DType::f64, kCpu});
    group.all_reduce(sum, {{"", "grad_scaler"}}).host_wait();
    return sum.item();
  });
}

}  // namespace shardgrad::fsdp
