#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Reshape final : Node {
  const char* name() const override { return called; }
  const char* called = "reshape";
  Shape from;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override { dx[0].alias(dy[0].alias(from)); }
};

struct Permute final : Node {
  const char* name() const override { return "permute"; }
  kernels::Permutation inverse{};
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::permute, dy[0], dx[0].write(), dy[0], inverse);
  }
};

struct SliceNode final : Node {
  const char* name() const override { return called; }
  const char* called = "slice";
  int dim = 0;
  int64_t begin = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::narrow_backward, dy[0], dx[0].write(), dy[0], dim, begin);
  }
};

// Elements [begin, end) along dim: a view along dimension 0, a copy otherwise.
Tensor narrow(const Tensor& x, int dim, int64_t begin, int64_t end) {
  if (dim == 0) return x.alias_rows(begin, end);
  Tensor y = empty(x.shape().with(dim, end - begin), {x.dtype(), x.device()});
  launch(kernels::narrow, x, out(y), x, dim, begin);
  return y;
}

struct Cat final : Node {
  const char* name() const override { return "cat"; }
  int dim = 0;
  std::vector<int64_t> sizes;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    for (int64_t i = 0, begin = 0; i < int64_t(sizes.size()); begin += sizes[size_t(i++)]) {
      GradSlot& slot = dx[size_t(i)];
      if (!slot.wanted()) continue;
      if (dim == 0)
        slot.alias(dy[0].alias_rows(begin, begin + sizes[size_t(i)]));
      else
        launch(kernels::narrow, dy[0], slot.write(), dy[0], dim, begin);
    }
  }
};

struct Split final : Node {
  const char* name() const override { return "split"; }
  int dim = 0;
  std::vector<int64_t> sizes;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    for (int64_t i = 0, begin = 0; i < int64_t(sizes.size()); begin += sizes[size_t(i++)])
      if (const Tensor& part = dy[size_t(i)]; part.defined())
        launch(kernels::narrow_backward, part, dx[0].write(), part, dim, begin);
  }
};

struct Expand final : Node {
  const char* name() const override { return "expand"; }
  Shape from;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override { reduce_to(dx[0], dy[0], from); }
};

Tensor permute_by(const Tensor& x, const kernels::Permutation& dims) {
  std::array<int64_t, kMaxDims> extents{};
  kernels::Permutation inverse{};
  for (int d = 0; d < x.ndim(); ++d) {
    extents[size_t(d)] = x.size(dims[size_t(d)]);
    inverse[size_t(dims[size_t(d)])] = d;
  }
  Tensor y = empty(Shape(std::span(extents.data(), size_t(x.ndim()))), {x.dtype(), x.device()});
  launch(kernels::permute, x, out(y), x, dims);
  if (auto* node = record<Permute>(y, x)) node->inverse = inverse;
  return y;
}

Tensor reshape_called(const char* called, const Tensor& x, const Shape& shape) {
  SG_CHECK(shape.numel() == x.numel(), called, ": ", x.shape(), " has ", x.numel(), " elements, ", shape, " has ",
           shape.numel());
  Tensor y = x.alias(shape);
  if (auto* node = record<Reshape>(y, x)) node->called = called, node->from = x.shape();
  return y;
}

}  // namespace

Tensor slice_of(const char* op, const Tensor& x, int dim, int64_t begin, int64_t end) {
  dim = check_dim(op, x, dim);
  check_range(op, x, dim, begin, end);
  Tensor y = narrow(x, dim, begin, end);
  if (auto* node = record<SliceNode>(y, x)) node->called = op, node->dim = dim, node->begin = begin;
  return y;
}

Tensor reshape(const Tensor& x, const Shape& shape) { return reshape_called("reshape", x, shape); }

Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims) {
  return reshape(x, std::span(dims.begin(), dims.size()));
}

