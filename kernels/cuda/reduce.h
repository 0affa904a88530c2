#pragma once
// Sums and maxima over a warp and over a block, in an order that depends on nothing but the block's size.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

struct Sum {
  template <class A> __device__ A operator()(A a, A b) const { return a + b; }
  template <class A> __device__ static A nothing() { return A(0); }
};
struct Product {
  template <class A> __device__ A operator()(A a, A b) const { return a * b; }
  template <class A> __device__ static A nothing() { return A(1); }
};
struct Max {
  template <class A> __device__ A operator()(A a, A b) const { return a > b || !(a == a) ? a : b; }
  template <class A> __device__ static A nothing() { return -std::numeric_limits<A>::infinity(); }
};

/// All lanes of the warp get the result: after the step with `distance` d, groups of 2d lanes agree.
template <class Op, class A> __device__ A warp_reduce(A value) {
  for (int distance = 1; distance < warpSize; distance *= 2)
    value = Op()(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

/// All threads of the block get the result. The block is a multiple of 32 threads; every thread must call.
template <class Op, class A> __device__ A block_reduce(A value) {
  __shared__ A partial[32];
  int lane = int(threadIdx.x) % warpSize, warp = int(threadIdx.x) / warpSize, warps = int(blockDim.x) / warpSize;
  value = warp_reduce<Op>(value);
  if (warps == 1) return value;
  __syncthreads();  // the last call's results have been read
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_reduce<Op>(lane < warps ? partial[lane] : Op::template nothing<A>());
}

/// Threads for a block that goes over `count` elements: whole warps, at most kBlock.
inline unsigned threads_for(int64_t count) {
  return unsigned(std::min<int64_t>(kBlock, (std::max<int64_t>(count, 1) + 31) / 32 * 32));
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
