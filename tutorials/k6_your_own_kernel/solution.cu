// The square of a relu, and its gradient, for every floating dtype; a program's own kernels. Each moves 2 (forward) or
// 3 (backward) elements per element.

#include <shardgrad/kernels/cuda/launch.h>
#include <shardgrad/tutorials/k6_your_own_kernel/kernels.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// x where it is not below 0, and NaN where it is NaN; else 0.
template <class C> __device__ C positive(C x) { return x < 0 ? C(0) : x; }

template <class T> __global__ void squared_relu_kernel(T* y, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  // TODO(you): where there is an element for this thread: load(x + i) has it in the type in which T is computed, and
  // store(y + i, value, accumulate) writes it, or adds it to what is there.
  if (i >= n) return;
  Compute<T> at = positive(load(x + i));
  store(y + i, at * at, accumulate);
  // end of TODO
}

template <class T>
__global__ void squared_relu_backward_kernel(T* dx, const T* dy, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  // TODO(you): dx = dy · 2x where x is not below 0, and 0 elsewhere.
  if (i >= n) return;
  store(dx + i, load(dy + i) * 2 * positive(load(x + i)), accumulate);
  // end of TODO
}

void squared_relu(const Launch& how, OutView y, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<squared_relu_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), y.beta != 0);
  });
}

void squared_relu_backward(const Launch& how, OutView dx, View dy, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<squared_relu_backward_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, dx.as<T>(), dy.as<T>(), x.as<T>(),
                                            x.numel(), dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<squared_relu>(squared_relu_slot, kFloats),
    add_kernel<squared_relu_backward>(squared_relu_backward_slot, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
