// The matrix products of the ladder's rungs K3 to K5, to be timed: n × n elements, 2·n³ operations, and at least 3·n²
// elements that move. Each kernel reads a part of 2·n³ elements: all (naive), 1/16 (tiled), 1/64 (many each, tensor
// cores).

#include "ladder.h"

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

// 1. One thread per element of c reads a row of a and a column of b.
__global__ void naive_kernel(float* c, const float* a, const float* b, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
  c[row * n + col] = sum;
}

// 2. The 256 threads of a block need the same 16 rows and 16 columns. Each brings one element of both to shared memory,
// and everybody reads it there, 16 times.
constexpr int kSide = 16;
__global__ void tiled_kernel(float* c, const float* a, const float* b, int n) {
  __shared__ float left[kSide][kSide], right[kSide][kSide];
  int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * kSide + y, col = blockIdx.x * kSide + x;
  float sum = 0;
  for (int depth = 0; depth < n; depth += kSide) {
    left[y][x] = a[row * n + depth + x];
    right[y][x] = b[(depth + y) * n + col];
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < kSide; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();  // and read, before they are overwritten
  }
  c[row * n + col] = sum;
}

// 3. A thread computes 4 × 4 elements, and a block 64 × 64: an element in shared memory serves 4 products of a thread
// from a register, and one in memory 64 of the block.
constexpr int kEach = 4, kTile = kSide * kEach;
__global__ void many_each_kernel(float* c, const float* a, const float* b, int n) {
  __shared__ float left[kSide][kTile], right[kSide][kTile];
  int y = threadIdx.y, x = threadIdx.x, row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile;
  float sums[kEach][kEach] = {};
  for (int depth = 0; depth < n; depth += kSide) {
    for (int i = 0; i < kEach; ++i) {
      left[x][y + i * kSide] = a[(row0 + y + i * kSide) * n + depth + x];
      right[y][x + i * kSide] = b[(depth + y) * n + col0 + x + i * kSide];
    }
    __syncthreads();
    for (int k = 0; k < kSide; ++k)
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] += left[k][y + i * kSide] * right[k][x + j * kSide];
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) c[(row0 + y + i * kSide) * n + col0 + x + j * kSide] = sums[i][j];
}

// 4. A block's warps compute 16 × 32 elements of c each, as four products on tensor cores. Elements are bf16, two in a
// register, neighbours along k; which of them a lane has for mma, kernels/cuda/gpu.h says.
constexpr int kPairs = kSide / 2, kPitch = kPairs + 4;  // registers of a row; then its eight rows lie in other banks
__device__ uint32_t pair(uint16_t low, uint16_t high) { return low | uint32_t(high) << 16; }
__global__ void tensor_kernel(float* c, const uint16_t* a, const uint16_t* b, int n) {
  __shared__ uint32_t left[kTile][kPitch], right[kTile][kPitch];  // rows of a, columns of b
  int thread = threadIdx.y * kSide + threadIdx.x, warp = thread / 32, group = thread % 32 / 4, t = thread % 4;
  int row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile, row = warp / 2 * 16 + group, first = warp % 2 * 32;
  float sums[4][4] = {};
  for (int depth = 0; depth < n; depth += kSide) {
    for (int e = thread; e < kTile * kPairs; e += kSide * kSide) {
      const uint16_t* across = a + (row0 + e / kPairs) * n + depth + e % kPairs * 2;
      left[e / kPairs][e % kPairs] = pair(across[0], across[1]);
      const uint16_t* down = b + (depth + e / kTile * 2) * n + col0 + e % kTile;
      right[e % kTile][e / kTile] = pair(down[0], down[n]);
    }
    __syncthreads();
    const uint32_t rows[4] = {left[row][t], left[row + 8][t], left[row][t + 4], left[row + 8][t + 4]};
    SG_UNROLL
    for (int j = 0; j < 4; ++j) {
      int col = first + j * 8 + group;
      const uint32_t columns[2] = {right[col][t], right[col][t + 4]};
      mma<bf16>(sums[j], rows, columns);
    }
    __syncthreads();
  }
  SG_UNROLL
  for (int j = 0; j < 4; ++j)
    for (int e = 0; e < 4; ++e) c[(row0 + row + e / 2 * 8) * n + col0 + first + j * 8 + t * 2 + e % 2] = sums[j][e];
}

// What stands in the kernel table: plain functions on views.
template <auto Kernel, int side, class T = float> void run(const Launch& how, OutView c, View a, View b) {
  unsigned n = unsigned(a.shape[0]), blocks = n / side;
  launch<Kernel>(how, {dim3(blocks, blocks), dim3(kSide, kSide)}, c.as<float>(), a.as<T>(), b.as<T>(), int(n));
}

constexpr DType kF32[] = {DType::f32}, kBf16[] = {DType::bf16};
const Registered registered[] = {
    add_kernel<run<naive_kernel, kSide>>(naive, kF32),
    add_kernel<run<tiled_kernel, kSide>>(tiled, kF32),
    add_kernel<run<many_each_kernel, kTile>>(many_each, kF32),
    add_kernel<run<tensor_kernel, kTile, uint16_t>>(tensor_cores, kBf16),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
