// What the p-norm of gradients is summed from: |x|^p over blocks of 32, by the tree of neighbours in f64, which a
// warp's butterfly is. One warp per block of 32. Reads x once and writes 8 bytes per block; about 7 operations in f64
// per element.

#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class Op> __device__ double power(double value, double p) {
  double x = fabs(value);
  if (p == 1 || std::is_same_v<Op, Max>) return x;
  if (p == 2) return x * x;
  return p == 3 ? x * x * x : pow(x, p);
}

template <class Op, class T> __global__ void block_powers_kernel(double* y, const T* x, int64_t n, double p) {
  int64_t i = thread_number();
  double joined = warp_reduce<Op>(i < n ? power<Op>(convert<double>(load(x + i)), p) : 0);
  if (i < n && i % kernels::kNormBlock == 0) y[i / kernels::kNormBlock] = joined;
}

void block_powers(const Launch& how, OutView y, View x, double p) {
  static_assert(kernels::kNormBlock == 32, "a block is a warp's");
  int64_t n = x.numel();
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      if (std::isinf(p))
        launch<block_powers_kernel<Max, T>>(how, {blocks_for(n), kBlock}, y.as<double>(), x.as<T>(), n, p);
      else
        launch<block_powers_kernel<Sum, T>>(how, {blocks_for(n), kBlock}, y.as<double>(), x.as<T>(), n, p);
    }
  });
}

const Registered registered = add_kernel<block_powers>(kernels::block_powers, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
