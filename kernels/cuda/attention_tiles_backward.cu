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
/// Tiles of queries that are in shared memory, or on their way: with wide heads two would be more than an RTX has.
template <int D> constexpr int kBuffers = D > 64 ? 1 : 2;
/// Blocks that are to fit on a multiprocessor, whose registers they share.
template <int D, bool dropping> constexpr int kBlocks = D > 64 || dropping ? 2 : 3;
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

// Σ dy · y of the tile's queries: two threads have a row.
template <class T, int D>
__device__ void make_means(float* means, const Passes<T>& p, const T* y, int64_t sample, int64_t head, int64_t row0) {
  int64_t place = row0 + threadIdx.x / 2, at = p.h.y_at(sample, place, head);
  int half = int(threadIdx.x) % 2 * (D / 2);
  float sum = 0;
  for (int c = half; c < half + D / 2 && c < p.h.depth && place < p.h.places; c += kTilePack) {
    Pack<T, kTilePack> a = neighbours(p.dy + at + c, p.packed), b = neighbours(y + at + c, p.packed);
    SG_UNROLL
    for (int k = 0; k < kTilePack; ++k) sum += widen(a.at[k]) * widen(b.at[k]);
  }
  sum += __shfl_xor_sync(kWholeWarp, sum, 1);
  if (threadIdx.x % 2 == 1) return;
  means[threadIdx.x / 2] = sum;
  if (place < p.h.places) p.means[p.h.lse_at(sample, place, head)] = sum;
}

// Block (tile · samples + sample) · heads + head; later tiles see more keys, and are begun first.
template <class T, int D, bool dropping>
__launch_bounds__(kTileThreads, kBlocks<D, dropping>) __global__
    void attention_tiles_queries_kernel(Passes<T> p, T* dqkv, const T* y) {
  __shared__ float means[kTileSide];
  __shared__ int first_wild;  // as in attention_tiles.cu, of keys
  auto* tiles = dynamic_shared<RowsTile<D>>();
  RowsTile<D>*keys = tiles, *values = tiles + 2;  // of this turn and the next
  const Heads& h = p.h;
  Lane lane;
  int64_t heads = h.samples * h.heads;
  int tile = int(gridDim.x / heads - 1 - blockIdx.x / heads), row0 = tile * kTileSide, own = row0 + lane.warp * 16;
  int places = int(h.places), end = row0 + kTileSide < places ? row0 + kTileSide : places;
  int64_t head = blockIdx.x % h.heads, sample = blockIdx.x / h.heads % h.samples,
          shared_head = h.heads + head / h.group;
  int start = int(h.start(sample, head == 0 && tile == 0 && threadIdx.x == 0));

  auto bring = [&](int key, int turn) {
    bring_rows(keys[turn], p.rows(sample, key, shared_head, end));
    bring_rows(values[turn], p.rows(sample, key, shared_head + h.kv_heads, end));
    group_copies();
  };
  if (threadIdx.x == 0) first_wild = std::numeric_limits<int>::max();
  bring_rows(keys[1], p.rows(sample, row0, head, h.places));
  bring_rows(values[1], p.gradients(sample, row0, head));
  group_copies();
  bring(start, 0);
  make_means<T, D>(means, p, y, sample, head, row0);
  wait_for_copies<1>();
  __syncthreads();
  uint32_t queries[D / 16][4], gradients[D / 16][4];
  SG_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    first_factor(queries[k], keys[1], lane.warp * 16, k * 16, lane);
    first_factor(gradients[k], values[1], lane.warp * 16, k * 16, lane);
  }
  float mean[2], lse[2], sums[D / 8][4] = {}, factor = float(h.scale) * kLog2e;
  for (int half = 0; half < 2; ++half) {
    int place = own + lane.group + half * 8;
    mean[half] = means[lane.warp * 16 + lane.group + half * 8];
    lse[half] = place < places ? p.lse[h.lse_at(sample, place, head)] * kLog2e : 0;
  }
  for (int key0 = start, turn = 0; key0 < end; key0 += kTileSide, turn ^= 1) {
    bool edge = key0 + kTileSide - 1 > row0;  // some query does not see some key
    __syncthreads();                          // what the next ones replace has been read
    if (key0 + kTileSide < end)
      bring(key0 + kTileSide, turn ^ 1);
    else
      group_copies();
    wait_for_copies<1>();
    if (edge) keep_finite<T>(keys[turn], [&](int row) { atomicMin(&first_wild, key0 - start + row); });
    __syncthreads();
    for (int first = 0; first < kTileSide; first += kMet<D>) {
      if (key0 + first > own + 15) break;  // nothing for this warp
      float scores[kMet<D> / 8][4] = {}, slopes[kMet<D> / 8][4] = {};
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; j += 2) {
        SG_UNROLL
        for (int k = 0; k < D / 16; ++k) {
          add_product<T, false>(scores[j], scores[j + 1], queries[k], keys[turn], k * 16, first + j * 8, lane);
          add_product<T, false>(slopes[j], slopes[j + 1], gradients[k], values[turn], k * 16, first + j * 8, lane);
        }
      }
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; ++j) {
        SG_UNROLL
        for (int e = 0; e < 4; ++e) {
          int place = own + lane.group + e / 2 * 8, key = key0 + first + j * 8 + lane.two + e % 2;
          float slope = dropping ? h.dropped(sample, head, place, key, slopes[j][e]) : slopes[j][e];
          slope = std::exp2(scores[j][e] * factor - lse[e / 2]) * (slope - mean[e / 2]);
          slopes[j][e] = edge && key > place ? 0 : slope;
        }
      }
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; j += 2) {
        uint32_t a[4];
        first_factor<T>(a, slopes[j], slopes[j + 1]);
        SG_UNROLL
        for (int n = 0; n < D / 8; n += 2)
          add_product<T, true>(sums[n], sums[n + 1], a, keys[turn], first + j * 8, n * 8, lane);
      }
    }
  }
  wait_for_copies<0>();
  auto spoilt = [&](int row) { return row0 + row - start >= first_wild; };
  put_rows(dqkv + h.at(sample, row0, head), h.row, h.places - row0, sums, float(h.scale), p, lane, spoilt);
}

