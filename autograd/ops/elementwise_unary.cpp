#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Affine final : Node {
  const char* name() const override { return "affine"; }
  double scale = 1;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    if (scale == 1)
      dx[0].alias(dy[0]);
    else
      launch(kernels::affine, dy[0], dx[0].write(), dy[0], scale, 0.0);
  }
};

struct Neg final : Node {
  const char* name() const override { return "neg"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::neg, dy[0], dx[0].write(), dy[0]);
  }
};

struct Exp final : Node {
  const char* name() const override { return "exp"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::mul, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Log final : Node {
  const char* name() const override { return "log"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::div, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Sqrt final : Node {
  const char* name() const override { return "sqrt"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::sqrt_backward, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Tanh final : Node {
  const char* name() const override { return "tanh"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::tanh_backward, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Sigmoid final : Node {
  const char* name() const override { return "sigmoid"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::sigmoid_backward, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Relu final : Node {
  const char* name() const override { return "relu"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::relu_backward, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Gelu final : Node {
  const char* name() const override { return "gelu"; }
  bool tanh_form = false;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::gelu_backward, dy[0], dx[0].write(), dy[0], saved(0), tanh_form);
  }
};

struct Abs final : Node {
  const char* name() const override { return "abs"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::abs_backward, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

struct Pow final : Node {
  const char* name() const override { return "pow"; }
  double exponent = 1;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::pow_backward, dy[0], dx[0].write(), dy[0], saved(0), exponent);
  }
};

struct Clamp final : Node {
  const char* name() const override { return "clamp"; }
  double low = 0, high = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::clamp_backward, dy[0], dx[0].write(), dy[0], saved(0), low, high);
  }
};

// Backward reads the input.
template <class Op> Op* keep_input(const Tensor& y, const Tensor& x) {
  Op* node = record<Op>(y, x);
  if (node) node->save(x);
  return node;
}

// Backward reads the output.
template <class Op> Tensor keep_output(const Tensor& y, const Tensor& x) {
  if (auto* node = record<Op>(y, x)) node->save_output(y);
  return y;
}

}  // namespace

Tensor affine(const Tensor& x, double scale, double shift) {
  Tensor y = elementwise(kernels::affine, x, scale, shift);
  if (auto* node = record<Affine>(y, x)) node->scale = scale;
  return y;
}

Tensor neg(const Tensor& x) {
  Tensor y = elementwise(kernels::neg, x);
  record<Neg>(y, x);
  return y;
}

Tensor exp(const Tensor& x) { return keep_output<Exp>(elementwise(kernels::exp, x), x); }
Tensor sqrt(const Tensor& x) { return keep_output<Sqrt>(elementwise(kernels::sqrt, x), x); }
Tensor tanh(const Tensor& x) { return keep_output<Tanh>(elementwise(kernels::tanh, x), x); }
Tensor sigmoid(const Tensor& x) { return keep_output<Sigmoid>(elementwise(kernels::sigmoid, x), x); }
Tensor relu(const Tensor& x) { return keep_output<Relu>(elementwise(kernels::relu, x), x); }

Tensor log(const Tensor& x) {
  Tensor y = elementwise(kernels::log, x);
  keep_input<Log>(y, x);
  return y;
}

Tensor gelu(const Tensor& x, bool tanh_form) {
  Tensor y = elementwise(kernels::gelu, x, tanh_form);
  if (auto* node = keep_input<Gelu>(y, x)) node->tanh_form = tanh_form;
  return y;
}

Tensor abs(const Tensor& x) {
  Tensor y = elementwise(kernels::abs, x);
  keep_input<Abs>(y, x);
  return y;
}

Tensor pow(const Tensor& x, double exponent) {
  Tensor y = elementwise(kernels::pow, x, exponent);
  if (auto* node = keep_input<Pow>(y, x)) node->exponent = exponent;
  return y;
}

Tensor clamp(const Tensor& x, double low, double high) {
  SG_CHECK(low <= high, "clamp: low ", low, " is above high ", high);
  Tensor y = elementwise(kernels::clamp, x, low, high);
  if (auto* node = keep_input<Clamp>(y, x)) node->low = low, node->high = high;
  return y;
}

}  // namespace shardgrad
