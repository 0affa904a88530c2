#pragma once
// Batch normalisation over the global batch. Without it every rank normalises by its own samples, so a model with
// BatchNorm1d is another one on every number of ranks; with it the numbers are the same to rounding.

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

/// From now on every BatchNorm1d of `module` and below takes its statistics in training from the samples of all ranks
/// of `group`, as torch.nn.SyncBatchNorm does; their running statistics are then the same on all ranks. A training call
/// sends two sums over the ranks, and its backward one: about 4 numbers per channel. A call after the group is gone is
/// refused.
void convert_sync_batchnorm(nn::Module& module, dist::ProcessGroup& group);

}  // namespace shardgrad::fsdp
