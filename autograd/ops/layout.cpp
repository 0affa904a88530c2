#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

using Extents = std::vector<int64_t>;

Extents extents_of(const Tensor& x) { return {x.shape().begin(), x.shape().end()}; }
Shape shape_of(const Extents& extents) { return Shape(std::span<const int64_t>(extents)); }

struct Flip final : Node {
  const char* name() const override { return "flip"; }
  unsigned dims = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::flip, dy[0], dx[0].write(), dy[0], dims);
  }
};

struct Triangle final : Node {
  const char* name() const override { return lower ? "tril" : "triu"; }
  int64_t diagonal = 0;
  bool lower = false;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::triangle, dy[0], dx[0].write(), dy[0], diagonal, lower);
  }
};

Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool lower) {
  SG_CHECK(x.ndim() >= 2, op, ": needs at least two dimensions, got ", x.shape());
  diagonal = std::clamp(diagonal, -x.size(-2), x.size(-1));
  Tensor y = empty_like(x, op);
  launch(kernels::triangle, x, out(y), x, diagonal, lower);
  if (auto* node = record<Triangle>(y, x)) node->diagonal = diagonal, node->lower = lower;
  return y;
}

std::vector<Tensor> unsqueezed(std::span<const Tensor> tensors, int dim) {
  SG_CHECK(!tensors.empty(), "stack: needs at least one tensor");
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors) {
    SG_CHECK(x.shape() == tensors[0].shape(), "stack: ", tensors[0].shape(), " and ", x.shape(), " differ");
    parts.push_back(unsqueeze(x, dim));
  }
  return parts;
}

}  // namespace

Tensor t(const Tensor& x) {
  SG_CHECK(x.ndim() <= 2, "t: needs at most two dimensions, got ", x.shape(), "; transpose(x, a, b) swaps any two");
  return x.ndim() == 2 ? transpose(x, 0, 1) : x;
}

Tensor unsqueeze(const Tensor& x, int dim) {
  SG_CHECK(-x.ndim() - 1 <= dim && dim <= x.ndim(), "unsqueeze: ", x.shape(), " has no place ", dim,
           " for a dimension");
  Extents extents = extents_of(x);
  extents.insert(extents.begin() + (dim < 0 ? dim + x.ndim() + 1 : dim), 1);
  return reshape(x, shape_of(extents));
}

Tensor squeeze(const Tensor& x, int dim) {
  dim = check_dim("squeeze", x, dim);
  if (x.size(dim) != 1) return x;
  Extents extents = extents_of(x);
  extents.erase(extents.begin() + dim);
  return reshape(x, shape_of(extents));
}

Tensor squeeze(const Tensor& x) {
  Extents extents = extents_of(x);
  std::erase(extents, 1);
  return reshape(x, shape_of(extents));
}

Tensor flatten(const Tensor& x, int first, int last) {
  if (x.ndim() == 0) return reshape(x, {1});
  first = check_dim("flatten", x, first), last = check_dim("flatten", x, last);
  SG_CHECK(first <= last, "flatten: dimension ", first, " comes after dimension ", last, " of ", x.shape());
  Extents extents = extents_of(x);
  Shape joined(x.shape().dims().subspan(size_t(first), size_t(last - first + 1)));
  extents.erase(extents.begin() + first + 1, extents.begin() + last + 1);
  extents[size_t(first)] = joined.numel();
  return reshape(x, shape_of(extents));
}

Tensor cat(std::initializer_list<Tensor> tensors, int dim) {
  return cat(std::span(tensors.begin(), tensors.size()), dim);
}
Tensor stack(std::span<const Tensor> tensors, int dim) { return cat(unsqueezed(tensors, dim), dim); }
Tensor stack(std::initializer_list<Tensor> tensors, int dim) {
  return stack(std::span(tensors.begin(), tensors.size()), dim);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int dim) {
  dim = check_dim("chunk", x, dim);
  SG_CHECK(count >= 1, "chunk: ", count, " parts of ", x.shape());
  int64_t extent = x.size(dim), size = extent / count + (extent % count != 0);
  Extents sizes(extent == 0 ? size_t(count) : 0, 0);
  for (int64_t begin = 0; begin < extent; begin += size) sizes.push_back(std::min(size, extent - begin));
  return split(x, sizes, dim);
}

