#pragma once
// What the own matrix products share, and the one for large products of 16-bit numbers.

#include <shardgrad/kernels/cuda/gelu.h>

namespace shardgrad::SG_DEVICE {

using kernels::Epilogue;

/// A matrix in memory; a transpose is its strides exchanged.
template <class T> struct Operand {
  const T* data;
  int64_t rows, cols, row_step, col_step, batch_step;
};

/// The element of c where a block's tile of `side` rows and columns begins.
struct Place {
  int64_t batch, row, col;
  __device__ Place(int64_t rows, int64_t cols, int side) {
    int64_t across = (cols + side - 1) / side, down = (rows + side - 1) / side;
    col = blockIdx.x % across * side;
    row = blockIdx.x / across % down * side;
    batch = blockIdx.x / across / down;
  }
};
/// Blocks for all tiles of c.
inline unsigned blocks_of(int64_t batches, int64_t rows, int64_t cols, int side) {
  return blocks_for(batches * blocks_for(rows, side) * blocks_for(cols, side), 1);
}

/// What becomes of the sum that belongs to an element of c.
template <class T> struct Finish {
  T *c, *pre;
  const T *bias, *x;  // x: where it is not positive, the result is 0
  int64_t rows, cols;
  Epilogue epilogue;
  bool accumulate, accumulate_pre;

  __device__ void operator()(int64_t batch, int64_t row, int64_t col, Compute<T> value) const {
    if (row >= rows || col >= cols) return;
    int64_t at = (batch * rows + row) * cols + col;
    if (bias) value += load(bias + col);
    if (pre) store(pre + at, value, accumulate_pre);
    if (x && load(x + at) <= 0) value = 0;
    if (epilogue == Epilogue::relu && value < 0) value = 0;
    if (epilogue == Epilogue::gelu_tanh) value = gelu_tanh(value);
    store(c + at, value, accumulate);
  }
};

/// c = a · b by tiles of 128 × 128 on tensor cores. False, having queued nothing, for a c that is smaller, and for
/// operands whose rows do not lie at multiples of 16 bytes.
template <class T>
bool product_by_tiles(const Launch& how, const Finish<T>& finish, const Operand<T>& a, const Operand<T>& b,
                      int64_t batches);
extern template bool product_by_tiles(const Launch&, const Finish<bf16>&, const Operand<bf16>&, const Operand<bf16>&,
                                      int64_t);
extern template bool product_by_tiles(const Launch&, const Finish<f16>&, const Operand<f16>&, const Operand<f16>&,
                                      int64_t);

}  // namespace shardgrad::SG_DEVICE
