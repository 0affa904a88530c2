// A matrix product's two gradients are matrix products. With C = A · B:
//
//     dA = dC · Bᵀ        dB = Aᵀ · dC
//
// and where an operand was used transposed, its gradient is the transposed product: no transpose is ever copied.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Operand {
  const Tensor& tensor;
  bool transposed;
  bool batched() const { return tensor.ndim() > 2; }
  int64_t rows() const { return tensor.size(transposed ? -1 : -2); }
  int64_t columns() const { return tensor.size(transposed ? -2 : -1); }
};

void multiply(const Out& c, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b) {
  launch(kernels::matmul, a, c, unwanted(), a, b, Tensor(), kernels::MatmulArgs{trans_a, trans_b});
}

Shape product_shape(const Operand& a, const Operand& b) {
  Shape shape = a.tensor.ndim() >= b.tensor.ndim() ? a.tensor.shape() : b.tensor.shape();
  return shape.with(-2, a.rows()).with(-1, b.columns());
}

// c = a · b. One large product replaces many small ones where a matrix is shared by a whole batch; where c itself has
// no batch, the batch's products are summed.
void product(const Out& c, const Operand& a, const Operand& b) {
  bool batched = a.batched() || b.batched();
  if (a.batched() && !b.batched() && !a.transposed) {
    Tensor rows = as_rows(a.tensor);
    multiply(view_of(c, {rows.size(0), b.columns()}), rows, false, b.tensor, b.transposed);
  } else if (!batched || c.tensor.ndim() > 2) {
    multiply(c, a.tensor, a.transposed, b.tensor, b.transposed);
  } else if (a.batched() && b.batched() && a.transposed && !b.transposed) {  // Σ aᵢᵀ · bᵢ: the batch's rows in one
    multiply(c, as_rows(a.tensor), true, as_rows(b.tensor), false);
  } else {
    Tensor each = empty(product_shape(a, b), {c.tensor.dtype(), c.tensor.device()});
    multiply(out(each), a.tensor, a.transposed, b.tensor, b.transposed);
    launch(kernels::sum_to, each, c, each);
  }
}

struct Matmul final : Node {
  const char* name() const override { return "matmul"; }
  bool trans_a = false, trans_b = false;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &a = saved(0), &b = saved(1), &dc = dy[0];
    if (dx[0].wanted()) {
      if (trans_a)
        product(dx[0].write(), {b, trans_b}, {dc, true});
      else
        product(dx[0].write(), {dc, false}, {b, !trans_b});
    }
    if (dx[1].wanted()) {
      if (trans_b)
        product(dx[1].write(), {dc, true}, {a, trans_a});
      else
        product(dx[1].write(), {a, !trans_a}, {dc, false});
    }
  }
};

void check_matmul(const Operand& a, const Operand& b) {
  const Shape &left = a.tensor.shape(), &right = b.tensor.shape();
  check_same_kind("matmul", a.tensor, b.tensor);
  check_floating("matmul", a.tensor);
  SG_CHECK(left.ndim() >= 2 && right.ndim() >= 2, "matmul: ", left, " x ", right,
           ": both need at least two dimensions; reshape a vector to a row or a column");
  SG_CHECK(a.columns() == b.rows(), "matmul: ", left, a.transposed ? " (transposed)" : "", " x ", right,
           b.transposed ? " (transposed)" : "", ": the inner extents ", a.columns(), " and ", b.rows(), " differ");
  bool same_batch = left.ndim() == right.ndim() && std::equal(left.begin(), left.end() - 2, right.begin());
  SG_CHECK(left.ndim() == 2 || right.ndim() == 2 || same_batch, "matmul: ", left, " x ", right,
           ": the leading dimensions must match, or one operand has none");
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  if (should_lower(a, b)) return matmul(lowered(a), lowered(b), trans_a, trans_b);
  Operand left{a, trans_a}, right{b, trans_b};
  check_matmul(left, right);
  Tensor c = empty(product_shape(left, right), {a.dtype(), a.device()});
  product(out(c), left, right);
  if (auto* node = record<Matmul>(c, a, b)) {
    node->trans_a = trans_a, node->trans_b = trans_b;
    node->save(kept_if(needs_grad(b), a), kept_if(needs_grad(a), b));
  }
  return c;
}

}  // namespace shardgrad
