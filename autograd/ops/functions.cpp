#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// dx = dy · slope(x or y), made of operations. A null slope is 0.
struct Curve final : Node {
  const SlotBase* kernel = nullptr;
  Tensor (*slope)(const Tensor& kept) = nullptr;
  const char* name() const override { return kernel->name(); }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    if (slope)
      launch(kernels::mul, dy[0], dx[0].write(), dy[0], slope(saved(0)));
    else
      launch(kernels::fill, dy[0], dx[0].write(), 0.0);
  }
};

enum class Keeps { nothing, input, output };

Tensor curve(const Slot<OutView, View>& kernel, const Tensor& x, Keeps keeps, Tensor (*slope)(const Tensor&)) {
  check_floating(kernel.name(), x);
  Tensor y = of_each(kernel, x);
  if (auto* node = record<Curve>(y, x)) {
    node->kernel = &kernel, node->slope = slope;
    if (keeps == Keeps::input) node->save(x);
    if (keeps == Keeps::output) node->save_output(y);
  }
  return y;
}

Tensor whole_number(const Slot<OutView, View>& kernel, const Tensor& x) {
  return is_floating(x.dtype()) ? curve(kernel, x, Keeps::nothing, nullptr) : clone(x);
}

// One kernel with a number, forward and backward.
struct CurveOfNumber final : Node {
  const SlotBase* kernel = nullptr;
  const Slot<OutView, View, View, double>* slope = nullptr;
  double number = 0;
  const char* name() const override { return kernel->name(); }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(*slope, dy[0], dx[0].write(), dy[0], saved(0), number);
  }
};

Tensor curve_of_number(const Slot<OutView, View, double>& kernel, const Slot<OutView, View, View, double>& slope,
                       const Tensor& x, double number) {
  check_floating(kernel.name(), x);
  Tensor y = of_each(kernel, x, number);
  if (auto* node = record<CurveOfNumber>(y, x)) {
    node->kernel = &kernel, node->slope = &slope, node->number = number;
    node->save(x);
  }
  return y;
}

using Binary = Slot<OutView, View, View>;

struct Extreme final : Node {
  const Binary* kernel = nullptr;
  Shape a_shape, b_shape;
  const char* name() const override { return kernel->name(); }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    side(dx[0], dy[0], a_shape, saved(0), saved(1));
    side(dx[1], dy[0], b_shape, saved(1), saved(0));
  }
  void side(GradSlot& dx, const Tensor& dy, const Shape& shape, const Tensor& mine, const Tensor& other) const {
    if (!dx.wanted()) return;
    Tensor loses = kernel == &kernels::maximum ? lt(mine, other) : gt(mine, other), zero = number_beside(name(), dy, 0);
    reduce_to(dx, where(loses, zero, where(eq(mine, other), affine(dy, 0.5, 0), dy)), shape);
  }
};

struct Power final : Node {
  Shape a_shape, b_shape;
  const char* name() const override { return "pow"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor a = wide(saved(0)), b = wide(saved(1)), zero = number_beside("pow", b, 0), d = wide(dy[0]);
    auto send = [&](GradSlot& to, const Tensor& gradient, const Shape& shape) {
      Tensor sum = empty(shape, {d.dtype(), d.device()});
      launch(kernels::sum_to, gradient, out(sum), gradient);
      to.alias(cast(sum, dy[0].dtype()));
    };
    if (dx[0].wanted()) send(dx[0], where(eq(b, zero), zero, mul(d, mul(b, pow(a, affine(b, 1, -1))))), a_shape);
    if (!dx[1].wanted()) return;
    Tensor still = mul(eq(a, zero), ge(b, zero));  // 0 to the power of what is not negative does not change with it
    send(dx[1], where(still, zero, mul(d, mul(pow(a, b), log(a)))), b_shape);
  }
};

struct Remainder final : Node {
  Shape a_shape, b_shape;
  const char* name() const override { return "remainder"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    reduce_to(dx[0], dy[0], a_shape);
    if (dx[1].wanted()) reduce_to(dx[1], neg(mul(dy[0], floor_divide(saved(0), saved(1)))), b_shape);
  }
};

