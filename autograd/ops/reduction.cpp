#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// `kept` is the result's shape with extent 1 where elements were summed, so that it broadcasts against the input.
struct Sum final : Node {
  const char* name() const override { return "sum"; }
  Shape kept;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::expand, dy[0], dx[0].write(), dy[0].alias(kept));
  }
};

struct Max final : Node {
  const char* name() const override { return least ? "min" : "max"; }
  int dim = 0;
  bool least = false;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor& index = saved(0);  // with extent 1 along dim
    launch(kernels::scatter_add, dy[0], accumulating(dx[0].write()), dy[0].alias(index.shape()), index, dim);
  }
};

// Equal ones have equal parts. NaN is no number's equal, and the largest; only a NaN has it then.
struct SpreadExtreme final : Node {
  const char* op = nullptr;
  Shape kept;
  const char* name() const override { return op; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor x = saved(0), y = saved(1).alias(kept), d = dy[0].alias(kept);
    Tensor extreme = add(isnan(x), eq(x, y)), sums = empty(kept, {DType::i64, x.device()});
    launch(kernels::sum_to, extreme, out(sums), extreme);
    Tensor part = cast(div(wide(d), cast(sums, sum_dtype(d.dtype()))), d.dtype());
    launch(kernels::where, d, dx[0].write(), extreme, part, number_beside(op, d, 0));
  }
};

struct Norm final : Node {
  const char* name() const override { return "norm"; }
  Shape kept;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor x = saved(0), y = saved(1).alias(kept), g = dy[0].alias(kept), zero = zeros({}, {y.dtype(), y.device()});
    Tensor scale = where(eq(y, zero), zero, div(g, y));  // the gradient of the norm of 0 is 0, as in PyTorch
    launch(kernels::mul, x, dx[0].write(), x, scale);
  }
};

Tensor sum_over(const Tensor& x, const Shape& kept, const Shape& result) {
  if (should_widen(x)) return sum_over(widened(x), kept, result);
  Tensor y = empty(kept, {is_floating(x.dtype()) ? x.dtype() : DType::i64, x.device()}, "sum");
  launch(kernels::sum_to, x, out(y), x);
  if (kept != result) y = y.alias(result);
  if (auto* node = record<Sum>(y, x)) node->kept = kept;
  return y;
}

// Sums of f16 and bf16 are taken in f32, whose range they may need.
Tensor mean_over(const Tensor& x, const Shape& kept, const Shape& result) {
  if (should_widen(x)) return mean_over(widened(x), kept, result);
  check_floating("mean", x);
  double factor = double(kept.numel()) / double(x.numel());
  return cast(affine(sum_over(cast(x, sum_dtype(x.dtype())), kept, result), factor, 0), x.dtype());
}

// Squares are summed as they are read where what is summed lies together.
Tensor norm_over(const Tensor& x, const Shape& kept, const Shape& result) {
  if (should_widen(x)) return norm_over(widened(x), kept, result);
  check_floating("norm", x);
  Tensor y = [&] {
    NoGrad no_grad;
    Tensor squares = empty(kept, {sum_dtype(x.dtype()), x.device()});
    bool together = true, gone = false;  // no dimension is kept behind one that is not
    for (int d = 0; d < kept.ndim(); ++d) {
      together &= !gone || kept[d] == 1;
      gone |= kept[d] != x.size(d);
    }
    if (together) {
      launch(kernels::square_sums, x, out(squares), x);
    } else {
      Tensor wide = cast(x, squares.dtype());
      squares = sum_over(mul(wide, wide), kept, kept);
    }
    return cast(sqrt(squares), x.dtype());
  }();
  Tensor shaped = y.alias(result);
  if (auto* node = record<Norm>(shaped, x)) {
    node->save(x);
    node->save_output(shaped);
    node->kept = kept;
  }
  return shaped;
}

/// The shape with extent 1 along the dimensions that are reduced, and that of the result.
struct Reduced {
  Shape kept, result;
};
Reduced reduced(const char* op, const Tensor& x, Dims dims, bool keepdim) {
  std::array<bool, kMaxDims> given = check_dims(op, x, dims);
  Reduced shapes{x.shape(), {}};
  std::array<int64_t, kMaxDims> extents{};
  size_t count = 0;
  for (int d = 0; d < x.ndim(); ++d)
    if (given[size_t(d)])
      shapes.kept = shapes.kept.with(d, 1);
    else
      extents[count++] = x.size(d);
  shapes.result = keepdim ? shapes.kept : Shape(std::span<const int64_t>(extents.data(), count));
  return shapes;
}

