// A matrix product, three times over, and once wrong: n × n elements, 2·n³ operations, and at least 3·n² elements that
// move. Each kernel reads a part of 2·n³ elements, and counts it: all (naive), 1/16 (tiled), 1/64 (many each).

#include "ladder.h"

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

using Count = unsigned long long;

// 1. One thread per element of c reads a row of a and a column of b.
__global__ void naive_kernel(float* c, Count* reads, const float* a, const float* b, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
  c[row * n + col] = sum;
  atomicAdd(reads, 2 * n);
}

// 2. The 256 threads of a block need the same 16 rows and 16 columns. Each brings one element of both to shared memory,
// and everybody reads it there, 16 times.
constexpr int kSide = 16;
template <bool barrier> __global__ void tiled_kernel(float* c, Count* reads, const float* a, const float* b, int n) {
  __shared__ float left[kSide][kSide], right[kSide][kSide];
  int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * kSide + y, col = blockIdx.x * kSide + x;
  float sum = 0;
  for (int depth = 0; depth < n; depth += kSide) {
    left[y][x] = a[row * n + depth + x];
    right[y][x] = b[(depth + y) * n + col];
    if (barrier) __syncthreads();  // the tiles are complete
    for (int k = 0; k < kSide; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();  // and read, before they are overwritten
  }
  c[row * n + col] = sum;
  atomicAdd(reads, 2 * n / kSide);
}

// 3. A thread computes 4 × 4 elements, and a block 64 × 64: an element in shared memory serves 4 products of a thread
// from a register, and one in memory 64 of the block.
constexpr int kEach = 4, kTile = kSide * kEach;
__global__ void many_each_kernel(float* c, Count* reads, const float* a, const float* b, int n) {
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
  atomicAdd(reads, 2 * kEach * n / kSide);
}

// What stands in the kernel table: plain functions on views.
template <auto Kernel, int side> void run(const Launch& how, OutView c, OutView reads, View a, View b) {
  unsigned n = unsigned(a.shape[0]), blocks = n / side;
  launch<Kernel>(how, {dim3(blocks, blocks), dim3(kSide, kSide)}, c.as<float>(), reads.as<Count>(), a.as<float>(),
                 b.as<float>(), int(n));
}

constexpr DType kOnly[] = {DType::f32};
const Registered registered[] = {
    add_kernel<run<naive_kernel, kSide>>(naive, kOnly),
    add_kernel<run<tiled_kernel<true>, kSide>>(tiled, kOnly),
    add_kernel<run<many_each_kernel, kTile>>(many_each, kOnly),
    add_kernel<run<tiled_kernel<false>, kSide>>(without_barrier, kOnly),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
