#pragma once
// Rows as packs of 16 bytes. A warp has a row where it fits in the registers of its lanes (at most kRowPacks packs
// each), otherwise a block of kBlock threads has; what is wider still is read again from memory. Thread t of `width`
// takes the packs t, t + width, …: which elements a thread adds, and so the order of sums, depends on the row's length
// alone. Where a row's address is not that of a pack, and in its last, incomplete pack, elements move one by one.

#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// Packs of a row that a thread keeps: 32 numbers, or 8 in f64.
template <class T> inline constexpr int kRowPacks = sizeof(T) == 8 ? 4 : 32 / kPackOf<T>;

template <class T> using RowPack = Packed<T, kPackOf<T>>;

/// Elements [first, first + count) of a row of `cols`, beyond which they are `otherwise`.
template <class T> __device__ RowPack<T> load_part(const T* row, int first, int cols, bool packed, T otherwise = T()) {
  return load_some<kPackOf<T>>(row + first, cols - first, packed, otherwise);
}
/// row[first + e] = value(e), or += it, for those of a pack's elements that the row has.
template <class T, class Value>
__device__ void store_part(T* row, int first, int cols, bool packed, bool accumulate, const Value& value) {
  if (packed && first + kPackOf<T> <= cols) {
    Pack<T, kPackOf<T>> pack;
    if (accumulate) pack = load_pack<kPackOf<T>>(static_cast<const T*>(row + first));
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e) store(&pack.at[e], value(e), accumulate);
    store_pack(row + first, pack);
  } else {
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e)
      if (first + e < cols) store(row + first + e, value(e), accumulate);
  }
}

/// Whether every row of `cols` elements from here on begins at a pack; true for what is not there.
template <class T> bool rows_packed(const T* from, int64_t cols) {
  return aligned<T, kPackOf<T>>(from) && cols % kPackOf<T> == 0;
}

/// A row, by the threads that have it: a warp's lanes, or all of a block.
template <bool by_block> struct RowThreads {
  static constexpr int width = by_block ? kBlock : 32;
  /// Where the k-th pack of this thread begins in the row.
  template <class T> __device__ static int first(int k) { return (k * width + int(threadIdx.x)) * kPackOf<T>; }
  __device__ static int64_t row() { return by_block ? blockIdx.x : int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
  template <class Op, class A> __device__ static A reduce(A value) {
    if constexpr (by_block)
      return block_reduce<Op>(value);
    else
      return warp_reduce<Op>(value);
  }
};

/// Calls visit.operator()<packs, by_block>() with how many packs of a row each of its threads keeps; false where a row
/// does not fit.
template <class T, class Visitor> bool dispatch_rows(int64_t cols, Visitor&& visit) {
  int64_t packs = (cols + kPackOf<T> - 1) / kPackOf<T>;
  auto with = [&]<bool by_block>() {
    int64_t each = (packs + RowThreads<by_block>::width - 1) / RowThreads<by_block>::width;
    constexpr bool needs_one = !by_block || kRowPacks<T> * 32 < kBlock;  // or a warp has had such a row
    if (needs_one && each <= 1) {
      if constexpr (needs_one) visit.template operator()<1, by_block>();
    } else if (each <= 2) {
      visit.template operator()<2, by_block>();
    } else if (each <= 4) {
      visit.template operator()<4, by_block>();
    } else if (each <= kRowPacks<T>) {
      if constexpr (kRowPacks < T >> 4) visit.template operator()<kRowPacks<T>, by_block>();
    }
    return each <= kRowPacks<T>;
  };
  return with.template operator()<false>() || with.template operator()<true>();
}
/// Whether dispatch_rows finds a kernel for rows of this length.
template <class T> bool rows_fit(int64_t cols) {
  constexpr int64_t packs = kRowPacks<T>;
  return cols <= packs * kBlock * kPackOf<T>;
}
/// Blocks of four rows that warps have, or of one.
template <bool by_block> Config row_blocks(int64_t rows) {
  if (by_block) return {blocks_for(rows, 1), dim3(kBlock)};
  return {blocks_for(rows, 4), dim3(32, 4)};
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
