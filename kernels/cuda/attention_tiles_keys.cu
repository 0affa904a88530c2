// The keys' half of attention_backward by tiles: attention_passes.h says what it computes.

#include <shardgrad/kernels/cuda/attention_passes.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// Tiles of queries that are in shared memory, or on their way: with wide heads two would be more than an RTX has.
template <int D> constexpr int kBuffers = D > 64 ? 1 : 2;

/// The sums of a warp's 16 keys that become dk and dv.
template <class T, int D> struct Keys {
  using Products = float[kMet<D> / 8][4];
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  Lane lane;

  /// Scores of kMet queries of a tile, and dy · v.
  __device__ void multiply(Products& scores, Products& slopes, const RowsTile<D>& keys, const RowsTile<D>& values,
                           const RowsTile<D>& queries, const RowsTile<D>& gradients, int first) const {
    SG_UNROLL
    for (int k = 0; k < D / 16; ++k) {
      uint32_t a[4], b[4];
      first_factor(a, keys, lane.warp * 16, k * 16, lane);
      first_factor(b, values, lane.warp * 16, k * 16, lane);
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; j += 2) {
        add_product<T, false>(scores[j], scores[j + 1], a, queries, k * 16, first + j * 8, lane);
        add_product<T, false>(slopes[j], slopes[j + 1], b, gradients, k * 16, first + j * 8, lane);
      }
    }
  }

  /// dv += weights · dy, dk += slopes · q
  __device__ void add(const Products& weights, const Products& slopes, const RowsTile<D>& queries,
                      const RowsTile<D>& gradients, int first) {
    SG_UNROLL
    for (int j = 0; j < kMet<D> / 8; j += 2) {
      uint32_t a[4], b[4];
      first_factor<T>(a, weights[j], weights[j + 1]);
      first_factor<T>(b, slopes[j], slopes[j + 1]);
      SG_UNROLL
      for (int n = 0; n < D / 8; n += 2) {
        add_product<T, true>(dv[n], dv[n + 1], a, gradients, first + j * 8, n * 8, lane);
        add_product<T, true>(dk[n], dk[n + 1], b, queries, first + j * 8, n * 8, lane);
      }
    }
  }
};

/// What is brought of a tile of queries beside them and their gradients.
struct QueryNumbers {
  float lse[kTileSide], means[kTileSide];
};

/// One tile of queries and their gradients. `own`: the place of the warp's first key; `query`: of the tile's first;
/// `edge`: some query does not see some key.
template <class T, int D, class Dropped>
__device__ void meet(Keys<T, D>& mine, const RowsTile<D>& keys, const RowsTile<D>& values, const RowsTile<D>& queries,
                     const RowsTile<D>& gradients, const QueryNumbers& numbers, int own, int query, bool edge,
                     float factor, const Dropped& dropped) {
  for (int first = 0; first < kTileSide; first += kMet<D>) {
    if (query + first + kMet<D> <= own) continue;  // nothing for this warp
    float weights[kMet<D> / 8][4] = {}, slopes[kMet<D> / 8][4] = {};
    mine.multiply(weights, slopes, keys, values, queries, gradients, first);
    SG_UNROLL
    for (int j = 0; j < kMet<D> / 8; ++j) {
      SG_UNROLL
      for (int e = 0; e < 4; ++e) {
        int row = first + j * 8 + mine.lane.two + e % 2, place = query + row, key = own + mine.lane.group + e / 2 * 8;
        bool sees = !edge || key <= place;
        float weight = sees ? std::exp2(weights[j][e] * factor - numbers.lse[row]) : 0;
        float kept = dropped(place, key, 1.f), slope = kept != 0 ? slopes[j][e] * kept : 0;
        slopes[j][e] = sees ? weight * (slope - numbers.means[row]) : 0;
        weights[j][e] = kept != 0 ? weight * kept : 0;
      }
    }
    mine.add(weights, slopes, queries, gradients, first);
  }
}

/// Begins to bring a tile of queries of a head, and what goes with it.
template <class T, int D>
__device__ void bring_queries(RowsTile<D>& queries, RowsTile<D>& gradients, QueryNumbers& numbers, const Passes<T>& p,
                              int64_t sample, int64_t head, int query) {
  bring_rows(queries, p.rows(sample, query, head, p.h.places));
  bring_rows(gradients, p.gradients(sample, query, head));
  int place = query + int(threadIdx.x);
  if (threadIdx.x >= kTileSide) return;
  int64_t at = p.h.lse_at(sample, place, head);
  bool there = place < p.h.places;
  numbers.lse[threadIdx.x] = there ? p.lse[at] * kLog2e : 0;
  numbers.means[threadIdx.x] = there ? p.means[at] : 0;
}