Tensor select(const Tensor& x, int dim, int64_t i) {
  dim = check_dim("select", x, dim);
  int64_t at = i < 0 ? i + x.size(dim) : i;
  SG_CHECK(0 <= at && at < x.size(dim), "select: there is no element ", i, " in dimension ", dim, " of ", x.shape());
  return squeeze(slice(x, dim, at, at + 1), dim);
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, int64_t step) {
  dim = check_dim("slice", x, dim);
  if (begin < 0) begin += x.size(dim);
  if (end < 0) end += x.size(dim);
  SG_CHECK(step >= 1, "slice: step ", step, " of ", x.shape(),
           " is not possible; flip(x, {dim}) turns the order round");
  if (step == 1) return slice_of("slice", x, dim, begin, end);
  check_range("slice", x, dim, begin, end);
  int64_t extent = end - begin;
  step = std::min(step, std::max<int64_t>(1, extent));
  Tensor numbers = arange(extent / step + (extent % step != 0), {DType::i64, x.device()});
  return index_select(x, dim, affine(numbers, step, begin));
}

Tensor flip(const Tensor& x, std::initializer_list<int> dims) { return flip(x, std::span(dims.begin(), dims.size())); }
Tensor flip(const Tensor& x, std::span<const int> dims) {
  unsigned turned = 0;
  for (int dim : dims) {
    unsigned bit = 1u << check_dim("flip", x, dim);
    SG_CHECK((turned & bit) == 0, "flip: dimension ", dim, " of shape ", x.shape(), " is given twice");
    turned |= bit;
  }
  Tensor y = empty_like(x, "flip");
  launch(kernels::flip, x, out(y), x, turned);
  if (auto* node = record<Flip>(y, x)) node->dims = turned;
  return y;
}

Tensor roll(const Tensor& x, int64_t by, int dim) {
  dim = check_dim("roll", x, dim);
  int64_t extent = x.size(dim), cut = extent ? (extent - by % extent) % extent : 0;
  if (cut == 0) return x;
  return cat({slice(x, dim, cut, extent), slice(x, dim, 0, cut)}, dim);
}

Tensor repeat(const Tensor& x, std::initializer_list<int64_t> times) {
  return repeat(x, std::span(times.begin(), times.size()));
}
// Each dimension n becomes (times, n), which broadcasts, and then one again.
Tensor repeat(const Tensor& x, std::span<const int64_t> times) {
  SG_CHECK(int(times.size()) >= x.ndim(), "repeat: ", times.size(), " numbers for shape ", x.shape(),
           "; there must be one for each dimension");
  Tensor y = x;
  int dim = x.ndim() - int(times.size());
  Extents extents(size_t(-dim), 1), whole = extents_of(x);
  extents.insert(extents.end(), whole.begin(), whole.end());
  y = reshape(y, shape_of(extents));
  for (size_t d = 0; d < times.size(); ++d) {
    int64_t n = times[d];
    SG_CHECK(n >= 0, "repeat: ", n, " times is not possible");
    int64_t before = 1, after = 1;
    for (size_t k = 0; k < d; ++k) before *= y.size(int(k));
    for (size_t k = d; k < times.size(); ++k) after *= y.size(int(k));
    Tensor once = reshape(y, {before, 1, after});
    extents[d] *= n;
    y = reshape(n == 1 ? once : expand(once, {before, n, after}), shape_of(extents));
  }
  return y;
}

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle("triu", x, diagonal, false); }

}  // namespace shardgrad
