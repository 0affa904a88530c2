#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Add final : Node {
  const char* name() const override { return "add"; }
  Shape a_shape, b_shape;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    reduce_to(dx[0], dy[0], a_shape);
    reduce_to(dx[1], dy[0], b_shape);
  }
};

struct Sub final : Node {
  const char* name() const override { return "sub"; }
  Shape a_shape, b_shape;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    reduce_to(dx[0], dy[0], a_shape);
    if (!dx[1].wanted()) return;
    if (dy[0].shape() == b_shape)
      launch(kernels::neg, dy[0], dx[1].write(), dy[0]);
    else
      reduce_to(dx[1], neg(dy[0]), b_shape);
  }
};

struct Mul final : Node {
  const char* name() const override { return "mul"; }
  Shape a_shape, b_shape;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    side(dx[0], dy[0], a_shape, saved(1));
    side(dx[1], dy[0], b_shape, saved(0));
  }
  static void side(GradSlot& dx, const Tensor& dy, const Shape& shape, const Tensor& other) {
    if (!dx.wanted()) return;
    if (dy.shape() == shape)
      launch(kernels::mul, dy, dx.write(), dy, other);
    else
      reduce_to(dx, mul(dy, other), shape);
  }
};

struct Div final : Node {
  const char* name() const override { return "div"; }
  Shape a_shape, b_shape;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &a = saved(0), &b = saved(1);
    if (dx[0].wanted()) {
      if (dy[0].shape() == a_shape)
        launch(kernels::div, dy[0], dx[0].write(), dy[0], b);
      else
        reduce_to(dx[0], div(dy[0], b), a_shape);
    }
    if (dx[1].wanted()) reduce_to(dx[1], mul(neg(dy[0]), div(div(a, b), b)), b_shape);
  }
};

struct Where final : Node {
  const char* name() const override { return "where"; }
  Shape a_shape, b_shape;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor& condition = saved(0);
    Tensor zero = zeros({}, {dy[0].dtype(), dy[0].device()});
    side(dx[0], a_shape, condition, dy[0], zero, dy[0]);
    side(dx[1], b_shape, condition, zero, dy[0], dy[0]);
  }
  static void side(GradSlot& dx, const Shape& shape, const Tensor& condition, const Tensor& yes, const Tensor& no,
                   const Tensor& dy) {
    if (!dx.wanted()) return;
    if (dy.shape() == shape)
      launch(kernels::where, dy, dx.write(), condition, yes, no);
    else
      reduce_to(dx, where(condition, yes, no), shape);
  }
};

template <class Op>
Tensor binary(const char* name, const decltype(kernels::add)& slot, const Tensor& a, const Tensor& b) {
  if (should_promote(a, b)) return binary<Op>(name, slot, widened(a), widened(b));
  Tensor y = broadcast_empty(name, a, b, a.dtype());
  launch(slot, a, out(y), a, b);
  if (auto* node = record<Op>(y, a, b)) {
    node->a_shape = a.shape(), node->b_shape = b.shape();
    if constexpr (std::is_same_v<Op, Mul>) node->save(kept_if(needs_grad(b), a), kept_if(needs_grad(a), b));
    if constexpr (std::is_same_v<Op, Div>) node->save(kept_if(needs_grad(b), a), b);
  }
  return y;
}

Truth compare(const char* name, const decltype(kernels::eq)& slot, const Tensor& a, const Tensor& b) {
  if (should_promote(a, b)) return compare(name, slot, widened(a), widened(b));
  Tensor y = broadcast_empty(name, a, b, DType::u8);
  launch(slot, a, out(y), a, b);
  return Truth(y);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary<Add>("add", kernels::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary<Sub>("sub", kernels::sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary<Mul>("mul", kernels::mul, a, b); }

Tensor div(const Tensor& a, const Tensor& b) {
  check_floating("div", a);
  return binary<Div>("div", kernels::div, a, b);
}

// Times the reciprocal where that is exact, or where f32 is finer than the result; else it would round twice.
Tensor operator/(const Tensor& x, Scalar value) {
  check_floating("div", x);
  int exponent = 0;
  bool exact = std::abs(std::frexp(value, &exponent)) == 0.5 && std::abs(exponent) < 64;
  if (exact || is_narrow(x)) return affine(x, 1 / value, 0);
  return div(x, full({}, value, {x.dtype(), x.device()}));
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (should_promote(a, b)) return where(condition, widened(a), widened(b));
  SG_CHECK(condition.dtype() == DType::u8, "where: the condition must be u8, got ", condition, " for ", a,
           "; convert it with .to(dtype)");
  SG_CHECK(condition.device() == a.device(), "where: the condition of shape ", condition.shape(), " is on ",
           condition.device(), ", the values of shape ", a.shape(), " on ", a.device(), "; move one with .to(device)");
  check_same_kind("where", a, b);
  Shape shape = broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  Tensor y = empty(shape, {a.dtype(), a.device()});
  launch(kernels::where, a, out(y), condition, a, b);
  if (auto* node = record<Where>(y, a, b)) {
    node->a_shape = a.shape(), node->b_shape = b.shape();
    node->save(condition);
  }
  return y;
}

#define SG_RELATION(name, ...) \
  Truth name(const Tensor& a, const Tensor& b) { return compare(#name, kernels::name, a, b); }
SG_RELATIONS(SG_RELATION)
#undef SG_RELATION

}  // namespace shardgrad
