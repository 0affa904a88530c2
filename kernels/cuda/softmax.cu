// softmax and log-softmax of rows, and their backward. One block per row; arithmetic in f32 (f64 for f64).
//
// softmax:           reads x three times (once from memory, then from the caches), writes y: 2 elements moved per
//                    element, 2 exponentials and 4 other operations.
// softmax_backward:  reads dy and y twice (once from memory), writes dx: 3 elements moved, 4 operations.

#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class T> __global__ void softmax_kernel(T* y, const T* x, int64_t cols, bool log, bool accumulate) {
  using C = Compute<T>;
  y += blockIdx.x * cols;
  x += blockIdx.x * cols;
  C top = Max::nothing<C>(), sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) top = Max()(top, load(x + c));
  top = block_reduce<Max>(top);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += std::exp(load(x + c) - top);
  sum = block_reduce<Sum>(sum);
  C log_sum = std::log(sum), scale = 1 / sum;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    C shifted = load(x + c) - top;
    store(y + c, log ? shifted - log_sum : std::exp(shifted) * scale, accumulate);
  }
}

void softmax(const Launch& how, OutView y, View x, bool log) {
  if (x.numel() == 0) return;
  int64_t cols = x.shape[-1];
  Config config{blocks_for(x.numel() / cols, 1), threads_for(cols)};
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<softmax_kernel<T>>(how, config, y.as<T>(), x.as<T>(), cols, log, y.beta != 0);
  });
}

// softmax: dx = y · (dy - Σ dy · y); log-softmax: dx = dy - exp(y) · Σ dy
template <class T>
__global__ void softmax_backward_kernel(T* dx, const T* dy, const T* y, int64_t cols, bool log, bool accumulate) {
  using C = Compute<T>;
  dx += blockIdx.x * cols;
  dy += blockIdx.x * cols;
  y += blockIdx.x * cols;
  C dot = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) dot += log ? load(dy + c) : load(dy + c) * load(y + c);
  dot = block_reduce<Sum>(dot);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    C g = load(dy + c), v = load(y + c);
    store(dx + c, log ? g - std::exp(v) * dot : v * (g - dot), accumulate);
  }
}

void softmax_backward(const Launch& how, OutView dx, View dy, View y, bool log) {
  if (y.numel() == 0) return;
  int64_t cols = y.shape[-1];
  Config config{blocks_for(y.numel() / cols, 1), threads_for(cols)};
  dispatch_floats(y.dtype, [&]<class T>() {
    launch<softmax_backward_kernel<T>>(how, config, dx.as<T>(), dy.as<T>(), y.as<T>(), cols, log, dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<softmax>(kernels::softmax, kFloats),
    add_kernel<softmax_backward>(kernels::softmax_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
