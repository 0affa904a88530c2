#pragma once
// What a warp does of attention, for its kernels: heads by the lanes, and one query's meeting with keys and values, 32
// at a time.

#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kWarps = 4;  // of a block

/// This warp's number in the grid.
__device__ inline int64_t warp_number() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }

/// This warp's part of the block's shared memory: `rows` rows of a head, and `lists` of 32.
template <class C> __device__ C* warp_memory(int64_t depth, int rows, int lists) {
  return dynamic_shared<C>() + threadIdx.y * (rows * depth + lists * warpSize);
}
template <class C> Config warps_for(int64_t warps, int64_t depth, int rows, int lists) {
  return {blocks_for(warps, kWarps), dim3(32, kWarps), size_t(kWarps * (rows * depth + lists * 32)) * sizeof(C)};
}

/// to = factor · from, by the lanes.
template <class T, class C = Compute<T>>
__device__ void bring_row(C* to, const T* from, int64_t depth, C factor = C(1)) {
  for (int64_t c = threadIdx.x; c < depth; c += warpSize) to[c] = load(from + c) * factor;
}
template <class T, class C = Compute<T>>
__device__ void put_row(T* to, const C* from, int64_t depth, C factor, bool accumulate) {
  for (int64_t c = threadIdx.x; c < depth; c += warpSize) store(to + c, from[c] * factor, accumulate);
}
template <class C> __device__ void clear_row(C* to, int64_t depth) {
  for (int64_t c = threadIdx.x; c < depth; c += warpSize) to[c] = 0;
}

/// Σ a · b over a head.
template <class T, class C = Compute<T>> __device__ C dot(const C* a, const T* b, int64_t depth) {
  C sum = 0;
  for (int64_t c = 0; c < depth; ++c) sum += a[c] * load(b + c);
  return sum;
}

/// sums = fading · sums + Σ factors[n] · rows[n · step], by the lanes, for n < count.
template <class T, class C = Compute<T>>
__device__ void add_rows(C* sums, C fading, const C* factors, const T* rows, int64_t step, int count, int64_t depth) {
  for (int64_t c = threadIdx.x; c < depth; c += warpSize) {
    C sum = sums[c] * fading;
    const T* element = rows + c;
    for (int n = 0; n < count; ++n, element += step) sum += factors[n] * load(element);
    sums[c] = sum;
  }
}

/// The largest score and the sum of weights under it.
template <class C> struct SoftmaxOf { C top, total; };

/// sums = Σ dropped(key, weight) · value over keys `start` to `query`, with the weights exp(score - top). Keys and
/// values lie `step` elements apart from place 0 on; q, sums and 32 numbers after it are shared memory.
template <class T, class Dropped, class C = Compute<T>>
__device__ SoftmaxOf<C> attend(const C* q, C* sums, const T* keys, const T* values, int64_t step, int64_t start,
                               int64_t query, int64_t depth, const Dropped& dropped) {
  C* weights = sums + depth;
  clear_row(sums, depth);
  __syncwarp();
  C top = Max::nothing<C>(), total = 0;
  for (int64_t first = start; first <= query; first += warpSize) {
    int64_t key = first + threadIdx.x, count = query + 1 - first < warpSize ? query + 1 - first : warpSize;
    bool seen = key <= query;
    C score = seen ? dot(q, keys + key * step, depth) : Max::nothing<C>();
    C next = Max()(top, warp_reduce<Max>(score)), shift = next == Max::nothing<C>() ? C(0) : next;
    C weight = seen ? std::exp(score - shift) : C(0), fading = next == top ? C(1) : std::exp(top - next);
    total = total * fading + warp_reduce<Sum>(weight);
    top = next;
    weights[threadIdx.x] = dropped(key, weight);
    __syncwarp();
    add_rows(sums, fading, weights, values + first * step, step, count, depth);
    __syncwarp();
  }
  return {top, total};
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
