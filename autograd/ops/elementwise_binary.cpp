#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
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
    if (dy[0].shape() == b_shape) launch(kernels::neg, dy[0], dx[1].write(), dy[0]);
    else reduce_to(dx[1], neg(dy[0]), b_shape);
  }
};

struct Mul final : Node {
  const char* name() const override { return "mul"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    side(dx[0], dy[0], saved(0), saved(1));
    side(dx[1], dy[0], saved(1), saved(0));
  }
  static void side(GradSlot& dx, const Tensor& dy, const Tensor& mine, const Tensor& other) {
    if (!dx.wanted()) return;
    if (mine.shape() == dy.shape()) launch(kernels::mul, dy, dx.write(), dy, other);
    else reduce_to(dx, mul(dy, other), mine.shape());
  }
};

struct Div final : Node {
  const char* name() const override { return "div"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &a = saved(0), &b = saved(1);
    if (dx[0].wanted()) {
      if (a.shape() == dy[0].shape()) launch(kernels::div, dy[0], dx[0].write(), dy[0], b);
      else reduce_to(dx[0], div(dy[0], b), a.shape());
    }
    if (dx[1].wanted()) reduce_to(dx[1], neg(div(mul(dy[0], a.detach()), mul(b.detach(), b.detach()))), b.shape());
  }
};

template <class Op>
Tensor binary(const char* name, const decltype(kernels::add)& slot, const Tensor& a, const Tensor& b) {
  Tensor y = broadcast_empty(name, a, b, a.dtype());
  launch(slot, a, out(y), a, b);
  if (auto* node = record<Op>(y, a, b)) {
    if constexpr (requires { node->a_shape; }) node->a_shape = a.shape(), node->b_shape = b.shape();
    else node->save(a, b);
  }
  return y;
}

Tensor compare(const char* name, const decltype(kernels::eq)& slot, const Tensor& a, const Tensor& b) {
  Tensor y = broadcast_empty(name, a, b, DType::u8);
  launch(slot, a, out(y), a, b);
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary<Add>("add", kernels::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary<Sub>("sub", kernels::sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary<Mul>("mul", kernels::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary<Div>("div", kernels::div, a, b); }
Tensor eq(const Tensor& a, const Tensor& b) { return compare("eq", kernels::eq, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare("ne", kernels::ne, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare("lt", kernels::lt, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare("le", kernels::le, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare("gt", kernels::gt, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare("ge", kernels::ge, a, b); }

}  // namespace shardgrad
