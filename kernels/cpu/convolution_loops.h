#pragma once
// Loops of convolutions, of kernels/cpu/loops.h.

#include <cstddef>
#include <cstdint>

namespace shardgrad::cpu {

inline constexpr int kFloatCount = 4;  ///< f32, f64, bf16, f16: the first four dtypes index the tables

/// y (m, …) = bias + Σ_k weights[·, k] · x[offsets[k] + place], for as many places side by side as a vector has, from
/// each of `vectors` ones on. Of k only [first, last), first a multiple of `block`: y is added to where it is not 0.
struct WindowSums {
  int64_t m, first, last;
  const void *weights, *bias;  ///< packed; (m) or null
  const void* x;
  const int64_t* offsets;  ///< of `first` and those behind it
  int64_t vectors;
  const int64_t* places;
  void* y;
  int64_t y_row;
};
/// What windows see of a row of places: those from `from` on go to `to` and what follows.
struct WindowPiece {
  int64_t from, to, count;
};
/// to[k · row + piece.to + i] = x[offsets[k] + piece.from + i]: windows side by side. Pieces ascend, for up to a vector
/// behind each is overwritten, and behind the last of the last row.
struct WindowRows {
  int64_t k;
  const void* x;
  const int64_t* offsets;
  const WindowPiece* pieces;
  int64_t count;
  void* to;
  int64_t row;
};
/// sums (k, row) += Σ over places of x[image · step + offsets[k] + r · pitch + c] · dy (images · rows · cols, row),
/// place (image, r, c). `row` is a whole number of vectors; columns of dy lie in panels of `panel` vectors (the last
/// one may have fewer), rows of a panel one behind the other.
struct WindowProducts {
  int64_t k, row;
  int64_t images, step, rows, cols, pitch;
  const void* x;
  const int64_t* offsets;
  const void* dy;
  void* sums;
};
/// Rows of `from` to rows of `to`, or, turned round, to columns.
struct MatrixCopy {
  int64_t rows, cols;
  void* to;
  int64_t to_row;
  const void* from;
  int64_t from_row;
};
/// For f32 and f64. The order of each element's sum depends on the window, and in `products` on images, rows and cols,
/// alone.
struct ConvolutionLoops {
  /// Of weights (m, k); takes round_up(m, row_step) · k elements.
  void (*pack[2])(void* packed, const void* weights, int64_t m, int64_t k);
  void (*sums[2])(const WindowSums&);
  void (*windows[2])(const WindowRows&);
  void (*products[2])(const WindowProducts&);
  void (*transpose[2])(const MatrixCopy&);
  /// From f32 (f64 for f64) to the dtype; accumulate adds.
  void (*put[kFloatCount])(const MatrixCopy&, bool accumulate);
  void (*every_other[2])(void* to, const void* from, int64_t n);  ///< to[i] = from[2 * i]
  int row_step, block, panel;
  int vector[2];  ///< elements
};

}  // namespace shardgrad::cpu