// Block (tile · samples + sample) · kv_heads + head.
template <class T, int D, bool dropping>
__launch_bounds__(kTileThreads, kBlocks<D, dropping>) __global__
    void attention_tiles_keys_kernel(Passes<T> p, T* dqkv) {
  constexpr int buffers = kBuffers<D>;
  __shared__ float lse[buffers][kTileSide], means[buffers][kTileSide];
  __shared__ int last_wild;  // the last query of an edge that, or whose gradient, is not finite
  auto* tiles = dynamic_shared<RowsTile<D>>();
  RowsTile<D>&keys = tiles[0], &values = tiles[1], *queries = tiles + 2, *gradients = queries + buffers;
  const Heads& h = p.h;
  Lane lane;
  int row0 = int(blockIdx.x / (h.samples * h.kv_heads)) * kTileSide, own = row0 + lane.warp * 16,
      places = int(h.places);
  int64_t shared_head = blockIdx.x % h.kv_heads, sample = blockIdx.x / h.kv_heads % h.samples;
  int start = int(h.start(sample));
  int64_t key_head = h.heads + shared_head, value_head = key_head + h.kv_heads;
  // Of each head that shares the keys the tiles of queries that see them; keys before the start are seen by nobody.
  int across = (places - row0 + kTileSide - 1) / kTileSide,
      turns = row0 + kTileSide <= start ? 0 : int(h.group) * across;
  auto query_of = [&](int turn) { return row0 + turn % across * kTileSide; };
  auto bring = [&](int turn) {
    int64_t head = shared_head * h.group + turn / across;
    int query = query_of(turn), place = query + int(threadIdx.x);
    bring_rows(queries[turn % buffers], p.rows(sample, query, head, h.places));
    bring_rows(gradients[turn % buffers], p.gradients(sample, query, head));
    group_copies();
    if (threadIdx.x >= kTileSide) return;
    int64_t at = h.lse_at(sample, place, head);
    bool there = place < places;
    lse[turn % buffers][threadIdx.x] =
        there ? p.lse[at] * kLog2e : std::numeric_limits<float>::infinity();  // beyond: weight 0
    means[turn % buffers][threadIdx.x] = there ? p.means[at] : 0;
  };
  if (threadIdx.x == 0) last_wild = -1;
  bring_rows(keys, p.rows(sample, row0, key_head, h.places));
  bring_rows(values, p.rows(sample, row0, value_head, h.places));
  if (buffers > 1 && turns > 0) bring(0);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {}, factor = float(h.scale) * kLog2e;
  for (int turn = 0; turn < turns; ++turn) {
    int64_t head = shared_head * h.group + turn / across;
    int query0 = query_of(turn), now = turn % buffers;
    bool edge = query0 == row0 || row0 < start;  // some query does not see some key
    __syncthreads();                             // what the next ones replace has been read
    if (buffers == 1)
      bring(turn);
    else if (turn + 1 < turns)
      bring(turn + 1);
    else
      group_copies();
    wait_for_copies<buffers - 1>();
    if (edge) {
      auto wild = [&](int row) { atomicMax(&last_wild, query0 + row); };
      keep_finite<T>(queries[now], wild);
      keep_finite<T>(gradients[now], wild);
    }
    __syncthreads();
    for (int first = 0; first < kTileSide; first += kMet<D>) {
      if (query0 + first + kMet<D> <= own) continue;  // nothing for this warp
      float weights[kMet<D> / 8][4] = {}, slopes[kMet<D> / 8][4] = {};
      SG_UNROLL
      for (int k = 0; k < D / 16; ++k) {
        uint32_t a[4], b[4];
        first_factor(a, keys, lane.warp * 16, k * 16, lane);
        first_factor(b, values, lane.warp * 16, k * 16, lane);
        SG_UNROLL
        for (int j = 0; j < kMet<D> / 8; j += 2) {
          add_product<T, false>(weights[j], weights[j + 1], a, queries[now], k * 16, first + j * 8, lane);
          add_product<T, false>(slopes[j], slopes[j + 1], b, gradients[now], k * 16, first + j * 8, lane);
        }
      }
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; ++j) {
        SG_UNROLL
        for (int e = 0; e < 4; ++e) {
          int row = first + j * 8 + lane.two + e % 2;
          int place = query0 + row, key = own + lane.group + e / 2 * 8;
          bool seen = !edge || (key <= place && key >= start);
          float weight = seen ? std::exp2(weights[j][e] * factor - lse[now][row]) : 0, slope = slopes[j][e];
          if (dropping) slope = h.dropped(sample, head, place, key, slope);
          slopes[j][e] = seen ? weight * (slope - means[now][row]) : 0;
          weights[j][e] = dropping ? h.dropped(sample, head, place, key, weight) : weight;
        }
      }
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; j += 2) {
        uint32_t a[4], b[4];
        first_factor<T>(a, weights[j], weights[j + 1]);
        first_factor<T>(b, slopes[j], slopes[j + 1]);
        SG_UNROLL
        for (int n = 0; n < D / 8; n += 2) {
          add_product<T, true>(dv[n], dv[n + 1], a, gradients[now], first + j * 8, n * 8, lane);
          add_product<T, true>(dk[n], dk[n + 1], b, queries[now], first + j * 8, n * 8, lane);
        }
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();  // where there was no turn, last_wild has not been seen yet
  auto spoilt = [&](int row) { return row0 + row <= last_wild && row0 + row >= start; };
  put_rows(dqkv + h.at(sample, row0, key_head), h.row, h.places - row0, dk, float(h.scale), p, lane, spoilt);
  put_rows(dqkv + h.at(sample, row0, value_head), h.row, h.places - row0, dv, 1.f, p, lane, spoilt);
}

}  // namespace