Tensor extreme(const char* name, const Binary& kernel, const Tensor& a, const Tensor& b) {
  if (should_promote(a, b)) return extreme(name, kernel, widened(a), widened(b));
  Tensor y = broadcast_empty(name, a, b, a.dtype());
  if (!is_floating(a.dtype())) return &kernel == &kernels::maximum ? where(gt(a, b), a, b) : where(lt(a, b), a, b);
  launch(kernel, a, out(y), a, b);
  if (auto* node = record<Extreme>(y, a, b)) {
    node->kernel = &kernel, node->a_shape = a.shape(), node->b_shape = b.shape();
    node->save(a, b);
  }
  return y;
}

}  // namespace

Tensor sin(const Tensor& x) { return curve(kernels::sin, x, Keeps::input, cos); }
Tensor cos(const Tensor& x) {
  return curve(kernels::cos, x, Keeps::input, [](const Tensor& kept) { return neg(sin(kept)); });
}
Tensor rsqrt(const Tensor& x) {
  return curve(kernels::rsqrt, widened(x), Keeps::output, [](const Tensor& y) { return affine(pow(y, 3), -0.5, 0); });
}
Tensor reciprocal(const Tensor& x) {
  check_floating("reciprocal", x);
  return div(number_beside("reciprocal", widened(x), 1), widened(x));
}
Tensor square(const Tensor& x) { return mul(x, x); }
Tensor log1p(const Tensor& x) {
  return curve(kernels::log1p, widened(x), Keeps::input,
               [](const Tensor& kept) { return reciprocal(affine(kept, 1, 1)); });
}
Tensor expm1(const Tensor& x) {
  return curve(kernels::expm1, widened(x), Keeps::output, [](const Tensor& y) { return affine(y, 1, 1); });
}
Tensor erf(const Tensor& x) {
  constexpr double two_over_root_pi = 1.1283791670955126;
  return curve(kernels::erf, x, Keeps::input,
               [](const Tensor& kept) { return affine(exp(neg(mul(kept, kept))), two_over_root_pi, 0); });
}
Tensor softplus(const Tensor& x) { return curve(kernels::softplus, widened(x), Keeps::input, sigmoid); }
Tensor leaky_relu(const Tensor& x, double slope) {
  return curve_of_number(kernels::leaky_relu, kernels::leaky_relu_backward, x, slope);
}
Tensor huber(const Tensor& x, double delta) {
  return curve_of_number(kernels::huber, kernels::huber_backward, x, delta);
}
Tensor elu(const Tensor& x, double alpha) { return curve_of_number(kernels::elu, kernels::elu_backward, x, alpha); }

Tensor floor(const Tensor& x) { return whole_number(kernels::floor, x); }
Tensor ceil(const Tensor& x) { return whole_number(kernels::ceil, x); }
Tensor trunc(const Tensor& x) { return whole_number(kernels::trunc, x); }
Tensor round(const Tensor& x) { return whole_number(kernels::round, x); }
Tensor sign(const Tensor& x) {
  if (is_floating(x.dtype())) return curve(kernels::sign, x, Keeps::nothing, nullptr);
  Tensor zero = number_beside("sign", x, 0);
  return sub(cast(gt(x, zero), x.dtype()), cast(lt(x, zero), x.dtype()));
}

