#pragma once
// Loops of convolutions, of kernels/cpu/loops.h.

#include <cstddef>
#include <cstdint>

namespace shardgrad::cpu {

inline constexpr int kFloatCount = 4;  ///< f32, f64, bf16, f16: the first four dtypes index the tables

/// y (m, …) = bias + Σ_k weights[·, k] · x[offsets[k] + place], for as many places side by side as a vector has, from
/// each of `vectors` ones on.
struct WindowSums {
  int64_t m, k;
  const void *weights, *bias;  ///< packed; (m) or null
  const void* x;
  const int64_t* offsets;
  int64_t vectors;
  const int64_t* places;
  void* y;
  int64_t y_row;
};
/// sums (k, row) += Σ over places of x[image · step + offsets[k] + r · pitch + c] · dy (images · rows · cols, row),
/// place (image, r, c). `row` is a whole number of vectors.
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
  void (*products[2])(const WindowProducts&);
  void (*transpose[2])(const MatrixCopy&);
  /// From f32 (f64 for f64) to the dtype; accumulate adds.
  void (*put[kFloatCount])(const MatrixCopy&, bool accumulate);
  void (*every_other[2])(void* to, const void* from, int64_t n);  ///< to[i] = from[2 * i]
  int row_step;
  int vector[2];  ///< elements
};

}  // namespace shardgrad::cpu
