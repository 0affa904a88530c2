#pragma once
// Loops of convolutions, of kernels/cpu/loops.h.

#include <cstddef>
#include <cstdint>

namespace shardgrad::cpu {

inline constexpr int kFloatCount = 4;  ///< f32, f64, bf16, f16: the first four dtypes index the tables

/// Weights (m, k), element (i, p) at i · step + p or, with `offsets`, + offsets[p]: columns [first, last), first a
/// multiple of `block`. `packed`, of all columns, takes round_up(m, row_step) · k elements.
struct WeightPacking {
  int64_t m, k, step;
  const void* weights;
  const int64_t* offsets;
  void* packed;
  int64_t first, last;
};
/// y (m, …) = bias + Σ_k weights[·, k] · x[offsets[k] + place], for as many places side by side as a vector has, from
/// each of `vectors` ones on. Of k only [first, last), first a multiple of `block`: y is added to where it is not 0.
/// With a count, only so many of one block: first + elements[i] at offsets[i].
struct WindowSums {
  static constexpr int64_t kEach = -1;
  int64_t m, first, last;
  const void *weights, *bias;  ///< packed; (m) or null
  const void* x;
  const int64_t* offsets;  ///< of `first` and those behind it
  const int32_t* elements = nullptr;
  int64_t count = kEach;
  int64_t vectors;
  const int64_t* places;
  void* y;
  int64_t y_row;
};
/// Places [row, last_row) × [col, last_col).
struct Places {
  int64_t row, last_row, col, last_col;
};
/// Element `element` of a window, `offset` from a place's beginning; other places than `seen`, which may go beyond
/// those that there are, see the padding there.
struct WindowElement {
  int64_t element, offset;
  Places seen;
};
/// sums (element, row) += Σ over places of x[image · step + offset + r · pitch + c] · dy (images · rows · cols, row),
/// place (image, r, c), for each of k elements. `row` is a whole number of vectors; columns of dy lie in panels of
/// `panel` vectors (the last one may have fewer), rows of a panel one behind the other.
struct WindowProducts {
  int64_t k, row;
  int64_t images, step, rows, cols, pitch;
  const void* x;
  const WindowElement* elements;
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
  bool (*pack[2])(const WeightPacking&);  ///< false if any weight is not finite
  void (*sums[2])(const WindowSums&);
  void (*products[2])(const WindowProducts&);
  void (*transpose[2])(const MatrixCopy&);
  /// From f32 (f64 for f64) to the dtype; accumulate adds.
  void (*put[kFloatCount])(const MatrixCopy&, bool accumulate);
  void (*every_other[2])(void* to, const void* from, int64_t n);  ///< to[i] = from[2 * i]
  int row_step, block, panel;
  int vector[2];  ///< elements
};

}  // namespace shardgrad::cpu
