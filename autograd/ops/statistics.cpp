#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Cumsum final : Node {
  const char* name() const override { return "cumsum"; }
  int dim = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::cumsum, dy[0], dx[0].write(), dy[0], dim, true);
  }
};

struct Prod final : Node {
  const char* name() const override { return "prod"; }
  int dim = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor& x = saved(0);
    launch(kernels::prod_backward, dy[0], dx[0].write(), dy[0].alias(x.shape().with(dim, 1)), x, dim);
  }
};

struct Sort final : Node {
  const char* name() const override { return "sort"; }
  int dim = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::scatter_add, dy[0], accumulating(dx[0].write()), dy[0], saved(0), dim);
  }
};

// `y` has extent 1 along dim.
Tensor dropped(const Tensor& y, int dim, bool keepdim) { return keepdim ? y : squeeze(y, dim); }

Tensor flat(const Tensor& x) { return reshape(x, {x.numel()}); }

void check_any(const char* op, const Tensor& x) { SG_CHECK(x.numel() > 0, op, ": ", x.shape(), " is empty"); }

ValuesAndIndex first_in_order(const Tensor& x, int dim, int64_t count, bool descending) {
  TensorOptions options{x.dtype(), x.device()};
  Shape shape = x.shape().with(dim, count);
  ValuesAndIndex result{empty(shape, options, "sort"), empty(shape, {DType::i64, x.device()}, "sort")};
  launch(kernels::sort, x, out(result.values), out(result.index), x, dim, descending);
  if (auto* node = record<Sort>(result.values, x)) {
    node->dim = dim;
    node->save(result.index);
  }
  return result;
}

// In the dtype that sums are taken in: a root is taken before anything is rounded to 16 bits.
Tensor var_over(const char* op, const Tensor& x, Dims dims, double correction, bool keepdim) {
  check_floating(op, x);
  check_dims(op, x, dims);
  Tensor from = wide(x), average = mean(from, dims, true), d = sub(from, average);
  double divisor = double(x.numel()) / double(average.numel()) - correction;
  return affine(sum(mul(d, d), dims, keepdim), 1 / std::max(divisor, 0.), 0);
}

// The slope of the root is infinite at 0; of equal numbers the gradient is 0, as in PyTorch.
Tensor root(const Tensor& x) {
  Tensor zero = x == 0;
  return where(zero, x, sqrt(where(zero, number_beside("std", x, 1), x)));
}

}  // namespace

Tensor argmax(const Tensor& x) {
  check_any("argmax", x);
  return argmax(flat(x), 0);
}
Tensor argmin(const Tensor& x) {
  check_any("argmin", x);
  return argmin(flat(x), 0);
}

Tensor var(const Tensor& x, double correction) { return var(flat(x), 0, correction, false); }
Tensor var(const Tensor& x, int dim, double correction, bool keepdim) { return var(x, Dims{dim}, correction, keepdim); }
Tensor var(const Tensor& x, Dims dims, double correction, bool keepdim) {
  return cast(var_over("var", x, dims, correction, keepdim), x.dtype());
}
Tensor std(const Tensor& x, double correction) { return std(flat(x), 0, correction, false); }
Tensor std(const Tensor& x, int dim, double correction, bool keepdim) { return std(x, Dims{dim}, correction, keepdim); }
Tensor std(const Tensor& x, Dims dims, double correction, bool keepdim) {
  return cast(root(var_over("std", x, dims, correction, keepdim)), x.dtype());
}

Tensor prod(const Tensor& x) { return prod(flat(x), 0); }
Tensor prod(const Tensor& x, int dim, bool keepdim) {
  if (should_widen(x)) return prod(widened(x), dim, keepdim);
  dim = check_dim("prod", x, dim);
  DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::i64;
  Tensor kept = empty(x.shape().with(dim, 1), {dtype, x.device()}, "prod");
  launch(kernels::prod, x, out(kept), x, dim);
  Tensor y = dropped(kept, dim, keepdim);
  if (auto* node = record<Prod>(y, x)) {
    node->dim = dim;
    node->save(x);
  }
  return y;
}

Tensor logsumexp(const Tensor& x, int dim, bool keepdim) { return logsumexp(x, Dims{dim}, keepdim); }
Tensor logsumexp(const Tensor& x, Dims dims, bool keepdim) {
  if (should_widen(x)) return logsumexp(widened(x), dims, keepdim);
  check_floating("logsumexp", x);
  check_dims("logsumexp", x, dims);
  if (x.numel() == 0) return log(sum(exp(x), dims, keepdim));  // where nothing is, nothing is largest
  Tensor top = amax(x.detach(), dims, true);
  top = where(isfinite(top), top, number_beside("logsumexp", top, 0));  // infinity less itself would be NaN
  Tensor sums = sum(exp(sub(x, top)), dims, keepdim);
  return add(log(sums), top.alias(sums.shape()));
}

Truth any(const Tensor& x) { return sum(nonzero_flags(x)) != 0; }
Truth all(const Tensor& x) { return sum(logical_not(x)) == 0; }
Truth any(const Tensor& x, int dim, bool keepdim) { return any(x, Dims{dim}, keepdim); }
Truth any(const Tensor& x, Dims dims, bool keepdim) { return sum(nonzero_flags(x), dims, keepdim) != 0; }
Truth all(const Tensor& x, int dim, bool keepdim) { return all(x, Dims{dim}, keepdim); }
Truth all(const Tensor& x, Dims dims, bool keepdim) { return sum(logical_not(x), dims, keepdim) == 0; }
Tensor count_nonzero(const Tensor& x) { return sum(nonzero_flags(x)); }

Tensor cumsum(const Tensor& x, int dim) {
  if (should_widen(x)) return cumsum(widened(x), dim);
  dim = check_dim("cumsum", x, dim);
  Tensor from = is_floating(x.dtype()) ? x : cast(x, DType::i64), y = empty_like(from, "cumsum");
  launch(kernels::cumsum, from, out(y), from, dim, false);
  if (auto* node = record<Cumsum>(y, x)) node->dim = dim;
  return y;
}

ValuesAndIndex sort(const Tensor& x, int dim, bool descending) {
  dim = check_dim("sort", x, dim);
  return first_in_order(x, dim, x.size(dim), descending);
}
Tensor argsort(const Tensor& x, int dim, bool descending) {
  NoGrad no_grad;
  return sort(x, dim, descending).index;
}
ValuesAndIndex topk(const Tensor& x, int64_t k, int dim, bool largest) {
  dim = check_dim("topk", x, dim);
  SG_CHECK(0 <= k && k <= x.size(dim), "topk: k = ", k, " of dimension ", dim, " of ", x.shape(),
           " is not possible; it has ", x.size(dim), " elements");
  return first_in_order(x, dim, k, largest);
}

}  // namespace shardgrad
