#pragma once
// What the kernels that keep a piece of a product in registers share: its size, and a transpose in registers.

#include <shardgrad/kernels/cpu/isa/simd.h>

namespace shardgrad::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 12, kColumnVectors = 2;  // 24 of 32 registers hold c
#elif defined(__AVX2__)
constexpr int kRows = 6, kColumnVectors = 2;  // 12 of 16
#else
constexpr int kRows = 4, kColumnVectors = 2;  // 8 of 16
#endif

constexpr int64_t kBlockDepth = 256;  // of a product: its sums are sums of sums over so many elements

SG_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
SG_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
SG_INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A square of a vector's width. Each round shuffles rows and lanes once, so that after as many as a lane's number has
// bits, rows are lanes.
template <class V, int width> SG_INLINE void transpose_square(V (&v)[width]) {
  V next[width];
#pragma GCC unroll 4
  for (int round = 1; round < width; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width / 2; ++i) {
      next[2 * i] = low(v[i], v[i + width / 2]);
      next[2 * i + 1] = high(v[i], v[i + width / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) v[i] = next[i];
  }
}

template <class T> SG_INLINE void transpose_square(T* to, int64_t to_row, const T* from, int64_t from_row) {
  constexpr int width = Pack<T>::width;
  VectorOf<T> v[width];
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i) v[i] = load(from + i * from_row);
  transpose_square(v);
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i) store(to + i * to_row, v[i]);
}

// to[j * to_row + i] = from[i * step + j]
template <class T>
SG_INLINE void transpose(T* to, int64_t to_row, const T* from, int64_t rows, int64_t cols, int64_t step) {
  constexpr int64_t width = Pack<T>::width;
  int64_t whole_rows = rows / width * width, whole_cols = cols / width * width;
  for (int64_t i = 0; i < whole_rows; i += width)
    for (int64_t j = 0; j < whole_cols; j += width)
      transpose_square(to + j * to_row + i, to_row, from + i * step + j, step);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; ++j) to[j * to_row + i] = from[i * step + j];
}

}  // namespace
}  // namespace shardgrad::cpu
