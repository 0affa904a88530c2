#pragma once

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// y = activation(x · weightᵀ + bias). x: (…, in), y: (…, out), weight: (out, in), bias: (out).
/// Initialised like PyTorch's: weight and bias uniform in ±1/√in.
class Linear : public Module {
 public:
  Tensor weight, bias;  ///< bias is undefined without one

  Linear(int64_t in, int64_t out, bool with_bias = true, Activation activation = Activation::none)
      : weight(param("weight", {out, in}, init::kaiming_uniform(std::sqrt(5.0)))), activation_(activation) {
    double bound = in > 0 ? 1 / std::sqrt(double(in)) : 0;
    if (with_bias) bias = param("bias", {out}, init::uniform(-bound, bound));
  }
  Tensor forward(const Tensor& x) { return linear(x, weight, bias, activation_); }

 private:
  Activation activation_;
};

}  // namespace shardgrad::nn
