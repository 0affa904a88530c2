#pragma once
// How a batch falls into parts, for people.

#include <cstdint>
#include <string>

namespace shardgrad::train {

/// "batch 256 = 4 ranks · 64, in 2 micro-batches of 32; 235 steps an epoch, the last of 96". Where parts differ, and
/// some compute longer than others, both sizes and the nearest batches without a difference: "batch 256 = 3 ranks · 85
/// or 86; 235 steps an epoch (every part the same: 255, 258)". All above 0; `samples`: of an epoch.
std::string batch_arithmetic(int64_t batch, int64_t ranks, int64_t micro_batches, int64_t grains, int64_t samples);

}  // namespace shardgrad::train
