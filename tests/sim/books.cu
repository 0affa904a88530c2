#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <shardgrad/kernels/cuda/launch.h>

#include "tests/sim/words.h"

namespace cg = cooperative_groups;

namespace shardgrad::test {
namespace {

__global__ void vector_add(float4* c, const float4* __restrict__ a, const float4* __restrict__ b, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    float4 u = __ldg(&a[i]), v = b[i];
    c[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w);
  }
}

#define TILE 16
__global__ void tiled_product(float* C, const float* A, const float* B, int n) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < (n + TILE - 1) / TILE; ++k) {
    int across = k * TILE + threadIdx.x, down = k * TILE + threadIdx.y;
    As[threadIdx.y][threadIdx.x] = row < n && across < n ? A[row * n + across] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = down < n && col < n ? B[down * n + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < n && col < n) C[row * n + col] = sum;
}

__inline__ __device__ float warp_sum(float value) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
  return value;
}
__global__ void __launch_bounds__(256) block_sums(float* sums, const float* x, int n) {
  __shared__ float partial[32];
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += x[i];
  sum = warp_sum(sum);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = threadIdx.x < blockDim.x / warpSize ? partial[lane] : 0;
  if (warp == 0) sum = warp_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void histogram(unsigned int* counts, const unsigned char* x, int n) {
  __shared__ unsigned int bins[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  const uchar4* four = reinterpret_cast<const uchar4*>(x);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += blockDim.x * gridDim.x) {
    uchar4 v = four[i];
    atomicAdd(&bins[v.x], 1);
    atomicAdd(&bins[v.y], 1);
    atomicAdd(&bins[v.z], 1);
    atomicAdd(&bins[v.w], 1);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&counts[b], bins[b]);
}

// A warp has a row.
__global__ void softmax(float* y, const float* x, int rows, int columns) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
  if (row >= rows) return;
  x += row * columns, y += row * columns;
  float largest = -INFINITY, sum = 0;
  for (int i = warp.thread_rank(); i < columns; i += warp.size()) largest = fmaxf(largest, x[i]);
  largest = cg::reduce(warp, largest, cg::greater<float>());
  for (int i = warp.thread_rank(); i < columns; i += warp.size()) sum += __expf(x[i] - largest);
  sum = cg::reduce(warp, sum, cg::plus<float>());
  for (int i = warp.thread_rank(); i < columns; i += warp.size()) y[i] = __fdividef(__expf(x[i] - largest), sum);
}

#define RADIUS 3
__constant__ float taps[2 * RADIUS + 1];
__global__ void stencil(float* y, const float* x, int n) {
  __shared__ float tile[128 + 2 * RADIUS];
  int i = blockIdx.x * blockDim.x + threadIdx.x, at = threadIdx.x + RADIUS;
  tile[at] = i < n ? x[i] : 0;
  if (threadIdx.x < RADIUS) {
    tile[at - RADIUS] = i >= RADIUS ? x[i - RADIUS] : 0;
    tile[at + blockDim.x] = i + int(blockDim.x) < n ? x[i + blockDim.x] : 0;
  }
  __syncthreads();
  float sum = 0;
  for (int k = -RADIUS; k <= RADIUS; ++k) sum += taps[k + RADIUS] * tile[at + k];
  if (i < n) y[i] = sum;
}

// The sum of a group of any kind, in memory that it shares.
__device__ __noinline__ int group_sum(cg::thread_group g, int* shared, int value) {
  int rank = g.thread_rank();
  for (int i = g.size() / 2; i > 0; i /= 2) {
    shared[rank] = value;
    g.sync();
    if (rank < i) value += shared[rank + i];
    g.sync();
  }
  return value;
}
__global__ void group_sums(int* of_block, int* of_tiles, int* running, const int* x) {
  __shared__ int shared[256];
  auto block = cg::this_thread_block();
  int rank = block.thread_rank(), sum = group_sum(block, shared, x[rank]);
  if (rank == 0) *of_block = sum;
  block.sync();
  auto tile = cg::tiled_partition(block, 16);
  sum = group_sum(tile, shared + rank / 16 * 16, x[rank]);
  if (tile.thread_rank() == 0) of_tiles[rank / 16] = sum;
  running[rank] = cg::inclusive_scan(cg::tiled_partition<32>(block), x[rank]);
}

__global__ void half_axpy(half2* y, const half2* x, float alpha, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__float2half2_rn(alpha), x[i], y[i]);
}

const Launch how;

}  // namespace

using sim::launch;

void run_vector_add(float* c, const float* a, const float* b, int n) {
  launch<vector_add>(how, {2, 64}, reinterpret_cast<float4*>(c), reinterpret_cast<const float4*>(a),
                     reinterpret_cast<const float4*>(b), n / 4);
}
void run_tiled_product(float* c, const float* a, const float* b, int n) {
  unsigned tiles = unsigned(n + TILE - 1) / TILE;
  launch<tiled_product>(how, {dim3(tiles, tiles), dim3(TILE, TILE)}, c, a, b, n);
}
void run_block_sums(float* sums, const float* x, int n, int blocks) {
  launch<block_sums>(how, {unsigned(blocks), 256}, sums, x, n);
}
void run_histogram_of_bytes(unsigned* counts, const unsigned char* x, int n) {
  launch<histogram>(how, {3, 64}, counts, x, n);
}
void run_softmax(float* y, const float* x, int rows, int columns) {
  launch<softmax>(how, {unsigned(rows + 3) / 4, 128}, y, x, rows, columns);
}
void run_stencil(float* y, const float* x, const float* weights, int n) {
  if (weights) cudaMemcpyToSymbolAsync(taps, weights, sizeof(taps));
  launch<stencil>(how, {unsigned(n + 127) / 128, 128}, y, x, n);
}
void copy_weights(const float* weights, size_t count, size_t from) {
  cudaMemcpyToSymbolAsync(taps, weights, count * sizeof(float), from * sizeof(float));
}
void run_group_sums(int* of_block, int* of_tiles, int* running, const int* x) {
  launch<group_sums>(how, {1, 256}, of_block, of_tiles, running, x);
}
void run_half_axpy(unsigned short* y, const unsigned short* x, float alpha, int n) {
  launch<half_axpy>(how, {unsigned(n / 2 + 127) / 128, 128}, reinterpret_cast<half2*>(y),
                    reinterpret_cast<const half2*>(x), alpha, n / 2);
}

}  // namespace shardgrad::test