bool attention_backward_by_tiles(const Launch& how, OutView dqkv, View dy, View qkv, View y, View lse, View starts,
                                 kernels::AttentionArgs args) {
  Heads h(qkv, starts, args);
  return dispatch_tiles(qkv.dtype, h.depth, args.scale, [&]<class T, int D>() {
    int64_t tiles = (h.places + kTileSide - 1) / kTileSide;
    Scratch means(how, size_t(h.samples * h.heads * h.places) * sizeof(float));
    Passes<T> passes{.h = h,
                     .dy = dy.as<T>(),
                     .qkv = qkv.as<T>(),
                     .lse = lse.as<float>(),
                     .means = means.as<float>(),
                     .packed = lie_at(16, {qkv.data, dy.data, y.data}),
                     .pairs = lie_at(4, {dqkv.data}),
                     .accumulate = dqkv.beta != 0};
    auto config = [](int64_t blocks, int of_rows) {
      return Config{blocks_for(blocks, 1), dim3(kTileThreads), of_rows * sizeof(RowsTile<D>)};
    };
    auto with = [&]<bool dropping>() {
      launch<attention_tiles_queries_kernel<T, D, dropping>>(how, config(tiles * h.samples * h.heads, 4), passes,
                                                             dqkv.as<T>(), y.as<T>());
      launch<attention_tiles_keys_kernel<T, D, dropping>>(
          how, config(tiles * h.samples * h.kv_heads, 2 + 2 * kBuffers<D>), passes, dqkv.as<T>());
    };
    h.dropout > 0 ? with.template operator()<true>() : with.template operator()<false>();
  });
}

}  // namespace shardgrad::SG_DEVICE
