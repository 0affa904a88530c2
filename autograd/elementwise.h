#pragma once
// An elementwise operation of your own, from two functions of a number:
//
//     const auto softsign = elementwise(
//         "softsign", [](auto x) { return x / (1 + std::abs(x)); },          // y = f(x)
//         [](auto x) { auto d = 1 + std::abs(x); return 1 / (d * d); });     // df: its derivative
//     Tensor y = softsign(x);
//
// They are called with float (for f32, bf16 and f16) or double and compute in it, on several threads at once, and do
// not throw. An operation is made once, as a constant: its kernels are in the table for the rest of the program. It
// runs on devices cpu and acc. Where f and df are structs that GPUs can call, one line in a .cu file makes kernels for
// the simulator and GPUs of them too: kernels/cuda/add_elementwise.h. docs/extending.md tells how to certify it.

#include <string>
#include <utility>

#include <shardgrad/autograd/node.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/host_loop.h>

namespace shardgrad {

namespace detail {

template <class T, class F> void run_function(const Launch& how, OutView y, View x, F f) {
  kernels::host_loop(how, x.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto in = cpu::convert<cpu::Compute<T>>(x.as<T>()[i]);
      cpu::put_sum(y.as<T>()[i], cpu::Compute<T>(f(in)), y.beta != 0);
    }
  });
}

template <class T, class DF> void run_slope(const Launch& how, OutView dx, View dy, View x, DF df) {
  kernels::host_loop(how, x.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      using C = cpu::Compute<T>;
      cpu::put_sum(dx.as<T>()[i], cpu::convert<C>(dy.as<T>()[i]) * C(df(cpu::convert<C>(x.as<T>()[i]))), dx.beta != 0);
    }
  });
}

/// What the table holds on to.
template <class F, class DF> struct FunctionKernels {
  FunctionKernels(std::string op, F function, DF derivative)
      : name(std::move(op)), backward_name(name + "_backward"), f(function), df(derivative) {
    add<float>(DType::f32), add<double>(DType::f64), add<bf16>(DType::bf16), add<f16>(DType::f16);
  }
  template <class T> void add(DType dtype) {
    forward.add(DeviceKind::cpu, dtype, run_function<T, F>);
    backward.add(DeviceKind::cpu, dtype, run_slope<T, DF>);
  }
  std::string name, backward_name;
  F f;
  DF df;
  Slot<OutView, View, F> forward{name.c_str()};
  Slot<OutView, View, View, DF> backward{backward_name.c_str()};
};

template <class F, class DF> struct FunctionNode final : Node {
  const FunctionKernels<F, DF>* kernels = nullptr;
  const char* name() const override { return kernels->name.c_str(); }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels->backward, dy[0], dx[0].write(), dy[0], saved(0), kernels->df);
  }
};

/// Throws Error(input) unless x is of a floating dtype, Error(missing) where its device has no kernel, with the remedy.
void check_function(const SlotBase& kernel, const Tensor& x);

}  // namespace detail

template <class F, class DF> class Elementwise {
 public:
  Elementwise(std::string name, F f, DF df) : kernels_(new detail::FunctionKernels<F, DF>(std::move(name), f, df)) {}

  Tensor operator()(const Tensor& x) const {
    detail::check_function(kernels_->forward, x);
    Tensor y = empty_like(x, kernels_->forward.name());
    launch(kernels_->forward, x, out(y), x, kernels_->f);
    if (auto* node = record<detail::FunctionNode<F, DF>>(y, x)) {
      node->kernels = kernels_;
      node->save(x);
    }
    return y;
  }

  const std::string& name() const { return kernels_->name; }
  /// The slots, for kernels of other devices.
  Slot<OutView, View, F>& forward() const { return kernels_->forward; }
  Slot<OutView, View, View, DF>& backward() const { return kernels_->backward; }

 private:
  detail::FunctionKernels<F, DF>* kernels_;  // of the whole program
};

/// The operation y = f(x), whose gradient is dx = dy · df(x).
template <class F, class DF> Elementwise<F, DF> elementwise(std::string name, F f, DF df) {
  return {std::move(name), f, df};
}

}  // namespace shardgrad
