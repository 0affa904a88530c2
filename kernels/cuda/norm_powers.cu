// What the p-norm of gradients is summed from: |x|^p over blocks of 32, by the tree of neighbours in f64, which a
// warp's butterfly is. One warp per block of 32, or a thread block per node of 1024 blocks. Reads x once and writes 8
// bytes per block or node; about 7 operations in f64 per element.

#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class Op> __device__ double power(double value, double p) {
  double x = fabs(value);
  if (p == 1 || std::is_same_v<Op, Max>) return x;
  if (p == 2) return x * x;
  return p == 3 ? x * x * x : pow(x, p);
}

template <class Op, class T> __device__ double power_at(const T* x, int64_t i, int64_t n, double p) {
  return i < n ? power<Op>(convert<double>(load(x + i)), p) : 0;
}

template <class Op, class T> __global__ void block_powers_kernel(double* y, const T* x, int64_t n, double p) {
  int64_t i = thread_number();
  double joined = warp_reduce<Op>(power_at<Op>(x, i, n, p));
  if (i < n && i % kernels::kNormBlock == 0) y[i / kernels::kNormBlock] = joined;
}

// A thread block per node: its warps take 32 blocks at a time, a lane keeps the value of each, and joining the lanes
// gives one of 32 values, which the first warp joins. What lies after the end counts as 0, which changes no sum of
// powers and no maximum.
template <class Op, class T> __global__ void node_powers_kernel(double* y, const T* x, int64_t n, double p) {
  __shared__ double joined[32];
  int lane = int(threadIdx.x) % 32, warps = int(blockDim.x) / 32;
  int64_t begin = int64_t(blockIdx.x) * kernels::kNormNode;
  for (int part = int(threadIdx.x) / 32; part < 32; part += warps) {
    double mine = 0;
    for (int block = 0; block < 32; ++block) {
      double value = warp_reduce<Op>(power_at<Op>(x, begin + (part * 32 + block) * 32 + lane, n, p));
      if (block == lane) mine = value;
    }
    mine = warp_reduce<Op>(mine);
    if (lane == 0) joined[part] = mine;
  }
  __syncthreads();
  if (int(threadIdx.x) >= 32) return;
  double value = warp_reduce<Op>(joined[lane]);
  if (lane == 0) y[blockIdx.x] = value;
}

template <class Op, class T>
void launch_powers(const Launch& how, double* y, const T* x, int64_t n, double p, int64_t width) {
  if (width == kernels::kNormBlock)
    launch<block_powers_kernel<Op, T>>(how, {blocks_for(n), kBlock}, y, x, n, p);
  else
    launch<node_powers_kernel<Op, T>>(how, {unsigned((n + width - 1) / width), kBlock}, y, x, n, p);
}

void norm_powers(const Launch& how, OutView y, View x, double p, int64_t width) {
  static_assert(kernels::kNormBlock == 32 && kernels::kNormNode == 32 * 32 * 32,
                "a block is a warp's, a node is 32 * 32");
  SG_ASSERT(width == kernels::kNormBlock || width == kernels::kNormNode, "norm_powers: width ", width);
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      if (std::isinf(p))
        launch_powers<Max>(how, y.as<double>(), x.as<T>(), x.numel(), p, width);
      else
        launch_powers<Sum>(how, y.as<double>(), x.as<T>(), x.numel(), p, width);
    }
  });
}

const Registered registered = add_kernel<norm_powers>(kernels::norm_powers, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
