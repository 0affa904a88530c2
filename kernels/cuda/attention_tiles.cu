// attention and attention_cached by tiles (attention_tiles.h): a block has 64 queries of a head, and
// brings the next keys and values while it meets those before.
//
// With P = T² / 2 pairs for each sample and head: 4·d operations per pair on tensor cores, an exponential and about 10
// others on the rest; keys and values are read once for 64 queries, the most from the caches. Beside that qkv is read
// and y written once.

#include <shardgrad/kernels/cuda/attention_heads.h>
#include <shardgrad/kernels/cuda/attention_tiles.h>
#include <shardgrad/kernels/cuda/tiles.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr float kLog2e = 1.44269504f;

/// A head of a sample: where its queries, keys and values lie, from query 0 and from key 0 on.
template <class T> struct Meeting {
  const T *queries, *keys, *values;
  int64_t query_step, key_step;
  int rows, first;  ///< queries, and the place of the first
  int start;        ///< the first key that is seen
  int depth;
  float scale;
  bool packed;

  __device__ RowsOf<T> query_rows(int row) const {
    return {queries + row * query_step, query_step, rows - row, depth, packed};
  }
  __device__ RowsOf<T> key_rows(const T* of, int key, int end) const {
    return {of + key * key_step, key_step, end - key, depth, packed};
  }
};

/// The score below which no weight is; 0 where there is none, so that nothing is infinity less infinity.
__device__ inline float floor_of(float top) { return top == -std::numeric_limits<float>::infinity() ? 0 : top; }

/// Sums of 4 lanes, which have the same rows.
__device__ inline float add_up(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 1);
  return value + __shfl_xor_sync(kWholeWarp, value, 2);
}
__device__ inline float largest(float a, float b) { return a > b || !(a == a) ? a : b; }

constexpr int kMet = 32;  ///< keys at a time: their scores are in registers

/// What a warp has of its 16 queries: the sums of values so far, under the largest score so far of each of its rows.
template <class T, int D> struct Attending {
  using Scores = float[kMet / 8][4];

  uint32_t queries[D / 16][4];
  float sums[D / 8][4] = {}, top[2] = {-std::numeric_limits<float>::infinity(), top[0]}, total[2] = {};
  Lane lane;

  __device__ void take_queries(const RowsTile<D>& tile) {
    SG_UNROLL
    for (int k = 0; k < D / 16; ++k) first_factor(queries[k], tile, lane.warp * 16, k * 16, lane);
  }

  /// scores += queries · keysᵀ for kMet keys of a tile.
  __device__ void score(Scores& scores, const RowsTile<D>& keys, int begin) const {
    SG_UNROLL
    for (int j = 0; j < kMet / 8; j += 2) {
      SG_UNROLL
      for (int k = 0; k < D / 16; ++k)
        add_product<T, false>(scores[j], scores[j + 1], queries[k], keys, k * 16, begin + j * 8, lane);
    }
  }

  /// The largest score of a row so far; those of keys behind `last`, counted from the first one here, are none.
  __device__ float peak_of(Scores& scores, int half, int last) const {
    float peak = top[half];
    SG_UNROLL
    for (int j = 0; j < kMet / 8; ++j) {
      SG_UNROLL
      for (int e = 0; e < 2; ++e) {
        float& score = scores[j][half * 2 + e];
        if (j * 8 + lane.two + e > last) score = -std::numeric_limits<float>::infinity();
        peak = largest(peak, score);
      }
    }
    peak = largest(peak, __shfl_xor_sync(kWholeWarp, peak, 1));
    return largest(peak, __shfl_xor_sync(kWholeWarp, peak, 2));
  }

  /// Scores of a row become weights under its new peak, to which what was summed before shrinks. `dropped(key, weight)`
  /// counts keys from the first one here.
  template <class Dropped>
  __device__ void weigh(Scores& scores, int half, float peak, float factor, const Dropped& dropped) {
    float fading = peak == top[half] ? 1 : std::exp2((top[half] - peak) * factor), shift = floor_of(peak) * factor;
    top[half] = peak;
    total[half] *= fading;
    SG_UNROLL
    for (int n = 0; n < D / 8; ++n) sums[n][half * 2] *= fading, sums[n][half * 2 + 1] *= fading;
    SG_UNROLL
    for (int j = 0; j < kMet / 8; ++j) {
      SG_UNROLL
      for (int e = 0; e < 2; ++e) {
        float weight = std::exp2(scores[j][half * 2 + e] * factor - shift);
        total[half] += weight;
        scores[j][half * 2 + e] = dropped(j * 8 + lane.two + e, weight);
      }
    }
  }

  /// sums += weights · values
  __device__ void add_values(const Scores& weights, const RowsTile<D>& values, int begin) {
    SG_UNROLL
    for (int j = 0; j < kMet / 8; j += 2) {
      uint32_t a[4];
      first_factor<T>(a, weights[j], weights[j + 1]);
      SG_UNROLL
      for (int n = 0; n < D / 8; n += 2)
        add_product<T, true>(sums[n], sums[n + 1], a, values, begin + j * 8, n * 8, lane);
    }
  }
};

