#pragma once
// attention_backward by tiles (attention_tiles.h), by two kernels, so that each sum is made in one place and one order:
//
// queries: a block has 64 queries of a head and meets their keys;  dq and, for the other kernel, Σ dy · y of each
// query. keys:    a block has 64 keys of a head and meets the queries that see them, of all heads that share it;  dk
// and dv.
//
// Both make scores and slopes again: 14·d operations per pair on tensor cores, two exponentials and about 20 others.
// With weight w = exp(score - lse) and slope s = w · (dropped(dy · v) - Σ dy · y):
//     dq = scale · Σ s · k     dk = scale · Σ s · q     dv = Σ dropped(w) · dy

#include <shardgrad/kernels/cuda/attention_heads.h>
#include <shardgrad/kernels/cuda/attention_tiles.h>
#include <shardgrad/kernels/cuda/tiles.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr float kLog2e = 1.44269504f;
/// Blocks that are to fit on a multiprocessor, whose registers they share.
template <int D> constexpr int kBlocks = D > 64 ? 1 : 2;
/// Of a tile that is met, so many at a time: their scores and slopes are in registers.
template <int D> constexpr int kMet = D > 64 ? 16 : 32;

/// What both kernels read, and how.
template <class T> struct Passes {
  Heads h;
  const T *dy, *qkv;
  const float* lse;
  float* means;  // Σ dy · y of each query, where lse lies
  bool packed, pairs, accumulate;

  __device__ RowsOf<T> rows(int64_t sample, int64_t place, int64_t head, int64_t end) const {
    return {qkv + h.at(sample, place, head), h.row, end - place, int(h.depth), packed};
  }
  __device__ RowsOf<T> gradients(int64_t sample, int64_t place, int64_t head) const {
    return {dy + h.y_at(sample, place, head), h.heads * h.depth, h.places - place, int(h.depth), packed};
  }
};

// Sums of a warp's 16 rows of dqkv, times factor; NaN in rows that are spoilt.
template <class T, int N, class Spoilt>
__device__ void put_rows(T* to, int64_t step, int64_t count, const float (&sums)[N][4], float factor,
                         const Passes<T>& p, const Lane& lane, const Spoilt& spoilt) {
  SG_UNROLL
  for (int half = 0; half < 2; ++half) {
    int row = lane.warp * 16 + lane.group + half * 8;
    if (row >= count) continue;
    float times = spoilt(row) ? std::numeric_limits<float>::quiet_NaN() : factor;
    SG_UNROLL
    for (int n = 0; n < N; ++n)
      if (n * 8 + lane.two < p.h.depth)
        store_two(to + row * step + n * 8 + lane.two, sums[n][half * 2] * times, sums[n][half * 2 + 1] * times, p.pairs,
                  p.accumulate);
  }
}

/// A weight or slope after dropout, where there is any.
template <bool dropping> struct Dropout {
  const Heads& h;
  int64_t sample, head;
  __device__ float operator()(int place, int key, float value) const {
    return dropping ? h.dropped(sample, head, place, key, value) : value;
  }
};

template <class T>
Passes<T> passes_of(const Heads& h, const OutView& dqkv, const View& dy, const View& qkv, const View& lse,
                    float* means) {
  return {.h = h,
          .dy = dy.as<T>(),
          .qkv = qkv.as<T>(),
          .lse = lse.as<float>(),
          .means = means,
          .packed = lie_at(16, {qkv.data, dy.data}),
          .pairs = lie_at(4, {dqkv.data}),
          .accumulate = dqkv.beta != 0};
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
