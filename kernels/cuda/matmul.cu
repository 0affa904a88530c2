// c = epilogue(op(a) · op(b) + bias), tiled in shared memory. Serves builds without cuBLAS, what cuBLAS
// has no algorithm for, and the simulator.
//
// A block of 256 threads computes 64 × 64 elements of c, 4 × 4 per thread. For every 16 of K it brings 64 × 16 elements
// of a and of b to shared memory, each read once by the block and 64 times from there: 2·M·N·K operations, and
// M·N·K/32 elements moved from memory.

#include <shardgrad/kernels/cuda/gelu.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::Epilogue;
using kernels::MatmulArgs;

constexpr int kTile = 64, kDepth = 16, kEach = 4, kSide = kTile / kEach;

/// A matrix in memory; a transpose is its strides exchanged.
template <class T> struct Operand {
  const T* data;
  int64_t rows, cols, row_step, col_step, batch_step;
};

template <class C> __device__ C finish(C value, Epilogue epilogue) {
  if (epilogue == Epilogue::relu) return value < 0 ? C(0) : value;
  return epilogue == Epilogue::gelu_tanh ? gelu_tanh(value) : value;
}

// tile[k][i] = element (first + i, depth + k) of x seen as (outside, K), 0 beyond its edges. Neighbouring threads read
// along the dimension that is contiguous in memory.
template <class T, class C>
__device__ void bring(C (&tile)[kDepth][kTile + 1], const T* x, int64_t first, int64_t outside, int64_t outside_step,
                      int64_t depth, int64_t k_size, int64_t k_step) {
  for (int e = int(threadIdx.x); e < kTile * kDepth; e += int(blockDim.x)) {
    int i = k_step == 1 ? e / kDepth : e % kTile, k = k_step == 1 ? e % kDepth : e / kTile;
    bool inside = first + i < outside && depth + k < k_size;
    tile[k][i] = inside ? load(x + (first + i) * outside_step + (depth + k) * k_step) : C(0);
  }
}

template <class T, class C = Compute<T>>
__global__ void matmul_kernel(T* c, T* pre, Operand<T> a, Operand<T> b, const T* bias, Epilogue epilogue,
                              bool accumulate, bool accumulate_pre) {
  __shared__ C left[kDepth][kTile + 1], right[kDepth][kTile + 1];
  a.data += blockIdx.z * a.batch_step;
  b.data += blockIdx.z * b.batch_step;
  int64_t row0 = int64_t(blockIdx.y) * kTile, col0 = int64_t(blockIdx.x) * kTile, m = a.rows, n = b.cols,
          k_size = a.cols;
  int row = int(threadIdx.x) / kSide, col = int(threadIdx.x) % kSide;
  C sums[kEach][kEach] = {};
  for (int64_t depth = 0; depth < k_size; depth += kDepth) {
    bring(left, a.data, row0, m, a.row_step, depth, k_size, a.col_step);
    bring(right, b.data, col0, n, b.col_step, depth, k_size, b.row_step);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      C x[kEach], y[kEach];
      for (int i = 0; i < kEach; ++i) x[i] = left[k][row + i * kSide];
      for (int j = 0; j < kEach; ++j) y[j] = right[k][col + j * kSide];
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      int64_t r = row0 + row + i * kSide, s = col0 + col + j * kSide, at = (int64_t(blockIdx.z) * m + r) * n + s;
      if (r >= m || s >= n) continue;
      C value = sums[i][j] + (bias ? load(bias + s) : C(0));
      if (pre) store(pre + at, value, accumulate_pre);
      store(c + at, finish(value, epilogue), accumulate);
    }
}

template <class T> Operand<T> operand(const View& x, bool transposed) {
  int64_t rows = x.shape[-2], cols = x.shape[-1], batch = x.shape.ndim() > 2 ? rows * cols : 0;
  if (transposed) return {x.as<T>(), cols, rows, 1, cols, batch};
  return {x.as<T>(), rows, cols, cols, 1, batch};
}

void matmul(const Launch& how, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  if (c.numel() == 0 || library_product(how, c, pre, a, b, bias, args)) return;
  int64_t m = c.shape[-2], n = c.shape[-1], batches = c.numel() / (m * n);
  SG_CHECK(batches < 65536 && m < 65536 * kTile, "matmul: ", batches, " products of ", m, " rows; this kernel takes ",
           "fewer than 65536 products and 4194304 rows");
  Config config{{blocks_for(n, kTile), blocks_for(m, kTile), unsigned(batches)}, kBlock};
  dispatch_floats(a.dtype, [&]<class T>() {
    launch<matmul_kernel<T>>(how, config, c.as<T>(), pre.as<T>(), operand<T>(a, args.trans_a),
                             operand<T>(b, args.trans_b), bias.as<T>(), args.epilogue, c.beta != 0, pre.beta != 0);
  });
}

const Registered registered = add_kernel<matmul>(kernels::matmul, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
