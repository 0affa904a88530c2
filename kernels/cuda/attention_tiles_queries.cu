// The queries' half of attention_backward by tiles: attention_passes.h says what it computes.

#include <shardgrad/kernels/cuda/attention_passes.h>

namespace shardgrad::SG_DEVICE {
namespace {

// Σ dy · y of the tile's queries: two threads have a row.
template <class T, int D>
__device__ void make_means(float* means, const Passes<T>& p, const T* y, bool y_packed, int64_t sample, int64_t head,
                           int64_t row0) {
  int64_t place = row0 + threadIdx.x / 2, at = p.h.y_at(sample, place, head);
  int half = int(threadIdx.x) % 2 * (D / 2);
  float sum = 0;
  for (int c = half; c < half + D / 2 && c < p.h.depth && place < p.h.places; c += kTilePack) {
    Pack<T, kTilePack> a = neighbours(p.dy + at + c, p.packed), b = neighbours(y + at + c, y_packed);
    SG_UNROLL
    for (int k = 0; k < kTilePack; ++k) sum += widen(a.at[k]) * widen(b.at[k]);
  }
  sum += __shfl_xor_sync(kWholeWarp, sum, 1);
  if (threadIdx.x % 2 == 1) return;
  means[threadIdx.x / 2] = sum;
  if (place < p.h.places) p.means[p.h.lse_at(sample, place, head)] = sum;
}

/// What a warp has of its 16 queries: they and their gradients, and the sums that become dq.
template <class T, int D> struct Queries {
  uint32_t queries[D / 16][4], gradients[D / 16][4];
  float mean[2], lse[2], sums[D / 8][4] = {};
  Lane lane;

  /// From the tiles where they lie; means and lse are those of the tile's rows, of which `count` are there.
  __device__ void take(const RowsTile<D>& from, const RowsTile<D>& gradients_from, const float* means,
                       const float* all_lse, int count) {
    SG_UNROLL
    for (int k = 0; k < D / 16; ++k) {
      first_factor(queries[k], from, lane.warp * 16, k * 16, lane);
      first_factor(gradients[k], gradients_from, lane.warp * 16, k * 16, lane);
    }
    for (int half = 0; half < 2; ++half) {
      int row = lane.warp * 16 + lane.group + half * 8;
      mean[half] = means[row];
      lse[half] = row < count ? all_lse[row] * kLog2e : 0;
    }
  }

  /// Adds slopes · keys for one tile of keys and values. `place`: of the warp's first query; `key`: of the tile's
  /// first; `edge`: some query of the block does not see some key.
  template <class Dropped>
  __device__ void meet(const RowsTile<D>& keys, const RowsTile<D>& values, int place, int key, bool edge, float factor,
                       const Dropped& dropped) {
    for (int first = 0; first < kTileSide; first += kMet<D>) {
      if (key + first > place + 15) break;  // nothing for this warp
      float scores[kMet<D> / 8][4] = {}, slopes[kMet<D> / 8][4] = {};
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; j += 2) {
        SG_UNROLL
        for (int k = 0; k < D / 16; ++k) {
          add_product<T, false>(scores[j], scores[j + 1], queries[k], keys, k * 16, first + j * 8, lane);
          add_product<T, false>(slopes[j], slopes[j + 1], gradients[k], values, k * 16, first + j * 8, lane);
        }
      }
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; ++j) {
        SG_UNROLL
        for (int e = 0; e < 4; ++e) {
          int own = place + lane.group + e / 2 * 8, other = key + first + j * 8 + lane.two + e % 2;
          float weight = std::exp2(scores[j][e] * factor - lse[e / 2]);
          float slope = weight * (dropped(own, other, slopes[j][e]) - mean[e / 2]);
          slopes[j][e] = edge && other > own ? 0 : slope;
        }
      }
      SG_UNROLL
      for (int j = 0; j < kMet<D> / 8; j += 2) {
        uint32_t a[4];
        first_factor<T>(a, slopes[j], slopes[j + 1]);
        SG_UNROLL
        for (int n = 0; n < D / 8; n += 2)
          add_product<T, true>(sums[n], sums[n + 1], a, keys, first + j * 8, n * 8, lane);
      }
    }
  }
};

