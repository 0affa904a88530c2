#pragma once

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// How the parameters of a Linear begin.
struct LinearInit {
  Init weight, bias = init::zeros();
};

/// y = activation(x · weightᵀ + bias). x: (…, in), y: (…, out), weight: (out, in), bias: (out).
class Linear : public Module {
 public:
  Tensor weight, bias;  ///< bias is undefined without one

  /// Initialised like PyTorch's: weight and bias uniform in ±1/√in.
  Linear(int64_t in, int64_t out, bool with_bias = true, Activation activation = Activation::none)
      : Linear(in, out, with_bias, activation, like_pytorch(in)) {}
  Linear(int64_t in, int64_t out, bool with_bias, Activation activation, const LinearInit& init)
      : weight(param("weight", {out, in}, init.weight)), activation_(activation) {
    if (with_bias) bias = param("bias", {out}, init.bias);
  }
  Tensor forward(const Tensor& x) { return linear(x, weight, bias, activation_); }

 private:
  static LinearInit like_pytorch(int64_t in) {
    double bound = in > 0 ? 1 / std::sqrt(double(in)) : 0;
    return {init::kaiming_uniform(std::sqrt(5.0)), init::uniform(-bound, bound)};
  }
  Activation activation_;
};

}  // namespace shardgrad::nn
