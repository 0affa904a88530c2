#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
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

// dx = slope(dy, x or y), one kernel.
struct Unary final : Node {
  const SlotBase* kernel = nullptr;
  const Slot<OutView, View, View>* slope = nullptr;
  const char* name() const override { return kernel->name(); }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(*slope, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

enum class Reads { input, output };

const Tensor& given(const Tensor& x) { return x; }

Tensor unary(const Slot<OutView, View>& kernel, const Slot<OutView, View, View>& slope, Reads reads, const Tensor& x) {
  Tensor y = of_each(kernel, x);
  if (auto* node = record<Unary>(y, x)) {
    node->kernel = &kernel, node->slope = &slope;
    if (reads == Reads::input)
      node->save(x);
    else
      node->save_output(y);
  }
  return y;
}

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

constexpr double kLargestInteger = 0x1.fffffffffffffp62;  // of i64, among the doubles

// Integers know no fractions.
void check_numbers(const char* op, const Tensor& x, double a, double b, double largest) {
  auto fits = [=](double v) { return v == std::trunc(v) && -0x1p63 <= v && v <= largest; };
  SG_CHECK(is_floating(x.dtype()) || (fits(a) && fits(b)), op, ": the numbers ", a, " and ", b, " beside ", x,
           " are not both integers of 64 bits; convert it with .to(dtype)");
}

}  // namespace

Tensor affine(const Tensor& x, Scalar scale, Scalar shift) {
  if (!is_floating(x.dtype())) scale.check_exact("affine"), shift.check_exact("affine");
  check_numbers("affine", x, scale, shift, kLargestInteger);
  Tensor y = of_each(kernels::affine, x, double(scale), double(shift));
  if (auto* node = record<Affine>(y, x)) node->scale = scale;
  return y;
}

Tensor neg(const Tensor& x) {
  Tensor y = of_each(kernels::neg, x);
  record<Neg>(y, x);
  return y;
}

#define SG_FUNCTION(name, takes, keeps, backward, ...) \
  Tensor name(const Tensor& x) { return unary(kernels::name, kernels::backward, Reads::keeps, takes(x)); }
SG_UNARIES(SG_FUNCTION, SG_NO_ROW, SG_NO_ROW)
#undef SG_FUNCTION

Tensor gelu(const Tensor& x, bool tanh_form) {
  return tanh_form ? unary(kernels::gelu_tanh, kernels::gelu_tanh_backward, Reads::input, x)
                   : unary(kernels::gelu, kernels::gelu_backward, Reads::input, x);
}

static Tensor integer_power(const Tensor& x, const Scalar& exponent) {
  Tensor y = empty_like(x, "pow"), by = number_beside("pow", x, exponent);
  SG_CHECK(exponent >= 0, "pow: ", x, " to the power of ", exponent, " is no integer; convert it with .to(dtype)");
  launch(kernels::power, x, out(y), x, by);
  return y;
}

Tensor pow(const Tensor& x, Scalar exponent) {
  if (!is_floating(x.dtype())) return integer_power(x, exponent);
  if (should_widen(x)) return pow(widened(x), exponent);
  Tensor y = of_each(kernels::pow, x, double(exponent));
  if (auto* node = keep_input<Pow>(y, x)) node->exponent = exponent;
  return y;
}

Tensor clamp(const Tensor& x, Scalar least, Scalar most) {
  double low = least, high = most;
  SG_CHECK(!std::isnan(low) && !std::isnan(high), "clamp: from ", low, " to ", high,
           " is not possible; an infinite bound leaves its side open");
  SG_CHECK(low <= high, "clamp: low ", low, " is above high ", high);
  if (!is_floating(x.dtype())) {
    if (low > -0x1p63) least.check_exact("clamp");
    if (high < 0x1p63) most.check_exact("clamp");
    low = std::max(low, -0x1p63), high = std::min(high, 0x1p63);  // infinite, or as large as can be: no bound
  }
  check_numbers("clamp", x, low, high, 0x1p63);
  Tensor y = of_each(kernels::clamp, x, low, high);
  if (auto* node = keep_input<Clamp>(y, x)) node->low = low, node->high = high;
  return y;
}

}  // namespace shardgrad
