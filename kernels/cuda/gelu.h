#pragma once
// GELU in its tanh form: x · (1 + tanh u) / 2 = x · σ(2u), u = √(2/π) · (x + 0.044715 x³). Written with σ, it loses
// nothing where tanh u is near -1.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// σ(2u) and its slope by 2u, from e = exp(-2|u|), which never overflows.
template <class C> struct TwiceLogistic {
  C value, slope;
  __device__ explicit TwiceLogistic(C x) {
    C u = C(0.79788456080286536) * (x + C(0.044715) * x * x * x), e = std::exp(-2 * std::abs(u)), p = 1 / (1 + e);
    value = u < 0 ? e * p : p;
    slope = e * p * p;
  }
};

template <class C> __device__ C gelu_tanh(C x) { return x * TwiceLogistic<C>(x).value; }
// The logistic is flat long before |x| = 32. What its slope is multiplied by must not overflow there: infinity times 0
// is NaN, and belongs to an infinite x alone.
template <class C> __device__ C gelu_tanh_slope(C x) {
  TwiceLogistic<C> s(x);
  C near = x < -32 ? C(-32) : x > 32 ? C(32) : x;
  return s.value + x * (s.slope * 2 * C(0.79788456080286536) * (1 + 3 * C(0.044715) * near * near));
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
