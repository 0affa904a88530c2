#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct IndexSelect final : Node {
  const char* name() const override { return "index_select"; }
  int dim = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::index_add, dy[0], accumulating(dx[0].write()), dy[0], saved(0), dim);
  }
};

struct Gather final : Node {
  const char* name() const override { return "gather"; }
  int dim = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::scatter_add, dy[0], accumulating(dx[0].write()), dy[0], saved(0), dim);
  }
};

struct ScatterAdd final : Node {
  const char* name() const override { return "scatter_add"; }
  int dim = 0;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    if (dx[0].wanted()) dx[0].alias(dy[0]);
    if (dx[1].wanted()) launch(kernels::gather, dy[0], dx[1].write(), dy[0], saved(0), dim);
  }
};

struct Embedding final : Node {
  const char* name() const override { return "embedding"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor& ids = saved(0);  // (count)
    Tensor rows = dy[0].alias({ids.numel(), dy[0].size(-1)});
    launch(kernels::index_add, rows, accumulating(dx[0].write()), rows, ids, 0);
  }
};

// index has x's dimensions and reaches past none of them but `dim`.
void check_index_shape(const char* op, const Tensor& x, int dim, const Tensor& index) {
  check_index(op, x, index);
  bool fits = index.ndim() == x.ndim();
  for (int d = 0; fits && d < x.ndim(); ++d) fits = d == dim || index.size(d) <= x.size(d);
  SG_CHECK(fits, op, ": index ", index.shape(), " does not fit ", x.shape(),
           "; it needs as many dimensions and may be larger along dimension ", dim, " only");
}

}  // namespace

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  dim = check_dim("index_select", x, dim);
  check_index("index_select", x, index);
  SG_CHECK(index.ndim() == 1, "index_select: the index must have one dimension, got ", index.shape());
  Tensor y = empty(x.shape().with(dim, index.numel()), {x.dtype(), x.device()});
  launch(kernels::index_select, x, out(y), x, index, dim);
  if (auto* node = record<IndexSelect>(y, x)) {
    node->dim = dim;
    node->save(index);
  }
  return y;
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  dim = check_dim("gather", x, dim);
  check_index_shape("gather", x, dim, index);
  Tensor y = empty(index.shape(), {x.dtype(), x.device()});
  launch(kernels::gather, x, out(y), x, index, dim);
  if (auto* node = record<Gather>(y, x)) {
    node->dim = dim;
    node->save(index);
  }
  return y;
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  if (should_promote(x, src)) return scatter_add(widened(x), dim, index, widened(src));
  dim = check_dim("scatter_add", x, dim);
  check_same_kind("scatter_add", x, src);
  check_index_shape("scatter_add", x, dim, index);
  SG_CHECK(index.shape() == src.shape(), "scatter_add: index ", index.shape(), " and source ", src.shape(),
           " must have the same shape");
  Tensor y = of_each(kernels::copy, x);
  launch(kernels::scatter_add, src, out(y, 1), src, index, dim);
  if (auto* node = record<ScatterAdd>(y, x, src)) {
    node->dim = dim;
    node->save(index);
  }
  return y;
}

Tensor embedding(const Tensor& table, const Tensor& ids, int64_t rows) {
  SG_CHECK(table.ndim() == 2, "embedding: the table must be (rows, width), got ", table.shape());
  SG_CHECK(0 <= rows && rows <= table.size(0), "embedding: the table ", table.shape(), " has no ", rows, " rows");
  check_index("embedding", table, ids);
  SG_CHECK(ids.ndim() < kMaxDims, "embedding: ids ", ids.shape(), " have too many dimensions");
  std::array<int64_t, kMaxDims> extents{};
  std::copy(ids.shape().begin(), ids.shape().end(), extents.begin());
  extents[size_t(ids.ndim())] = table.size(1);
  Tensor flat = ids.alias({ids.numel()});
  Tensor y = empty(Shape(std::span(extents.data(), size_t(ids.ndim()) + 1)), {table.dtype(), table.device()});
  const Tensor used = rows == 0 ? table : table.alias_rows(0, rows);
  launch(kernels::index_select, table, view_of(out(y), {ids.numel(), table.size(1)}), used, flat, 0);
  if (auto* node = record<Embedding>(y, table)) node->save(flat);
  return y;
}

Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype) {
  SG_CHECK(labels.dtype() == DType::i64 && labels.ndim() == 1, "one_hot: labels must be i64 (N), got ", labels,
           "; convert them with .to(dtype)");
  SG_CHECK(classes > 0, "one_hot: ", classes, " classes");
  Tensor y = zeros({labels.size(0), classes}, {dtype, labels.device()});
  Tensor one = ones({labels.size(0), 1}, {dtype, labels.device()});
  launch(kernels::scatter_add, one, out(y, 1), one, labels.alias({labels.size(0), 1}), 1);
  return y;
}

}  // namespace shardgrad
