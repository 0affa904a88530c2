// Matrix products, where cuBLASLt does not make them: builds without it, what it has no algorithm for, the simulator.
//
// Both kernels bring tiles of a and b to shared memory, where each element is read once by the block and many times
// from there: 2·M·N·K operations, and M·N·K/32 elements moved from memory.
//   matmul_kernel         f32, f64: a block of 256 threads computes 64 × 64 elements of c, 4 × 4 per thread.
//   tensor_matmul_kernel  bf16, f16: a block of 4 warps computes as much, 32 × 32 per warp, on tensor cores. mma() adds
//                         the product of 16 × 16 by 16 × 8 elements that lie spread over the registers of a warp.
// Large ones of 16 bits go to matmul_tiles.cu, whose sums are made in the same order.

#include <shardgrad/kernels/cuda/matmul_tiles.h>
#include <shardgrad/kernels/cuda/tile_product.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::MatmulArgs;

// tile[k][i] = element (first + i, depth + k) of x seen as (outside, K), 0 beyond its edges. Neighbouring threads read
// along the dimension that is contiguous in memory.
template <class T, class C, int kDepth>
__device__ void bring(C (&tile)[kDepth][kTile + 1], const T* x, int64_t first, int64_t outside, int64_t outside_step,
                      int64_t depth, int64_t k_size, int64_t k_step) {
  for (int e = int(threadIdx.x); e < kTile * kDepth; e += int(blockDim.x)) {
    int i = k_step == 1 ? e / kDepth : e % kTile, k = k_step == 1 ? e % kDepth : e / kTile;
    bool inside = first + i < outside && depth + k < k_size;
    tile[k][i] = inside ? load(x + (first + i) * outside_step + (depth + k) * k_step) : C(0);
  }
}

template <class T> __global__ void matmul_kernel(Finish<T> finish, Operand<T> a, Operand<T> b) {
  using Tiles = WideTiles<T>;
  __shared__ Tiles tiles;
  Place place(a.rows, b.cols, kTile);
  a.data += place.batch * a.batch_step;
  b.data += place.batch * b.batch_step;
  typename Tiles::Sums sums = {};
  for (int64_t depth = 0; depth < a.cols; depth += Tiles::depth) {
    bring(tiles.at[0], a.data, place.row, a.rows, a.row_step, depth, a.cols, a.col_step);
    bring(tiles.at[1], b.data, place.col, b.cols, b.col_step, depth, a.cols, b.row_step);
    __syncthreads();
    tiles.add(sums, kTile, kTile);
    __syncthreads();
  }
  tiles.finish(sums,
               [&](int row, int col, Compute<T> sum) { finish(place.batch, place.row + row, place.col + col, sum); });
}

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

template <class T> __global__ void tensor_matmul_kernel(Finish<T> finish, Operand<T> a, Operand<T> b) {
  __shared__ NarrowTiles<T> tiles;
  Place place(a.rows, b.cols, kTile);
  a.data += place.batch * a.batch_step;
  b.data += place.batch * b.batch_step;
  int64_t rows = a.rows - place.row, cols = b.cols - place.col;
  typename NarrowTiles<T>::Sums sums = {};
  for (int64_t depth = 0; depth < a.cols; depth += kTensorDepth) {
    bring(tiles.at[0], a.data, place.row, a.rows, a.row_step, depth, a.cols, a.col_step);
    bring(tiles.at[1], b.data, place.col, b.cols, b.col_step, depth, a.cols, b.row_step);
    __syncthreads();
    tiles.add(sums, int(rows < kTile ? rows : kTile), int(cols < kTile ? cols : kTile));
    __syncthreads();
  }
  tiles.finish(sums, [&](int row, int col, float sum) { finish(place.batch, place.row + row, place.col + col, sum); });
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
        launch<tensor_matmul_kernel<T>>(how, {blocks, NarrowTiles<T>::block}, finish, left, right);
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
