// 2·n³ operations on both rungs, and from memory 2·n³ elements on the first, 2·n³/16 on the second. The tutorial
// "your own kernel" explains them.

#include <bench/gpu_ladder.h>

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kSide = 16;

template <class T> __global__ void naive_kernel(T* c, const T* a, const T* b, int64_t n) {
  int64_t row = blockIdx.y * kSide + threadIdx.y, col = blockIdx.x * kSide + threadIdx.x;
  Compute<T> sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += load(a + row * n + k) * load(b + k * n + col);
  store(c + row * n + col, sum, false);
}

template <class T> __global__ void tiled_kernel(T* c, const T* a, const T* b, int64_t n) {
  __shared__ Compute<T> left[kSide][kSide], right[kSide][kSide];
  int y = int(threadIdx.y), x = int(threadIdx.x);
  int64_t row = blockIdx.y * kSide + y, col = blockIdx.x * kSide + x;
  Compute<T> sum = 0;
  for (int64_t depth = 0; depth < n; depth += kSide) {
    left[y][x] = load(a + row * n + depth + x);
    right[y][x] = load(b + (depth + y) * n + col);
    __syncthreads();
    for (int k = 0; k < kSide; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  store(c + row * n + col, sum, false);
}

Config squares(int64_t n) {
  unsigned blocks = blocks_for(n, kSide);
  return {dim3(blocks, blocks), dim3(kSide, kSide)};
}

void run_naive(const Launch& how, OutView c, View a, View b) {
  dispatch_floats(a.dtype, [&]<class T>() {
    launch<naive_kernel<T>>(how, squares(a.shape[0]), c.as<T>(), a.as<T>(), b.as<T>(), a.shape[0]);
  });
}
void run_tiled(const Launch& how, OutView c, View a, View b) {
  dispatch_floats(a.dtype, [&]<class T>() {
    launch<tiled_kernel<T>>(how, squares(a.shape[0]), c.as<T>(), a.as<T>(), b.as<T>(), a.shape[0]);
  });
}

const Registered registered[] = {
    add_kernel<run_naive>(bench::naive, kFloats),
    add_kernel<run_tiled>(bench::tiled, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