/// Divides the sums by their weights and gives them to `put`.
template <class T, int D, class Put>
__device__ void finish(const Attending<T, D>& a, const Meeting<T>& m, int row0, int first_wild, const Put& put) {
  SG_UNROLL
  for (int half = 0; half < 2; ++half) {
    int row = row0 + a.lane.warp * 16 + a.lane.group + half * 8;
    float sum = add_up(a.total[half]);
    if (row >= m.rows) continue;
    bool empty = m.first + row < m.start;
    float inverse = empty ? 0 : 1 / sum;
    if (m.first + row - m.start >= first_wild) inverse = std::numeric_limits<float>::quiet_NaN();
    SG_UNROLL
    for (int n = 0; n < D / 8; ++n)
      if (n * 8 + a.lane.two < m.depth)
        put(row, n * 8 + a.lane.two, a.sums[n][half * 2] * inverse, a.sums[n][half * 2 + 1] * inverse);
    if (a.lane.two == 0) put.lse(row, empty ? 0 : a.top[half] * m.scale + std::log(sum));
  }
}

/// One tile of keys and their values. `place`: of the warp's first query; `key`: of the tile's first; `edge`: some
/// query of the block does not see some key.
template <class T, int D, class Dropped>
__device__ void meet(Attending<T, D>& a, const RowsTile<D>& keys, const RowsTile<D>& values, int place, int key,
                     bool edge, float factor, const Dropped& dropped) {
  for (int begin = 0; begin < kTileSide; begin += kMet) {
    int first = key + begin;
    if (first > place + 15) break;  // nothing for this warp
    float scores[kMet / 8][4] = {};
    a.score(scores, keys, begin);
    SG_UNROLL
    for (int half = 0; half < 2; ++half) {  // rows `group` and group + 8
      int own = place + a.lane.group + half * 8;
      float peak = a.peak_of(scores, half, edge ? own - first : kTileSide);
      a.weigh(scores, half, peak, factor, [&](int k, float weight) { return dropped(own, first + k, weight); });
    }
    a.add_values(scores, values, begin);
  }
}

// Tile `tile` of the queries. `dropped(place, key, weight)` is a weight after dropout; put(row, column, left, right)
// takes two neighbours of a row of the result, put.lse(row, value) the logarithm of what its weights were divided by.
template <class T, int D, class Dropped, class Put>
__device__ void attend_tile(const Meeting<T>& m, int tile, const Dropped& dropped, const Put& put) {
  // The first key, counted from the start, of an edge whose value is not finite. By its weight, which is 0 for queries
  // before it, it would come to those; so it is left out of the product, and put into what sees it in the end.
  __shared__ int first_wild;
  auto* shared = dynamic_shared<RowsTile<D>>();
  RowsTile<D>*keys = shared, *values = shared + 2;  // of this turn and the next
  int row0 = tile * kTileSide, place0 = m.first + row0, behind = row0 + kTileSide;
  int end = m.first + (behind < m.rows ? behind : m.rows);  // of the keys that any query sees
  auto bring = [&](int key, int turn) {
    if (key < end) {
      bring_rows(keys[turn], m.key_rows(m.keys, key, end));
      bring_rows(values[turn], m.key_rows(m.values, key, end));
    }
    group_copies();
  };
  if (threadIdx.x == 0) first_wild = std::numeric_limits<int>::max();
  bring_rows(keys[1], m.query_rows(row0));
  group_copies();
  bring(m.start, 0);
  wait_for_copies<1>();
  __syncthreads();
  Attending<T, D> attending;
  attending.take_queries(keys[1]);
  for (int key = m.start, turn = 0; key < end; key += kTileSide, turn ^= 1) {
    bool edge = key + kTileSide - 1 > place0;
    __syncthreads();  // what the next ones replace has been read
    bring(key + kTileSide, turn ^ 1);
    wait_for_copies<1>();
    if (edge) keep_finite<T>(values[turn], [&](int row) { atomicMin(&first_wild, key - m.start + row); });
    __syncthreads();
    meet(attending, keys[turn], values[turn], place0 + attending.lane.warp * 16, key, edge, m.scale * kLog2e, dropped);
  }
  wait_for_copies<0>();
  finish(attending, m, row0, first_wild, put);
}

/// Where results go: `pairs` where two neighbours may go in one access.
template <class T> struct Result {
  T* y;
  int64_t step;
  bool pairs, accumulate;
  float* sums = nullptr;
  bool accumulate_sums = false;

  __device__ void operator()(int64_t row, int column, float left, float right) const {
    store_two(y + row * step + column, left, right, pairs, accumulate);
  }
  __device__ void lse(int64_t row, float value) const {
    if (sums) store(sums + row, value, accumulate_sums);
  }
};

