#pragma once
// Products of a few rows with a matrix that is read from memory once, as when a model makes one token after the other:
// squares of the matrix are transposed in registers, so that lanes are columns of the result and each element's sum
// goes along k, as that of the packed product (gemm.cpp). Hence a row's bits do not depend on how many rows there are.

#include <shardgrad/kernels/cpu/isa/tile.h>
#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu {
namespace {

// What is moved as one in the transpose: elements of 16 bits in pairs.
template <class T> struct WordOf {
  using Type = T;
  static constexpr int elements = 1;
  SG_INLINE static VectorOf<T> element(VectorOf<T> word, int) { return word; }
};
template <class T> struct PairOf {
  using Type = float;
  static constexpr int elements = 2;
};
template <> struct WordOf<Bf16> : PairOf<Bf16> {
  SG_INLINE static F32 element(F32 pair, int second) {
    return (F32)(second ? (U32)pair & 0xffff0000u : (U32)pair << 16);
  }
};
template <> struct WordOf<F16> : PairOf<F16> {
  SG_INLINE static F32 element(F32 pair, int second) {
    U32 bits = second ? (U32)pair >> 16 : (U32)pair & 0xffffu;
#if defined(__AVX512F__)
    return (F32)_mm512_maskz_cvtph_ps(0xffff, (__m256i) __builtin_convertvector(bits, U16));
#else
    return widen(__builtin_convertvector(bits, U16), F16());
#endif
  }
};

// Elements of a row that one load brings.
template <class T> constexpr int64_t kSquare = Pack<T>::width* WordOf<T>::elements;

template <class T, int rows> struct FewRows {
  using C = ScalarOf<T>;
  using V = VectorOf<T>;
  using Word = typename WordOf<T>::Type;
  static constexpr int64_t width = Pack<T>::width;
  const FewRowsTask& t;
  int64_t block;     // depth after which a sum begins anew
  const C* a[rows];  // rows beyond the last are the last one again

  FewRows(const FewRowsTask& t, int64_t block) : t(t), block(block) {
    for (int r = 0; r < rows; ++r) a[r] = static_cast<const C*>(t.a) + smaller(r, t.m - 1) * t.a_row;
  }

  // acc += a · bᵀ of `count` elements of depth from p on, in the `columns` rows from b on; all of both where `whole`.
  template <bool whole> SG_INLINE void add(V (&acc)[rows], const T* b, int64_t columns, int64_t p, int64_t count) {
    V v[width];
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) {
      const T* from = b + (whole ? i : smaller(i, columns - 1)) * t.k + p;
      if (whole) {
        v[i] = load(reinterpret_cast<const Word*>(from));
        continue;
      }
      T some[kSquare<T>] = {};
      memcpy(some, from, size_t(count) * sizeof(T));
      v[i] = load(reinterpret_cast<const Word*>(some));
    }
    transpose_square(v);
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i)
#pragma GCC unroll 2
      for (int e = 0; e < WordOf<T>::elements; ++e) {
        int64_t at = i * WordOf<T>::elements + e;
        if (!whole && at >= count) continue;
        V column = WordOf<T>::element(v[i], e);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) acc[r] = fma(splat<V>(a[r][p + at]), column, acc[r]);
      }
  }

  // Brings as much of the rows after these to the cache as is read of these at p. All are one block of memory, which it
  // is faster to read in order than a row beside the other.
  SG_INLINE void look_ahead(const T* b, int64_t p) {
    const char* at = reinterpret_cast<const char*>(b + width * (t.k + p));
#pragma GCC unroll 16
    for (int line = 0; line < width * kBytes; line += 64) __builtin_prefetch(at + line, 0, 2);
  }

  SG_INLINE void columns(int64_t j) {
    const T* b = static_cast<const T*>(t.b) + j * t.k;
    C* c = static_cast<C*>(t.c) + j;
    int64_t n = smaller(width, t.n - j);
    V sums[rows] = {};
    if (t.accumulate)
      for (int r = 0; r < rows; ++r) sums[r] = load_part(c + smaller(r, t.m - 1) * t.c_row, n);
    for (int64_t begin = 0; begin < t.k; begin += block) {
      int64_t p = begin, end = smaller(t.k, begin + block);
      V acc[rows] = {};
      if (n == width)
        for (; p + kSquare<T> <= end; p += kSquare<T>) {
          look_ahead(b, p);
          add<true>(acc, b, n, p, kSquare<T>);
        }
      for (; p < end; p += kSquare<T>) add<false>(acc, b, n, p, smaller(kSquare<T>, end - p));
      for (int r = 0; r < rows; ++r) sums[r] = begin > 0 || t.accumulate ? sums[r] + acc[r] : acc[r];
    }
    for (int r = 0; r < smaller(rows, t.m); ++r) store_part(c + r * t.c_row, sums[r], n);
  }
};

template <class T, int rows> void few_rows(const FewRowsTask& t, int64_t block) {
  FewRows<T, rows> product(t, block);
  for (int64_t j = 0; j < t.n; j += Pack<T>::width) product.columns(j);
}

// Of at most kFewRows rows.
template <class T> void few_rows(const FewRowsTask& t, int64_t block) {
  if (t.m == 1)
    few_rows<T, 1>(t, block);
  else if (t.m == 2)
    few_rows<T, 2>(t, block);
  else if (t.m <= 4)
    few_rows<T, 4>(t, block);
  else
    few_rows<T, 8>(t, block);
}

}  // namespace
}  // namespace shardgrad::cpu
