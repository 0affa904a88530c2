#pragma once
// Pieces of a product in registers, in which not every row has the same depth: what a row must not see is not read, so
// that no infinity of a later row becomes a NaN of an earlier one.

#include <shardgrad/kernels/cpu/isa/tile.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kNoEnd = int64_t(1) << 40;

// c (m, columns) = a · b, or c += a · b, for m <= kRows, element (i, p) of a at a[i * a_row + p * a_col]. Row i has the
// depths p of [0, k) that are at least first + i and below last + i. kRows rows of a are read, columns in whole
// vectors.
template <class C> struct Piece {
  int64_t m, k, first = -kRows, last = kNoEnd;
  const C* a;
  int64_t a_row, a_col;
  const C* b;
  int64_t b_row;
  C* c;
  int64_t c_row;
  bool accumulate = false;
};

template <bool part, class C, int vectors>
SG_INLINE void add_depth(VectorOf<C> (&acc)[kRows][vectors], const Piece<C>& t, int64_t p) {
  using V = VectorOf<C>;
  const C *a = t.a + p * t.a_col, *b = t.b + p * t.b_row;
  V row[vectors];
#pragma GCC unroll 2
  for (int j = 0; j < vectors; ++j) row[j] = load(b + j * Pack<C>::width);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    if (part && (p < t.first + i || p >= t.last + i)) continue;
    V value = splat<V>(a[i * t.a_row]);
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) acc[i][j] = fma(value, row[j], acc[i][j]);
  }
}

// `vectors` vectors of columns.
template <class C, int vectors> void tile(const Piece<C>& t) {
  VectorOf<C> acc[kRows][vectors] = {};
  int64_t p = t.first > 0 ? t.first : 0;
  for (; p < smaller(t.k, t.first + kRows - 1); ++p) add_depth<true, C, vectors>(acc, t, p);
  for (; p < smaller(t.k, t.last); ++p) add_depth<false, C, vectors>(acc, t, p);
  for (; p < smaller(t.k, t.last + kRows - 1); ++p) add_depth<true, C, vectors>(acc, t, p);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) {
      if (i >= t.m) continue;
      C* to = t.c + i * t.c_row + j * Pack<C>::width;
      store(to, t.accumulate ? load(to) + acc[i][j] : acc[i][j]);
    }
  }
}

// `columns` of them, whole vectors.
template <class C> void across(Piece<C> t, int64_t columns) {
  static_assert(kColumnVectors == 2);
  constexpr int64_t width = Pack<C>::width, wide = kColumnVectors * width;
  for (; columns >= wide; columns -= wide, t.b += wide, t.c += wide) tile<C, kColumnVectors>(t);
  if (columns > 0) tile<C, 1>(t);
}

}  // namespace
}  // namespace shardgrad::cpu