// Block (tile · samples + sample) · heads + head; later tiles see more keys, and are begun first.
template <class T, int D, bool dropping>
__launch_bounds__(kTileThreads, D > 64 ? 2 : 3) __global__
    void attention_tiles_kernel(Heads h, T* y, float* lse, const T* qkv, bool packed, bool pairs, bool accumulate,
                                bool accumulate_lse) {
  int64_t heads = h.samples * h.heads;
  int tile = int(gridDim.x / heads - 1 - blockIdx.x / heads);
  int64_t head = blockIdx.x % h.heads, sample = blockIdx.x / h.heads % h.samples,
          shared_head = h.heads + head / h.group;
  int start = int(h.start(sample, head == 0 && tile == 0 && threadIdx.x == 0));
  Meeting<T> meeting{.queries = qkv + h.at(sample, 0, head),
                     .keys = qkv + h.at(sample, 0, shared_head),
                     .values = qkv + h.at(sample, 0, shared_head + h.kv_heads),
                     .query_step = h.row,
                     .key_step = h.row,
                     .rows = int(h.places),
                     .first = 0,
                     .start = start,
                     .depth = int(h.depth),
                     .scale = float(h.scale),
                     .packed = packed};
  Result<T> result{y + h.y_at(sample, 0, head), h.heads * h.depth, pairs, accumulate};
  if (lse) result.sums = lse + h.lse_at(sample, 0, head), result.accumulate_sums = accumulate_lse;
  attend_tile<T, D>(
      meeting, tile,
      [&](int64_t place, int64_t key, float weight) {
        return dropping ? h.dropped(sample, head, place, key, weight) : weight;
      },
      result);
}

// Block (sample · tiles + tile) · heads + head.
template <class T, int D>
__launch_bounds__(kTileThreads, D > 64 ? 2 : 3) __global__
    void attention_cached_tiles_kernel(CachedHeads h, T* y, const T* qkv, const T* keys, const T* values,
                                       const int64_t* starts, bool packed, bool pairs, bool accumulate) {
  int64_t tiles = (h.rows + kTileSide - 1) / kTileSide, head = blockIdx.x % h.heads;
  int tile = int(blockIdx.x / h.heads % tiles);
  int64_t sample = blockIdx.x / h.heads / tiles, cache = (sample * h.kv_heads + head / h.group) * h.places * h.depth;
  int start = int(h.start(starts, sample, head == 0 && tile == 0 && threadIdx.x == 0));
  Meeting<T> meeting{.queries = qkv + sample * h.rows * h.row + head * h.depth,
                     .keys = keys + cache,
                     .values = values + cache,
                     .query_step = h.row,
                     .key_step = h.depth,
                     .rows = int(h.rows),
                     .first = int(h.first),
                     .start = start,
                     .depth = int(h.depth),
                     .scale = float(h.scale),
                     .packed = packed};
  Result<T> result{y + (sample * h.rows * h.heads + head) * h.depth, h.heads * h.depth, pairs, accumulate};
  attend_tile<T, D>(
      meeting, tile, [](int64_t, int64_t, float weight) { return weight; }, result);
}

}  // namespace

bool attention_by_tiles(const Launch& how, OutView y, OutView lse, View qkv, View starts, kernels::AttentionArgs args) {
  Heads h(qkv, starts, args);
  return dispatch_tiles(qkv.dtype, h.depth, args.scale, [&]<class T, int D>() {
    Config config = blocks_of_tiles<D>(h.places, h.samples * h.heads, 4);
    bool packed = lie_at(16, {qkv.data}), pairs = lie_at(4, {y.data});
    auto with = [&]<bool dropping>() {
      launch<attention_tiles_kernel<T, D, dropping>>(how, config, h, y.as<T>(), lse.as<float>(), qkv.as<T>(), packed,
                                                     pairs, y.beta != 0, lse.beta != 0);
    };
    h.dropout > 0 ? with.template operator()<true>() : with.template operator()<false>();
  });
}

bool attention_cached_by_tiles(const Launch& how, OutView y, View qkv, View keys, View values, View starts,
                               kernels::CachedAttentionArgs args) {
  CachedHeads h(qkv, keys, args);
  return dispatch_tiles(qkv.dtype, h.depth, args.scale, [&]<class T, int D>() {
    bool packed = lie_at(16, {qkv.data, keys.data, values.data}), pairs = lie_at(4, {y.data});
    launch<attention_cached_tiles_kernel<T, D>>(how, blocks_of_tiles<D>(h.rows, h.samples * h.heads, 4), h, y.as<T>(),
                                                qkv.as<T>(), keys.as<T>(), values.as<T>(), starts.as<int64_t>(), packed,
                                                pairs, y.beta != 0);
  });
}

}  // namespace shardgrad::SG_DEVICE
