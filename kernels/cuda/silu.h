#pragma once
// SiLU, x · σ(x), and its slope, from e = exp(-|x|), which never overflows.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class C> __device__ C silu(C x) { return x / (1 + std::exp(-x)); }
template <class C> __device__ C silu_slope(C x) {
  C e = std::exp(-std::abs(x)), larger = 1 / (1 + e);
  return (x > 0 ? larger : e * larger) + x * (e * larger * larger);
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
