// Matrix products, where cuBLASLt does not make them: builds without it, what it has no algorithm for, the simulator.
//
// Both kernels bring tiles of a and b to shared memory, where each element is read once by the block and many times
// from there: 2·M·N·K operations, and M·N·K/32 elements moved from memory.
//   matmul_kernel         f32, f64: a block of 256 threads computes 64 × 64 elements of c, 4 × 4 per thread.
//   tensor_matmul_kernel  bf16, f16: a block of 4 warps computes as much, 32 × 32 per warp, on tensor cores. mma() adds
//                         the product of 16 × 16 by 16 × 8 elements that lie spread over the registers of a warp.
// Large ones of 16 bits go to matmul_tiles.cu, whose sums are made in the same order.

#include <shardgrad/kernels/cuda/matmul_tiles.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::MatmulArgs;

constexpr int kTile = 64, kDepth = 16, kEach = 4, kSide = kTile / kEach;

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

template <class T, class C = Compute<T>> __global__ void matmul_kernel(Finish<T> finish, Operand<T> a, Operand<T> b) {
  __shared__ C tiles[2][kDepth][kTile + 1];
  Place place(a.rows, b.cols, kTile);
  a.data += place.batch * a.batch_step;
  b.data += place.batch * b.batch_step;
  int row = int(threadIdx.x) / kSide, col = int(threadIdx.x) % kSide;
  C sums[kEach][kEach] = {};
  for (int64_t depth = 0; depth < a.cols; depth += kDepth) {
    bring(tiles[0], a.data, place.row, a.rows, a.row_step, depth, a.cols, a.col_step);
    bring(tiles[1], b.data, place.col, b.cols, b.col_step, depth, a.cols, b.row_step);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      C x[kEach], y[kEach];
      for (int i = 0; i < kEach; ++i) x[i] = tiles[0][k][row + i * kSide];
      for (int j = 0; j < kEach; ++j) y[j] = tiles[1][k][col + j * kSide];
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  // Through shared memory, half of the rows at a time: the sums stay in registers until here, and neighbouring threads
  // write neighbours.
  SG_UNROLL
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < kEach / 2; ++i)
      for (int j = 0; j < kEach; ++j) tiles[i][row][col + j * kSide] = sums[half * kEach / 2 + i][j];
    __syncthreads();
    for (int e = int(threadIdx.x); e < kTile / 2 * kTile; e += int(blockDim.x)) {
      int down = e / kTile, across = e % kTile;
      finish(place.batch, place.row + half * kTile / 2 + down, place.col + across,
             tiles[down / kDepth][down % kDepth][across]);
    }
    __syncthreads();
  }
}

constexpr int kTensorBlock = 128, kTensorDepth = 32, kPack = 8;
constexpr int kPitch = kTensorDepth + 8;  // elements from row to row: the eight rows that mma reads lie in other banks
struct alignas(kPack * 2) Tile {
  uint16_t at[kTile][kPitch];
};

// tile.at[i][k] = the bits of element (first + i, depth + k) of x seen as (outside, K), 0 beyond its edges; eight of
// them in one access where they are neighbours in memory.
template <class T>
__device__ void bring(Tile& tile, const T* x, int64_t first, int64_t outside, int64_t outside_step, int64_t depth,
                      int64_t k_size, int64_t k_step) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(x);
  auto address = reinterpret_cast<uintptr_t>(bits);
  bool packed = k_step == 1 && address % (kPack * 2) == 0 && outside_step % kPack == 0;
  for (int e = int(threadIdx.x); e < kTile * kTensorDepth / kPack; e += int(blockDim.x)) {
    int i = packed ? e / (kTensorDepth / kPack) : e % kTile, k = packed ? e % (kTensorDepth / kPack) : e / kTile;
    k *= kPack;
    const uint16_t* from = bits + (first + i) * outside_step + (depth + k) * k_step;
    Pack<uint16_t, kPack> pack = {};
    if (packed && first + i < outside && depth + k + kPack <= k_size)
      pack = load_pack<kPack>(from);
    else
      for (int p = 0; p < kPack; ++p)
        if (first + i < outside && depth + k + p < k_size) pack.at[p] = from[p * k_step];
    store_pack(&tile.at[i][k], pack);
  }
}

/// Two neighbours of a tile, as mma wants them.
__device__ inline uint32_t pair(const Tile& tile, int row, int k) {
  Pack<uint16_t, 2> two = load_pack<2>(&tile.at[row][k]);
  return uint32_t(two.at[0]) | uint32_t(two.at[1]) << 16;
}

