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
  SG_CHECK(a.columns() == b.rows(), "matmul: ", left, a.transposed ? " (transposed)" : "", " x ", right,
           b.transposed ? " (transposed)" : "", ": the inner extents ", a.columns(), " and ", b.rows(), " differ");
}

Shape batch_of(const Tensor& x) { return Shape(std::span(x.shape().begin(), size_t(x.ndim() - 2))); }

Shape common_batch(const Tensor& a, const Tensor& b) {
  for (int d = 3; d <= std::min(a.ndim(), b.ndim()); ++d)
    SG_CHECK(a.size(-d) == b.size(-d) || a.size(-d) == 1 || b.size(-d) == 1, "matmul: ", a.shape(), " x ", b.shape(),
             ": the leading dimensions must match, or broadcast");
  return broadcast_shapes("matmul", batch_of(a), batch_of(b));
}

Tensor with_batch(const Tensor& x, const Shape& batch) {
  std::vector<int64_t> extents(batch.begin(), batch.end());
  extents.insert(extents.end(), x.shape().end() - 2, x.shape().end());
  return expand(x, Shape(std::span<const int64_t>(extents)));
}

// A vector as a row of a, a column of b; the dimension that was made is taken out again.
Tensor with_vectors(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  SG_CHECK(a.ndim() > 0 && b.ndim() > 0, "matmul: ", a.shape(), " x ", b.shape(), ": a scalar has no rows");
  SG_CHECK(a.ndim() > 1 ? b.ndim() > 1 || !trans_b : !trans_a, "matmul: ", a.shape(), " x ", b.shape(),
           ": a vector cannot be transposed");
  bool row = a.ndim() == 1, column = b.ndim() == 1;
  int64_t left = row ? a.size(0) : a.size(trans_a ? -2 : -1), right = column ? b.size(0) : b.size(trans_b ? -1 : -2);
  SG_CHECK(left == right, "matmul: ", a.shape(), " x ", b.shape(), ": the inner extents ", left, " and ", right,
           " differ");
  Tensor c = matmul(row ? unsqueeze(a, 0) : a, column ? unsqueeze(b, 1) : b, trans_a, trans_b);
  if (column) c = squeeze(c, -1);
  return row ? squeeze(c, column ? -1 : -2) : c;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  if (should_lower(a, b)) return matmul(lowered(a), lowered(b), trans_a, trans_b);
  if (a.ndim() < 2 || b.ndim() < 2) return with_vectors(a, b, trans_a, trans_b);
  if (a.ndim() > 2 && b.ndim() > 2 && batch_of(a) != batch_of(b)) {
    Shape batch = common_batch(a, b);
    return matmul(with_batch(a, batch), with_batch(b, batch), trans_a, trans_b);
  }
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

Tensor outer(const Tensor& a, const Tensor& b) {
  SG_CHECK(a.ndim() == 1 && b.ndim() == 1, "outer: ", a.shape(), " and ", b.shape(), ": both have one dimension");
  return mul(unsqueeze(a, 1), b);
}

}  // namespace shardgrad
