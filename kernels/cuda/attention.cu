// attention and its backward, plain, for what attention_tiles.h does not take: one warp per query (in backward also one
// per key), whose lanes take 32 keys (queries) at a time for the products of heads, then the elements of a head for the
// sums over them. Scores live in shared memory, 32 at a time. Every sum has one order, and no atomics add to any.
//
// With P = T² / 2 pairs for each sample and head:
// attention           4·d operations and an exponential per pair; reads a key and a value per pair, from the caches.
// attention_backward  14·d operations and 2 exponentials per pair: the kernels of queries and of keys both make the
//                     scores again, so that each sums what is its own. Reads two rows per pair and kernel.
// Beside that qkv, y and dy are read and y or dqkv written once; scratch memory is one number per query.

#include <shardgrad/kernels/cuda/attention.h>
#include <shardgrad/kernels/cuda/attention_heads.h>
#include <shardgrad/kernels/cuda/attention_tiles.h>

namespace shardgrad::SG_DEVICE {
namespace {

// Warp (sample · heads + head) · places + query.
template <class T, class C = Compute<T>>
__global__ void attention_kernel(Heads h, T* y, C* lse, const T* qkv, bool accumulate, bool accumulate_lse) {
  int64_t warp = warp_number(), query = warp % h.places, head = warp / h.places % h.heads;
  int64_t sample = warp / h.places / h.heads;
  if (sample >= h.samples) return;
  int64_t start = h.start(sample, head == 0 && query == 0 && threadIdx.x == 0), shared_head = h.heads + head / h.group;
  C *q = warp_memory<C>(h.depth, 2, 1), *sums = q + h.depth;
  bring_row(q, qkv + h.at(sample, query, head), h.depth, C(h.scale));
  auto dropped = [&](int64_t key, C weight) { return h.dropped(sample, head, query, key, weight); };
  auto [top, total] = attend(q, sums, qkv + h.at(sample, 0, shared_head),
                             qkv + h.at(sample, 0, shared_head + h.kv_heads), h.row, start, query, h.depth, dropped);
  bool empty = query < start;
  put_row(y + h.y_at(sample, query, head), sums, h.depth, empty ? C(0) : 1 / total, accumulate);
  if (threadIdx.x == 0 && lse)
    store(lse + h.lse_at(sample, query, head), empty ? C(0) : top + std::log(total), accumulate_lse);
}

void attention(const Launch& how, OutView y, OutView lse, View qkv, View starts, AttentionArgs args) {
  if (qkv.numel() == 0 || attention_by_tiles(how, y, lse, qkv, starts, args)) return;
  Heads h(qkv, starts, args);
  dispatch_floats(qkv.dtype, [&]<class T>() {
    using C = Compute<T>;
    launch<attention_kernel<T>>(how, warps_for<C>(h.samples * h.heads * h.places, h.depth, 2, 1), h, y.as<T>(),
                                lse.as<C>(), qkv.as<T>(), y.beta != 0, lse.beta != 0);
  });
}

// dq and, in `means`, Σ dy · y of a query. Warp (sample · heads + head) · places + query.
template <class T, class C = Compute<T>>
__global__ void attention_queries_kernel(Heads h, T* dqkv, C* means, const T* dy, const T* qkv, const T* y,
                                         const C* lse, bool accumulate) {
  int64_t warp = warp_number(), query = warp % h.places, head = warp / h.places % h.heads;
  int64_t sample = warp / h.places / h.heads;
  if (sample >= h.samples) return;
  int64_t start = h.start(sample, head == 0 && query == 0 && threadIdx.x == 0), shared_head = h.heads + head / h.group,
          at = h.y_at(sample, query, head);
  C *q = warp_memory<C>(h.depth, 3, 1), *g = q + h.depth, *sums = g + h.depth, *slopes = sums + h.depth;
  bring_row(q, qkv + h.at(sample, query, head), h.depth, C(h.scale));
  bring_row(g, dy + at, h.depth);
  clear_row(sums, h.depth);
  __syncwarp();
  C mean = 0, row_lse = load(lse + h.lse_at(sample, query, head));
  for (int64_t c = threadIdx.x; c < h.depth; c += warpSize) mean += g[c] * load(y + at + c);
  mean = warp_reduce<Sum>(mean);
  if (threadIdx.x == 0) means[h.lse_at(sample, query, head)] = mean;
  for (int64_t first = start; first <= query; first += warpSize) {
    int64_t key = first + threadIdx.x, count = query + 1 - first < warpSize ? query + 1 - first : warpSize;
    C slope = 0;
    if (key <= query) {
      C weight = std::exp(dot(q, qkv + h.at(sample, key, shared_head), h.depth) - row_lse);
      slope = dot(g, qkv + h.at(sample, key, shared_head + h.kv_heads), h.depth);
      slope = weight * (h.dropped(sample, head, query, key, slope) - mean);
    }
    slopes[threadIdx.x] = slope;
    __syncwarp();
    add_rows(sums, C(1), slopes, qkv + h.at(sample, first, shared_head), h.row, count, h.depth);
    __syncwarp();
  }
  put_row(dqkv + h.at(sample, query, head), sums, h.depth, C(h.scale), accumulate);
}

// dk and dv of a key: over the heads that share it and the queries that see it. Warp (sample · kv_heads + head) ·
// places + key.
template <class T, class C = Compute<T>>
__global__ void attention_keys_kernel(Heads h, T* dqkv, const C* means, const T* dy, const T* qkv, const C* lse,
                                      bool accumulate) {
  int64_t warp = warp_number(), key = warp % h.places, shared_head = warp / h.places % h.kv_heads;
  int64_t sample = warp / h.places / h.kv_heads;
  if (sample >= h.samples) return;
  int64_t k_at = h.at(sample, key, h.heads + shared_head), v_at = k_at + h.kv_heads * h.depth;
  C *k = warp_memory<C>(h.depth, 4, 2), *v = k + h.depth, *dk = v + h.depth, *dv = dk + h.depth;
  C *weights = dv + h.depth, *slopes = weights + warpSize;
  bring_row(k, qkv + k_at, h.depth);
  bring_row(v, qkv + v_at, h.depth);
  clear_row(dk, h.depth);
  clear_row(dv, h.depth);
  __syncwarp();
  int64_t begin = key < h.start(sample) ? h.places : key;  // a key that is not seen has no queries
  for (int64_t head = shared_head * h.group; head < (shared_head + 1) * h.group; ++head)
    for (int64_t first = begin; first < h.places; first += warpSize) {
      int64_t query = first + threadIdx.x, count = h.places - first < warpSize ? h.places - first : warpSize;
      C weight = 0, slope = 0;
      if (query < h.places) {
        int64_t row = h.lse_at(sample, query, head);
        weight = std::exp(C(h.scale) * dot(k, qkv + h.at(sample, query, head), h.depth) - load(lse + row));
        slope = dot(v, dy + h.y_at(sample, query, head), h.depth);
        slope = weight * (h.dropped(sample, head, query, key, slope) - means[row]);
        weight = h.dropped(sample, head, query, key, weight);
      }
      weights[threadIdx.x] = weight;
      slopes[threadIdx.x] = slope;
      __syncwarp();
      add_rows(dv, C(1), weights, dy + h.y_at(sample, first, head), h.heads * h.depth, count, h.depth);
      add_rows(dk, C(1), slopes, qkv + h.at(sample, first, head), h.row, count, h.depth);
      __syncwarp();
    }
  put_row(dqkv + k_at, dk, h.depth, C(h.scale), accumulate);
  put_row(dqkv + v_at, dv, h.depth, C(1), accumulate);
}

void attention_backward(const Launch& how, OutView dqkv, View dy, View qkv, View y, View lse, View starts,
                        AttentionArgs args) {
  if (qkv.numel() == 0 || attention_backward_by_tiles(how, dqkv, dy, qkv, y, lse, starts, args)) return;
  Heads h(qkv, starts, args);
  dispatch_floats(qkv.dtype, [&]<class T>() {
    using C = Compute<T>;
    int64_t queries = h.samples * h.heads * h.places, keys = h.samples * h.kv_heads * h.places;
    Scratch means(how, size_t(queries) * sizeof(C));
    launch<attention_queries_kernel<T>>(how, warps_for<C>(queries, h.depth, 3, 1), h, dqkv.as<T>(), means.as<C>(),
                                        dy.as<T>(), qkv.as<T>(), y.as<T>(), lse.as<C>(), dqkv.beta != 0);
    launch<attention_keys_kernel<T>>(how, warps_for<C>(keys, h.depth, 4, 2), h, dqkv.as<T>(), means.as<C>(), dy.as<T>(),
                                     qkv.as<T>(), lse.as<C>(), dqkv.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<attention>(kernels::attention, kFloats),
    add_kernel<attention_backward>(kernels::attention_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
