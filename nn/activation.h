#pragma once
// Activations as modules, for Sequential; in a forward call the functions themselves.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

struct ReLU : Module {
  Tensor forward(const Tensor& x) { return relu(x); }
};

/// x · Φ(x), exactly or in the tanh form.
class GELU : public Module {
 public:
  explicit GELU(bool tanh_form = false) : tanh_form_(tanh_form) {}
  Tensor forward(const Tensor& x) { return gelu(x, tanh_form_); }

 private:
  bool tanh_form_;
};

struct Tanh : Module {
  Tensor forward(const Tensor& x) { return tanh(x); }
};

struct Sigmoid : Module {
  Tensor forward(const Tensor& x) { return sigmoid(x); }
};

/// x · σ(x), also called swish.
struct SiLU : Module {
  Tensor forward(const Tensor& x) { return silu(x); }
};

struct Softplus : Module {
  Tensor forward(const Tensor& x) { return softplus(x); }
};

/// softmax along a dimension.
class Softmax : public Module {
 public:
  explicit Softmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) { return softmax(x, dim_); }

 private:
  int dim_;
};

/// Its logarithm.
class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) { return log_softmax(x, dim_); }

 private:
  int dim_;
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double slope = 0.01) : slope_(slope) {}
  Tensor forward(const Tensor& x) { return leaky_relu(x, slope_); }

 private:
  double slope_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) { return elu(x, alpha_); }

 private:
  double alpha_;
};

}  // namespace shardgrad::nn