/// What a block of queries has to do. Block (tile · samples + sample) · heads + head; later tiles see more keys, and
/// are begun first.
struct QueryBlock {
  int64_t head, sample, key_head;
  int row0, end, start;  // the first query; the end of the keys that any sees; the first key
  __device__ explicit QueryBlock(const Heads& h)
      : head(blockIdx.x % h.heads), sample(blockIdx.x / h.heads % h.samples), key_head(h.heads + head / h.group) {
    int64_t heads = h.samples * h.heads;
    row0 = int(gridDim.x / heads - 1 - blockIdx.x / heads) * kTileSide;
    end = row0 + kTileSide < int(h.places) ? row0 + kTileSide : int(h.places);
    start = int(h.start(sample, head == 0 && row0 == 0 && threadIdx.x == 0));
  }
};

template <class T, int D, bool dropping>
__launch_bounds__(kTileThreads, kBlocks<D>) __global__
    void attention_tiles_queries_kernel(Passes<T> p, T* dqkv, const T* y, bool y_packed) {
  __shared__ float means[kTileSide];
  __shared__ int first_wild;  // as in attention_tiles.cu, of keys
  auto* tiles = dynamic_shared<RowsTile<D>>();
  RowsTile<D>*keys = tiles, *values = tiles + 2;  // of this turn and the next
  QueryBlock b(p.h);
  auto bring = [&](int key, int turn) {
    if (key < b.end) {
      bring_rows(keys[turn], p.rows(b.sample, key, b.key_head, b.end));
      bring_rows(values[turn], p.rows(b.sample, key, b.key_head + p.h.kv_heads, b.end));
    }
    group_copies();
  };
  if (threadIdx.x == 0) first_wild = std::numeric_limits<int>::max();
  bring_rows(keys[1], p.rows(b.sample, b.row0, b.head, p.h.places));
  bring_rows(values[1], p.gradients(b.sample, b.row0, b.head));
  group_copies();
  bring(b.start, 0);
  make_means<T, D>(means, p, y, y_packed, b.sample, b.head, b.row0);
  wait_for_copies<1>();
  __syncthreads();
  Queries<T, D> mine;
  mine.take(keys[1], values[1], means, p.lse + p.h.lse_at(b.sample, b.row0, b.head), b.end - b.row0);
  Dropout<dropping> dropout{p.h, b.sample, b.head};
  for (int key = b.start, turn = 0; key < b.end; key += kTileSide, turn ^= 1) {
    bool edge = key + kTileSide - 1 > b.row0;
    __syncthreads();  // what the next ones replace has been read
    bring(key + kTileSide, turn ^ 1);
    wait_for_copies<1>();
    if (edge) keep_finite<T>(keys[turn], [&](int row) { atomicMin(&first_wild, key - b.start + row); });
    __syncthreads();
    mine.meet(keys[turn], values[turn], b.row0 + mine.lane.warp * 16, key, edge, float(p.h.scale) * kLog2e, dropout);
  }
  wait_for_copies<0>();
  auto spoilt = [&](int row) { return b.row0 + row - b.start >= first_wild; };
  T* to = dqkv + p.h.at(b.sample, b.row0, b.head);
  put_rows(to, p.h.row, p.h.places - b.row0, mine.sums, float(p.h.scale), p, mine.lane, spoilt);
}

}  // namespace

bool attention_backward_by_tiles(const Launch& how, OutView dqkv, View dy, View qkv, View y, View lse, View starts,
                                 kernels::AttentionArgs args) {
  Heads h(qkv, starts, args);
  return dispatch_tiles(qkv.dtype, h.depth, args.scale, [&]<class T, int D>() {
    Scratch means(how, size_t(h.samples * h.heads * h.places) * sizeof(float));
    Passes<T> passes = passes_of<T>(h, dqkv, dy, qkv, lse, means.as<float>());
    Config config = blocks_of_tiles<D>(h.places, h.samples * h.heads, 4);
    auto with = [&]<bool dropping>() {
      launch<attention_tiles_queries_kernel<T, D, dropping>>(how, config, passes, dqkv.as<T>(), y.as<T>(),
                                                             lie_at(16, {y.data}));
    };
    h.dropout > 0 ? with.template operator()<true>() : with.template operator()<false>();
    attention_keys_by_tiles(how, dqkv, dy, qkv, lse, means.as<float>(), starts, args);
  });
}

}  // namespace shardgrad::SG_DEVICE
