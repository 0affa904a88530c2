#pragma once
// Kernels for the simulator and for GPUs of an operation that elementwise() of autograd/elementwise.h has made. Its
// functions are structs whose operator() is `__host__ __device__`, and one line of a .cu file enters them:
//
//     const Registered registered = add_elementwise(outside::softsign);
//
// They move two elements per element in forward, three in backward.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class T, class F> __global__ void function_kernel(T* y, const T* x, int64_t n, bool accumulate, F f) {
  int64_t i = thread_number();
  if (i < n) store(y + i, Compute<T>(f(load(x + i))), accumulate);
}

template <class T, class DF>
__global__ void slope_kernel(T* dx, const T* dy, const T* x, int64_t n, bool accumulate, DF df) {
  int64_t i = thread_number();
  if (i < n) store(dx + i, load(dy + i) * Compute<T>(df(load(x + i))), accumulate);
}

template <class F> void run_function(const Launch& how, OutView y, View x, F f) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<function_kernel<T, F>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), y.beta != 0,
                                  f);
  });
}

template <class DF> void run_slope(const Launch& how, OutView dx, View dy, View x, DF df) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<slope_kernel<T, DF>>(how, {blocks_for(x.numel()), kBlock}, dx.as<T>(), dy.as<T>(), x.as<T>(), x.numel(),
                                dx.beta != 0, df);
  });
}

template <class F, class DF>
Registered add_functions(Slot<OutView, View, F>& forward, Slot<OutView, View, View, DF>& backward) {
  add_kernel<run_function<F>>(forward, kFloats);
  return add_kernel<run_slope<DF>>(backward, kFloats);
}

/// For this file's device.
template <class Operation> Registered add_elementwise(const Operation& operation) {
  return add_functions(operation.forward(), operation.backward());
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
