// attention_cached, plain, for what attention_tiles.h does not take: one warp per query, as attention's forward, whose
// bits a row has.
//
// 4·d operations and an exponential per key that a query sees; a key and a value are read for each, by the heads that
// share them from the caches after the first time. Beside that queries are read and y written once.

#include <shardgrad/kernels/cuda/attention.h>
#include <shardgrad/kernels/cuda/attention_heads.h>
#include <shardgrad/kernels/cuda/attention_tiles.h>

namespace shardgrad::SG_DEVICE {
namespace {

// Warp (sample · heads + head) · rows + t.
template <class T, class C = Compute<T>>
__global__ void attention_cached_kernel(CachedHeads h, T* y, const T* qkv, const T* keys, const T* values,
                                        const int64_t* starts, bool accumulate) {
  int64_t warp = warp_number(), t = warp % h.rows, head = warp / h.rows % h.heads, sample = warp / h.rows / h.heads;
  if (sample >= h.samples) return;
  int64_t start = h.start(starts, sample, head == 0 && t == 0 && threadIdx.x == 0);
  C *q = warp_memory<C>(h.depth, 2, 1), *sums = q + h.depth;
  bring_row(q, qkv + (sample * h.rows + t) * h.row + head * h.depth, h.depth, C(h.scale));
  int64_t cache = (sample * h.kv_heads + head / h.group) * h.places * h.depth;
  auto kept = [](int64_t, C weight) { return weight; };
  auto [top, total] = attend(q, sums, keys + cache, values + cache, h.depth, start, h.first + t, h.depth, kept);
  put_row(y + ((sample * h.rows + t) * h.heads + head) * h.depth, sums, h.depth, h.first + t < start ? C(0) : 1 / total,
          accumulate);
}

void attention_cached(const Launch& how, OutView y, View qkv, View keys, View values, View starts,
                      kernels::CachedAttentionArgs args) {
  if (y.numel() == 0 || attention_cached_by_tiles(how, y, qkv, keys, values, starts, args)) return;
  CachedHeads h(qkv, keys, args);
  dispatch_floats(qkv.dtype, [&]<class T>() {
    using C = Compute<T>;
    launch<attention_cached_kernel<T>>(how, warps_for<C>(h.samples * h.heads * h.rows, h.depth, 2, 1), h, y.as<T>(),
                                       qkv.as<T>(), keys.as<T>(), values.as<T>(), starts.as<int64_t>(), y.beta != 0);
  });
}

const Registered registered = add_kernel<attention_cached>(kernels::attention_cached, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
