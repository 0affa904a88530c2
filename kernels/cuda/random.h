#pragma once
// What the kernels that draw random numbers share.

#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// words[lane], but without an address, so that the words stay in registers.
__device__ inline uint32_t word(const std::array<uint32_t, 4>& words, size_t lane) {
  return lane < 2 ? (lane == 0 ? words[0] : words[1]) : (lane == 2 ? words[2] : words[3]);
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