Tensor maximum(const Tensor& a, const Tensor& b) { return extreme("maximum", kernels::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return extreme("minimum", kernels::minimum, a, b); }

template <class Op> static Tensor of_two(const char* name, const Binary& kernel, const Tensor& a, const Tensor& b) {
  check_floating(name, a);
  Tensor y = broadcast_empty(name, a, b, a.dtype());
  launch(kernel, a, out(y), a, b);
  if (auto* node = record<Op>(y, a, b)) {
    node->a_shape = a.shape(), node->b_shape = b.shape();
    node->save(a, b);
  }
  return y;
}

static Tensor without_gradient(const char* name, const Binary& kernel, const Tensor& a, const Tensor& b) {
  Tensor y = broadcast_empty(name, a, b, a.dtype());
  launch(kernel, a, out(y), a, b);
  return y;
}
static void check_divisors(const char* name, const Tensor& a, const Tensor& b) {
  check_same_kind(name, a, b);
  SG_CHECK(is_floating(b.dtype()) || b.device() == kMeta || all(b), name, ": ", a, " by integers of shape ", b.shape(),
           ", one of which is 0");
}
static Tensor divisor_beside(const char* name, const Tensor& x, const Scalar& divisor) {
  SG_CHECK(is_floating(x.dtype()) || divisor != 0, name, ": ", x, " by a number that is 0");
  return number_beside(name, x, divisor);
}

Tensor pow(const Tensor& a, const Tensor& b) {
  if (is_floating(a.dtype())) return of_two<Power>("pow", kernels::power, widened(a), widened(b));
  check_same_kind("pow", a, b);
  SG_CHECK(b.device() == kMeta || all(b >= 0), "pow: ", a, " to the power of integers of shape ", b.shape(),
           ", one of which is negative; convert them with .to(dtype)");
  return without_gradient("pow", kernels::power, a, b);
}
Tensor pow(Scalar a, const Tensor& b) { return pow(number_beside("pow", b, a), b); }

static Tensor remainder_of(const Tensor& a, const Tensor& b) {
  if (is_floating(a.dtype())) return of_two<Remainder>("remainder", kernels::remainder, a, b);
  return without_gradient("remainder", kernels::remainder, a, b);
}
Tensor remainder(const Tensor& a, const Tensor& b) {
  if (should_promote(a, b)) return remainder(widened(a), widened(b));
  check_divisors("remainder", a, b);
  return remainder_of(a, b);
}
Tensor remainder(const Tensor& x, Scalar divisor) { return remainder_of(x, divisor_beside("remainder", x, divisor)); }
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  if (should_promote(a, b)) return floor_divide(widened(a), widened(b));
  check_divisors("floor_divide", a, b);
  return without_gradient("floor_divide", kernels::floor_divide, a, b);
}
Tensor floor_divide(const Tensor& x, Scalar divisor) {
  return without_gradient("floor_divide", kernels::floor_divide, x, divisor_beside("floor_divide", x, divisor));
}
Tensor floor_divide(Scalar value, const Tensor& divisor) {
  return floor_divide(number_beside("floor_divide", divisor, value), divisor);
}

Truth isnan(const Tensor& x) { return ne(x, x); }
Truth isinf(const Tensor& x) {
  if (!is_floating(x.dtype())) return Truth(zeros(x.shape(), {DType::u8, x.device()}));
  return eq(abs(x.detach()), number_beside("isfinite", x, INFINITY));
}
Truth isfinite(const Tensor& x) {
  if (!is_floating(x.dtype())) return Truth(ones(x.shape(), {DType::u8, x.device()}));
  return lt(abs(x.detach()), number_beside("isfinite", x, INFINITY));
}
Truth logical_and(const Tensor& a, const Tensor& b) { return Truth(mul(nonzero_flags(a), nonzero_flags(b))); }
Truth logical_or(const Tensor& a, const Tensor& b) { return Truth(maximum(nonzero_flags(a), nonzero_flags(b))); }
Truth logical_xor(const Tensor& a, const Tensor& b) { return ne(nonzero_flags(a), nonzero_flags(b)); }
Truth logical_not(const Tensor& x) { return eq(x, number_beside("logical_not", x, 0)); }

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  SG_CHECK(broadcast_shapes("masked_fill", x.shape(), mask.shape()) == x.shape(), "masked_fill: the mask ",
           mask.shape(), " does not broadcast to ", x.shape());
  return where(nonzero_flags(mask), number_beside("masked_fill", x, value), x);
}

}  // namespace shardgrad
