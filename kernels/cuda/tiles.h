#pragma once
// Tiles of rows of 16-bit elements in shared memory, and what a warp multiplies of them on tensor cores. A warp has
// 16 rows of a product: fragments of the first factor, A (16, 16), come from rows of a tile, or are sums that become a
// factor; those of the second, B (16, 8), two at a time, from a tile that has B's columns as its rows (`across` is
// false) or its rows as rows (true).
//
//     S (16, 64) = Q (16, D) · K (64, D)ᵀ      across false: a row of K is a column of the second factor
//     O (16, D)  = P (16, 64) · V (64, D)      across true:  a row of V is a row of it

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kTileSide = 64;      ///< rows of a tile, if it is not said
constexpr int kTileThreads = 128;  ///< four warps
constexpr int kTilePack = 8;       ///< elements that move at a time

/// Rows of D elements, 16 bytes apart: eight rows that an instruction reads lie in other banks.
template <int D, int rows = kTileSide> struct alignas(16) RowsTile { uint16_t at[rows][D + kTilePack]; };

/// Rows in device memory, `step` elements from one to the next, of which `count` are there; `packed`: each begins at a
/// multiple of 16 bytes.
template <class T> struct RowsOf {
  const T* from;
  int64_t step, count;
  int depth;
  bool packed;
};

/// Eight neighbours, in one access where they are `packed`.
template <class E> __device__ Pack<E, kTilePack> neighbours(const E* from, bool packed) {
  if (packed) return load_pack<kTilePack>(from);
  Pack<E, kTilePack> pack;
  for (int k = 0; k < kTilePack; ++k) pack.at[k] = from[k];
  return pack;
}

/// Of the packs of a tile those that this thread brings: calls with(row, column) for each.
template <int D, int rows, class With> __device__ void each_pack(const With& with) {
  constexpr int across = D / kTilePack, apart = kTileThreads / across;
  int row = int(threadIdx.x) / across, column = int(threadIdx.x) % across * kTilePack;
  SG_UNROLL
  for (int i = 0; i < rows / apart; ++i, row += apart) with(row, column);
}

/// Begins to bring rows to a tile; what is beyond their count or depth is 0. They are there after a wait for the copies
/// and a barrier.
template <class T, int D, int count> __device__ void bring_rows(RowsTile<D, count>& tile, const RowsOf<T>& rows) {
  const uint16_t* from = reinterpret_cast<const uint16_t*>(rows.from);
  each_pack<D, count>([&](int row, int column) {
    uint16_t* to = &tile.at[row][column];
    if (row >= rows.count || column >= rows.depth)
      store_pack(to, Pack<uint16_t, kTilePack>{});
    else if (rows.packed)
      copy_async(to, from + row * rows.step + column);
    else
      store_pack(to, neighbours(from + row * rows.step + column, false));
  });
}

template <class T> __device__ bool is_finite_bits(uint16_t bits) {
  constexpr uint16_t exponent = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
  return (bits & exponent) != exponent;
}
/// Makes 0 of what is not finite among what this thread has brought, and tells wild(row).
template <class T, int D, class Wild> __device__ void keep_finite(RowsTile<D>& tile, const Wild& wild) {
  each_pack<D, kTileSide>([&](int row, int column) {
    auto pack = load_pack<kTilePack>(static_cast<const uint16_t*>(&tile.at[row][column]));
    bool found = false;
    SG_UNROLL
    for (uint16_t& bits : pack.at)
      if (!is_finite_bits<T>(bits)) bits = 0, found = true;
    if (!found) return;
    store_pack(&tile.at[row][column], pack);
    wild(row);
  });
}

/// Where a lane stands in its warp: of sums it has the rows `group` and group + 8, and of those the columns `two`, two
/// + 1.
struct Lane {
  int warp = int(threadIdx.x) / warpSize, number = int(threadIdx.x) % warpSize, group = number / 4,
      two = number % 4 * 2;
  __device__ Lane() {}
};

/// A from rows `row` … row + 15 and columns `column` … column + 15 of a tile.
template <int D, int rows>
__device__ void first_factor(uint32_t (&a)[4], const RowsTile<D, rows>& tile, int row, int column, const Lane& lane) {
  load_matrices<false>(a, &tile.at[row + lane.number % 16][column + lane.number / 16 * 8]);
}
/// A from a tile whose rows are its columns.
template <int D, int rows>
__device__ void first_factor_across(uint32_t (&a)[4], const RowsTile<D, rows>& tile, int row, int column,
                                    const Lane& lane) {
  load_matrices<true>(a, &tile.at[column + lane.number / 16 * 8 + lane.number % 8][row + lane.number / 8 % 2 * 8]);
}
/// A from sums of 16 columns, rounded.
template <class T> __device__ void first_factor(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = narrow_two<T>(left[0], left[1]), a[1] = narrow_two<T>(left[2], left[3]);
  a[2] = narrow_two<T>(right[0], right[1]), a[3] = narrow_two<T>(right[2], right[3]);
}

/// Two Bs beside each other, 16 columns of a product. `k` counts along the sums, `column` across.
template <bool across, int D, int rows>
__device__ void second_factors(uint32_t (&b)[2][2], const RowsTile<D, rows>& tile, int k, int column,
                               const Lane& lane) {
  uint32_t both[4];
  int eight = lane.number / 8 % 2 * 8, next = lane.number / 16 * 8, row = lane.number % 8;
  if constexpr (across)
    load_matrices<true>(both, &tile.at[k + eight + row][column + next]);
  else
    load_matrices<false>(both, &tile.at[column + next + row][k + eight]);
  b[0][0] = both[0], b[0][1] = both[1], b[1][0] = both[2], b[1][1] = both[3];
}
/// left += A · B, right += A · the B beside it.
template <class T>
__device__ void add_product(float (&left)[4], float (&right)[4], const uint32_t (&a)[4], const uint32_t (&b)[2][2]) {
  mma<T>(left, a, b[0]);
  mma<T>(right, a, b[1]);
}
template <class T, bool across, int D>
__device__ void add_product(float (&left)[4], float (&right)[4], const uint32_t (&a)[4], const RowsTile<D>& tile, int k,
                            int column, const Lane& lane) {
  uint32_t b[2][2];
  second_factors<across>(b, tile, k, column, lane);
  add_product<T>(left, right, a, b);
}

/// Two neighbours to memory, in one access where `pair` says that they lie so.
template <class T> __device__ void store_two(T* to, float left, float right, bool pair, bool accumulate) {
  if (pair && !accumulate) {
    uint32_t both = narrow_two<T>(left, right);
    store_pack(reinterpret_cast<uint32_t*>(to), Pack<uint32_t, 1>{both});
  } else {
    store(to, left, accumulate);
    store(to + 1, right, accumulate);
  }
}

/// Blocks for the tiles of so many rows, as often as `times` says, with shared memory for `tiles` of them.
template <int D> Config blocks_of_tiles(int64_t rows, int64_t times, int tiles) {
  return {blocks_for((rows + kTileSide - 1) / kTileSide * times, 1), dim3(kTileThreads), tiles * sizeof(RowsTile<D>)};
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