Tensor reshape(const Tensor& x, std::span<const int64_t> dims) {
  std::vector<int64_t> extents(dims.begin(), dims.end());
  auto open = std::ranges::find(extents, -1);
  if (open == extents.end()) return reshape(x, Shape(std::span<const int64_t>(extents)));
  SG_CHECK(std::ranges::count(extents, -1) == 1, "reshape: only one extent may be -1");
  *open = 1;
  int64_t known = Shape(std::span<const int64_t>(extents)).numel();
  SG_CHECK(known > 0 && x.numel() % known == 0, "reshape: ", x.shape(), " with ", x.numel(),
           " elements does not divide into the other extents, whose product is ", known);
  *open = x.numel() / known;
  return reshape(x, Shape(std::span<const int64_t>(extents)));
}

Tensor Tensor::view(const Shape& shape) const { return reshape_called("view", *this, shape); }

Tensor permute(const Tensor& x, std::initializer_list<int> dims) {
  return permute(x, std::span(dims.begin(), dims.size()));
}

Tensor permute(const Tensor& x, std::span<const int> dims) {
  SG_CHECK(int(dims.size()) == x.ndim(), "permute: ", dims.size(), " dimensions given for shape ", x.shape());
  kernels::Permutation order{};
  std::array<bool, kMaxDims> used{};
  size_t place = 0;
  for (int dim : dims) {
    int resolved = check_dim("permute", x, dim);
    SG_CHECK(!used[size_t(resolved)], "permute: dimension ", dim, " of shape ", x.shape(), " is given twice");
    used[size_t(resolved)] = true;
    order[place++] = resolved;
  }
  return permute_by(x, order);
}

Tensor transpose(const Tensor& x, int a, int b) {
  kernels::Permutation order{};
  for (int d = 0; d < x.ndim(); ++d) order[size_t(d)] = d;
  std::swap(order[size_t(check_dim("transpose", x, a))], order[size_t(check_dim("transpose", x, b))]);
  return permute_by(x, order);
}

Tensor Tensor::rows(int64_t begin, int64_t end) const { return slice_of("rows", *this, 0, begin, end); }

Tensor cat(std::span<const Tensor> tensors, int dim) {
  SG_CHECK(!tensors.empty(), "cat: needs at least one tensor");
  if (std::ranges::any_of(tensors, [&](const Tensor& x) { return should_promote(tensors[0], x); })) {
    std::vector<Tensor> wide;
    for (const Tensor& x : tensors) wide.push_back(widened(x));
    return cat(wide, dim);
  }
  const Tensor& first = tensors[0];
  dim = check_dim("cat", first, dim);
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const Tensor& x : tensors) {
    check_same_kind("cat", first, x);
    SG_CHECK(x.ndim() == first.ndim() && x.shape().with(dim, 0) == first.shape().with(dim, 0), "cat: ", first.shape(),
             " and ", x.shape(), " differ in more than dimension ", dim);
    sizes.push_back(x.size(dim));
    total += x.size(dim);
  }
  Tensor y = empty(first.shape().with(dim, total), {first.dtype(), first.device()});
  int64_t begin = 0;
  for (const Tensor& x : tensors) {
    launch(kernels::paste, x, out(y), x, dim, begin);
    begin += x.size(dim);
  }
  if (auto* node = record_all<Cat>({&y, 1}, tensors)) node->dim = dim, node->sizes = std::move(sizes);
  return y;
}

std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int dim) {
  dim = check_dim("split", x, dim);
  int64_t total = 0;
  for (int64_t size : sizes) {
    SG_CHECK(size >= 0, "split: size ", size, " is negative");
    total += size;
  }
  SG_CHECK(total == x.size(dim), "split: sizes add up to ", total, ", dimension ", dim, " of ", x.shape(), " has ",
           x.size(dim));
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    parts.push_back(narrow(x, dim, begin, begin + size));
    begin += size;
  }
  if (auto* node = record_all<Split>(parts, {&x, 1})) node->dim = dim, node->sizes.assign(sizes.begin(), sizes.end());
  return parts;
}

Tensor expand(const Tensor& x, const Shape& shape) {
  SG_CHECK(broadcast_shapes("expand", x.shape(), shape) == shape, "expand: ", x.shape(), " does not broadcast to ",
           shape);
  Tensor y = empty(shape, {x.dtype(), x.device()});
  launch(kernels::expand, x, out(y), x);
  if (auto* node = record<Expand>(y, x)) node->from = x.shape();
  return y;
}

}  // namespace shardgrad