template <class T> __global__ void tensor_matmul_kernel(Finish<T> finish, Operand<T> a, Operand<T> b) {
  __shared__ Tile left, right;
  __shared__ float result[kTile][kTile + 1];
  Place place(a.rows, b.cols, kTile);
  a.data += place.batch * a.batch_step;
  b.data += place.batch * b.batch_step;
  int warp = int(threadIdx.x) / warpSize, lane = int(threadIdx.x) % warpSize, group = lane / 4, two = lane % 4 * 2;
  int row0 = warp / 2 * 32, col0 = warp % 2 * 32;
  bool idle = place.row + row0 >= a.rows || place.col + col0 >= b.cols;  // nothing of this warp's part is in c
  float sums[2][4][4] = {};  // 16 rows of 2, 8 columns of 4: the four of this lane
  for (int64_t depth = 0; depth < a.cols; depth += kTensorDepth) {
    bring(left, a.data, place.row, a.rows, a.row_step, depth, a.cols, a.col_step);
    bring(right, b.data, place.col, b.cols, b.col_step, depth, a.cols, b.row_step);
    __syncthreads();
    for (int k = two; k < kTensorDepth && !idle; k += 16)
      for (int j = 0; j < 4; ++j) {
        int col = col0 + j * 8 + group;
        const uint32_t y[2] = {pair(right, col, k), pair(right, col, k + 8)};
        for (int i = 0; i < 2; ++i) {
          int row = row0 + i * 16 + group;
          const uint32_t x[4] = {pair(left, row, k), pair(left, row + 8, k), pair(left, row, k + 8),
                                 pair(left, row + 8, k + 8)};
          mma<T>(sums[i][j], x, y);
        }
      }
    __syncthreads();
  }
  // Through shared memory, so that neighbouring threads write neighbours, and the sums stay in registers until here.
  SG_UNROLL
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 4; ++e) result[row0 + i * 16 + group + e / 2 * 8][col0 + j * 8 + two + e % 2] = sums[i][j][e];
  __syncthreads();
  for (int e = int(threadIdx.x); e < kTile * kTile; e += int(blockDim.x)) {
    int row = e / kTile, col = e % kTile;
    finish(place.batch, place.row + row, place.col + col, result[row][col]);
  }
}

template <class T> Operand<T> operand(const View& x, bool transposed) {
  int64_t rows = x.shape[-2], cols = x.shape[-1], batch = x.shape.ndim() > 2 ? rows * cols : 0;
  if (transposed) return {x.as<T>(), cols, rows, 1, cols, batch};
  return {x.as<T>(), rows, cols, cols, 1, batch};
}

// With x, c is 0 where x is not positive.
void product(const Launch& how, OutView c, OutView pre, View a, View b, View bias, View x, MatmulArgs args) {
  dispatch_floats(a.dtype, [&]<class T>() {
    Operand<T> left = operand<T>(a, args.trans_a), right = operand<T>(b, args.trans_b);
    int64_t m = left.rows, n = right.cols, batches = c.numel() / (m * n);
    Finish<T> finish{c.as<T>(), pre.as<T>(), bias.as<T>(), x.as<T>(), m, n, args.epilogue, c.beta != 0, pre.beta != 0};
    unsigned blocks = blocks_of(batches, m, n, kTile);
    if constexpr (sizeof(T) == 2) {
      if (!product_by_tiles(how, finish, left, right, batches))
        launch<tensor_matmul_kernel<T>>(how, {blocks, kTensorBlock}, finish, left, right);
    } else
      launch<matmul_kernel<T>>(how, {blocks, kBlock}, finish, left, right);
  });
}

void matmul(const Launch& how, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  if (c.numel() == 0 || library_product(how, c, pre, a, b, bias, args)) return;
  product(how, c, pre, a, b, bias, {}, args);
}

void linear_backward_input(const Launch& how, OutView dx, View dy, View w, View x, View mask) {
  if (dx.numel() == 0 || library_backward_input(how, dx, dy, w, x, mask)) return;
  product(how, dx, {}, dy, w, {}, x, {});
}

void linear_backward_weight(const Launch& how, OutView dw, OutView dbias, View dy, View x) {
  if (dw.defined() && library_backward_weight(how, dw, dbias, dy, x)) return;
  if (dbias.defined()) kernels::sum_to.find(kThisDevice, dy.dtype)(how, dbias, dy);
  if (dw.defined()) matmul(how, dw, {}, dy, x, {}, {.trans_a = true});
}

const Registered registered[] = {
    add_kernel<matmul>(kernels::matmul, kFloats),
    add_kernel<linear_backward_input>(kernels::linear_backward_input, kFloats),
    add_kernel<linear_backward_weight>(kernels::linear_backward_weight, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