/// What a block of keys has to do: of each head that shares them the tiles of queries that see them. Tiles begin at the
/// first key that is seen, so a padded sample has the bits of the sample alone. Block (tile · samples + sample) ·
/// kv_heads + head.
struct KeyBlock {
  int64_t first_head, sample, key_head;
  int tile, start, row0, across, turns;
  __device__ explicit KeyBlock(const Heads& h)
      : first_head(blockIdx.x % h.kv_heads * h.group),
        sample(blockIdx.x / h.kv_heads % h.samples),
        key_head(h.heads + blockIdx.x % h.kv_heads),
        tile(int(blockIdx.x / (h.samples * h.kv_heads))),
        start(int(h.start(sample))),
        row0(start + tile * kTileSide),
        across((int(h.places) - row0 + kTileSide - 1) / kTileSide),
        turns(row0 < int(h.places) ? int(h.group) * across : 0) {}
  __device__ int64_t head_of(int turn) const { return first_head + turn / across; }
  __device__ int query_of(int turn) const { return row0 + turn % across * kTileSide; }
};

/// Keys before the start, which nobody sees, have gradient 0: 64 of them for each tile.
template <class T, int D>
__device__ void clear_unseen(const Passes<T>& p, T* dqkv, const KeyBlock& b, const Lane& lane) {
  float none[D / 8][4] = {};
  int first = b.tile * kTileSide;
  T* to = dqkv + p.h.at(b.sample, first, b.key_head);
  auto spoilt = [](int) { return false; };
  for (int part = 0; part < 2; ++part, to += p.h.kv_heads * p.h.depth)
    put_rows(to, p.h.row, b.start - first, none, 1.f, p, lane, spoilt);
}

template <class T, int D, bool dropping>
__launch_bounds__(kTileThreads, kBlocks<D>) __global__ void attention_tiles_keys_kernel(Passes<T> p, T* dqkv) {
  constexpr int buffers = kBuffers<D>;
  __shared__ QueryNumbers numbers[buffers];
  __shared__ int last_wild;  // the last query of an edge that, or whose gradient, is not finite
  auto* tiles = dynamic_shared<RowsTile<D>>();
  RowsTile<D>&keys = tiles[0], &values = tiles[1], *queries = tiles + 2, *gradients = queries + buffers;
  KeyBlock b(p.h);
  auto bring = [&](int turn) {
    int to = turn % buffers;
    if (turn < b.turns)
      bring_queries(queries[to], gradients[to], numbers[to], p, b.sample, b.head_of(turn), b.query_of(turn));
    group_copies();
  };
  if (threadIdx.x == 0) last_wild = -1;
  bring_rows(keys, p.rows(b.sample, b.row0, b.key_head, p.h.places));
  bring_rows(values, p.rows(b.sample, b.row0, b.key_head + p.h.kv_heads, p.h.places));
  if (buffers > 1) bring(0);
  Keys<T, D> mine;
  if (b.tile * kTileSide < b.start) clear_unseen<T, D>(p, dqkv, b, mine.lane);
  for (int turn = 0; turn < b.turns; ++turn) {
    int query = b.query_of(turn), now = turn % buffers;
    bool edge = query == b.row0;  // some query does not see some key
    __syncthreads();              // what the next ones replace has been read
    bring(turn + buffers - 1);
    wait_for_copies<buffers - 1>();
    auto wild = [&](int row) { atomicMax(&last_wild, query + row); };
    if (edge) keep_finite<T>(queries[now], wild), keep_finite<T>(gradients[now], wild);
    __syncthreads();
    meet(mine, keys, values, queries[now], gradients[now], numbers[now], b.row0 + mine.lane.warp * 16, query, edge,
         float(p.h.scale) * kLog2e, Dropout<dropping>{p.h, b.sample, b.head_of(turn)});
  }
  wait_for_copies<0>();
  __syncthreads();  // for last_wild, where there was no turn
  auto spoilt = [&](int row) { return b.row0 + row <= last_wild; };
  T *to_dk = dqkv + p.h.at(b.sample, b.row0, b.key_head), *to_dv = to_dk + p.h.kv_heads * p.h.depth;
  put_rows(to_dk, p.h.row, p.h.places - b.row0, mine.dk, float(p.h.scale), p, mine.lane, spoilt);
  put_rows(to_dv, p.h.row, p.h.places - b.row0, mine.dv, 1.f, p, mine.lane, spoilt);
}

}  // namespace

void attention_keys_by_tiles(const Launch& how, OutView dqkv, View dy, View qkv, View lse, float* means, View starts,
                             kernels::AttentionArgs args) {
  Heads h(qkv, starts, args);
  dispatch_tiles(qkv.dtype, h.depth, args.scale, [&]<class T, int D>() {
    Passes<T> passes = passes_of<T>(h, dqkv, dy, qkv, lse, means);
    Config config = blocks_of_tiles<D>(h.places, h.samples * h.kv_heads, 2 + 2 * kBuffers<D>);
    auto with = [&]<bool dropping>() {
      launch<attention_tiles_keys_kernel<T, D, dropping>>(how, config, passes, dqkv.as<T>());
    };
    h.dropout > 0 ? with.template operator()<true>() : with.template operator()<false>();
  });
}

}  // namespace shardgrad::SG_DEVICE
