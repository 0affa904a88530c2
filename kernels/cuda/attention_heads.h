#pragma once
// What every kernel of attention knows of its operands.

#include <shardgrad/kernels/cuda/random.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::AttentionArgs;

__device__ inline int64_t within(int64_t place, int64_t most) { return place < 0 ? 0 : place > most ? most : place; }

/// Where heads lie, and what becomes of their scores.
struct Heads {
  int64_t samples, places, heads, kv_heads, group, row, depth;
  const int64_t* starts;
  uint64_t seed, stream;
  int64_t first_sample;
  double scale, kept;
  float dropout;

  Heads(const View& qkv, const View& starts, const AttentionArgs& args)
      : samples(qkv.shape[0]),
        places(qkv.shape[1]),
        heads(args.heads),
        kv_heads(args.kv_heads),
        group(heads / kv_heads),
        row(qkv.shape[2]),
        depth(row / (heads + 2 * kv_heads)),
        starts(starts.as<int64_t>()),
        seed(args.seed),
        stream(args.stream),
        first_sample(args.first_sample),
        scale(args.scale),
        kept(1 / (1 - args.dropout)),
        // random numbers are multiples of 2^-24: the same test, exact in f32
        dropout(float(std::ceil(args.dropout * 0x1p24) * 0x1p-24)) {}

  /// The first place that is seen, within the sample; one thread checks that it is.
  __device__ int64_t start(int64_t sample, bool check = false) const {
    if (!starts) return 0;
    if (check) check_index("attention: the start of sample", sample, starts[sample], places + 1);
    return within(starts[sample], places);
  }
  /// Where in qkv a head lies, keys counted after queries, then values; in y; and in lse.
  __device__ int64_t at(int64_t sample, int64_t place, int64_t head) const {
    return (sample * places + place) * row + head * depth;
  }
  __device__ int64_t y_at(int64_t sample, int64_t place, int64_t head) const {
    return ((sample * places + place) * heads + head) * depth;
  }
  __device__ int64_t lse_at(int64_t sample, int64_t place, int64_t head) const {
    return (sample * heads + head) * places + place;
  }
  /// A weight, or the gradient of one, after dropout.
  template <class C> __device__ C dropped(int64_t sample, int64_t head, int64_t query, int64_t key, C value) const {
    if (dropout == 0) return value;
    int64_t element = (((first_sample + sample) * heads + head) * places + query) * places + key;
    uint32_t drawn = word(philox(seed, stream, uint64_t(element) / 4), size_t(element % 4));
    return unit_float(drawn) >= dropout ? value * C(kept) : C(0);
  }
};

/// The same for queries whose keys and values are in caches.
struct CachedHeads {
  int64_t samples, rows, heads, kv_heads, group, row, depth, places, first;
  double scale;

  CachedHeads(const View& qkv, const View& keys, const kernels::CachedAttentionArgs& args)
      : samples(qkv.shape[0]),
        rows(qkv.shape[1]),
        heads(args.heads),
        kv_heads(args.kv_heads),
        group(heads / kv_heads),
        row(qkv.shape[2]),
        depth(keys.shape[3]),
        places(keys.shape[2]),
        first(args.first),
        scale(args.scale) {}

  __device__ int64_t start(const int64_t* starts, int64_t sample, bool check) const {
    if (!starts) return 0;
    if (check) check_index("attention_cached: the start of sample", sample, starts[sample], first + rows + 1);
    return within(starts[sample], first + rows);
  }
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