ValuesAndIndex most_along(const char* op, const Tensor& x, int dim, bool keepdim, bool least) {
  dim = check_dim(op, x, dim);
  SG_CHECK(x.size(dim) > 0, op, ": dimension ", dim, " of ", x.shape(), " is empty");
  auto [kept, shape] = reduced(op, x, {dim}, keepdim);
  Tensor values = empty(kept, {x.dtype(), x.device()}), index = empty(kept, {DType::i64, x.device()});
  launch(kernels::max_dim, x, out(values), out(index), x, dim, least);
  ValuesAndIndex result{values.alias(shape), index.alias(shape)};
  if (auto* node = record<Max>(result.values, x)) {
    node->dim = dim;
    node->least = least;
    node->save(index);
  }
  return result;
}

// One dimension after the other.
Tensor extreme_over(const char* op, const Tensor& x, Dims dims, bool keepdim, bool least) {
  auto [kept, shape] = reduced(op, x, dims, keepdim);
  Tensor values = x.detach();
  for (int dim : dims) values = most_along(op, values, dim, true, least).values;
  Tensor y = values.alias(shape);
  if (auto* node = record<SpreadExtreme>(y, x)) {
    node->op = op, node->kept = kept;
    node->save(x);
    node->save_output(y);
  }
  return y;
}

// All as one dimension.
Tensor extreme_of_all(const char* op, const Tensor& x, bool least) {
  SG_CHECK(x.numel() > 0, op, ": ", x.shape(), " is empty");
  return extreme_over(op, reshape(x, {x.numel()}), {0}, false, least);
}

}  // namespace

Tensor sum(const Tensor& x) { return sum_over(x, {}, {}); }
Tensor mean(const Tensor& x) { return mean_over(x, {}, {}); }

Tensor sum(const Tensor& x, Dims dims, bool keepdim) {
  Reduced shapes = reduced("sum", x, dims, keepdim);
  return sum_over(x, shapes.kept, shapes.result);
}
Tensor sum(const Tensor& x, int dim, bool keepdim) { return sum(x, Dims{dim}, keepdim); }

Tensor mean(const Tensor& x, Dims dims, bool keepdim) {
  Reduced shapes = reduced("mean", x, dims, keepdim);
  return mean_over(x, shapes.kept, shapes.result);
}
Tensor mean(const Tensor& x, int dim, bool keepdim) { return mean(x, Dims{dim}, keepdim); }

ValuesAndIndex max(const Tensor& x, int dim, bool keepdim) { return most_along("max", x, dim, keepdim, false); }
ValuesAndIndex min(const Tensor& x, int dim, bool keepdim) { return most_along("min", x, dim, keepdim, true); }
Tensor max(const Tensor& x) { return extreme_of_all("max", x, false); }
Tensor min(const Tensor& x) { return extreme_of_all("min", x, true); }
Tensor amax(const Tensor& x, int dim, bool keepdim) { return amax(x, Dims{dim}, keepdim); }
Tensor amax(const Tensor& x, Dims dims, bool keepdim) { return extreme_over("amax", x, dims, keepdim, false); }
Tensor amin(const Tensor& x, int dim, bool keepdim) { return amin(x, Dims{dim}, keepdim); }
Tensor amin(const Tensor& x, Dims dims, bool keepdim) { return extreme_over("amin", x, dims, keepdim, true); }
Tensor argmax(const Tensor& x, int dim, bool keepdim) {
  NoGrad no_grad;
  return max(x, dim, keepdim).index;
}
Tensor argmin(const Tensor& x, int dim, bool keepdim) {
  NoGrad no_grad;
  return min(x, dim, keepdim).index;
}

Tensor norm(const Tensor& x) { return norm_over(x, {}, {}); }
Tensor norm(const Tensor& x, int dim, bool keepdim) { return norm(x, Dims{dim}, keepdim); }
Tensor norm(const Tensor& x, Dims dims, bool keepdim) {
  Reduced shapes = reduced("norm", x, dims, keepdim);
  return norm_over(x, shapes.kept, shapes.result);
}

}  // namespace shardgrad
