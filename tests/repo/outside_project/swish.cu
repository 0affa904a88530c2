// Swish's kernels, and two that are offered in the place of the built-in sigmoid; one of them is wrong on purpose.
// Each moves 2 (forward) or 3 (backward) elements per element, with about 20 operations for the exponential.

#include "swish.h"

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class T> __global__ void swish_kernel(T* y, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Compute<T> in = load(x + i);
  store(y + i, in / (1 + exp(-in)), accumulate);
}

template <class T> __global__ void swish_backward_kernel(T* dx, const T* dy, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Compute<T> in = load(x + i), s = 1 / (1 + exp(-in));
  store(dx + i, load(dy + i) * s * (1 + in * (1 - s)), accumulate);
}

template <class T> __global__ void sigmoid_kernel(T* y, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i < n) store(y + i, 1 / (1 + exp(-load(x + i))), accumulate);
}

template <class T> __global__ void one_too_many_kernel(T* y, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i <= n) store(y + i, 1 / (1 + exp(-load(x + i))), accumulate);
}

void swish(const Launch& how, OutView y, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<swish_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), y.beta != 0);
  });
}

void swish_backward(const Launch& how, OutView dx, View dy, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<swish_backward_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, dx.as<T>(), dy.as<T>(), x.as<T>(), x.numel(),
                                     dx.beta != 0);
  });
}

void sigmoid(const Launch& how, OutView y, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<sigmoid_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), y.beta != 0);
  });
}

void one_too_many(const Launch& how, OutView y, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<one_too_many_kernel<T>>(how, {blocks_for(x.numel() + 1), kBlock}, y.as<T>(), x.as<T>(), x.numel(),
                                   y.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<swish>(outside::swish_slot, kFloats),
    add_kernel<swish_backward>(outside::swish_backward_slot, kFloats),
    offer_kernel<sigmoid>("mine", kernels::sigmoid, kFloats),
    offer_kernel<one_too_many>("one_too_many", kernels::sigmoid, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
