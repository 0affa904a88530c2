// swiglu: y = silu(gate) · up, where a row of x holds the gates and then as many values up.
//
// swiglu           reads x and writes y: 3 elements moved per element of y, an exponential and 4 other operations.
// swiglu_backward  reads dy and x and writes dx: 5 elements moved per element of dy, 2 exponentials and about 12
// others.

#include <shardgrad/kernels/cuda/silu.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class T> __global__ void swiglu_kernel(T* y, const T* x, int64_t n, int64_t cols, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t gate = i + i / cols * cols;
  store(y + i, silu(load(x + gate)) * load(x + gate + cols), accumulate);
}

void swiglu(const Launch& how, OutView y, View x) {
  if (y.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<swiglu_kernel<T>>(how, {blocks_for(y.numel()), kBlock}, y.as<T>(), x.as<T>(), y.numel(), y.shape[-1],
                             y.beta != 0);
  });
}

template <class T>
__global__ void swiglu_backward_kernel(T* dx, const T* dy, const T* x, int64_t n, int64_t cols, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t gate = i + i / cols * cols;
  Compute<T> in = load(x + gate), up = load(x + gate + cols), d = load(dy + i);
  store(dx + gate, d * up * silu_slope(in), accumulate);
  store(dx + gate + cols, d * silu(in), accumulate);
}

void swiglu_backward(const Launch& how, OutView dx, View dy, View x) {
  if (dy.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<swiglu_backward_kernel<T>>(how, {blocks_for(dy.numel()), kBlock}, dx.as<T>(), dy.as<T>(), x.as<T>(),
                                      dy.numel(), dy.shape[-1], dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<swiglu>(kernels::swiglu, kFloats),
    add_kernel<swiglu_backward>(kernels::swiglu_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
