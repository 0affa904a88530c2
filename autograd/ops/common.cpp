#include <shardgrad/autograd/ops/common.h>

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {

void check_same_kind(const char* op, const Tensor& a, const Tensor& b) {
  SG_CHECK(a.dtype() == b.dtype(), op, ": dtypes ", a.dtype(), " (shape ", a.shape(), ") and ", b.dtype(), " (shape ",
           b.shape(), ") differ; convert one with .to(dtype)");
  SG_CHECK(a.device() == b.device(), op, ": devices ", a.device(), " (shape ", a.shape(), ") and ", b.device(),
           " (shape ", b.shape(), ") differ; move one with .to(device)");
}

void check_range(const char* op, const Tensor& x, int dim, int64_t begin, int64_t end) {
  SG_CHECK(0 <= begin && begin <= end && end <= x.size(dim), op, ": [", begin, ", ", end, ") is not within dimension ",
           dim, " of ", x.shape());
}

void check_floating(const char* op, const Tensor& x) {
  SG_CHECK(is_floating(x.dtype()), op, ": needs a floating dtype, got ", x, "; convert it with .to(dtype)");
}

void check_index(const char* op, const Tensor& x, const Tensor& index) {
  SG_CHECK(index.dtype() == DType::i64, op, ": the index must be i64, got ", index, " for ", x,
           "; convert it with .to(dtype)");
  SG_CHECK(index.device() == x.device(), op, ": the index of shape ", index.shape(), " is on ", index.device(),
           " and the tensor of shape ", x.shape(), " on ", x.device(), "; move one with .to(device)");
}

int check_dim(const char* op, const Tensor& x, int dim) {
  int resolved = dim < 0 ? dim + x.ndim() : dim;
  SG_CHECK(resolved >= 0 && resolved < x.ndim(), op, ": a tensor of shape ", x.shape(), " has no dimension ", dim);
  return resolved;
}

std::array<bool, kMaxDims> check_dims(const char* op, const Tensor& x, std::span<const int> dims) {
  std::array<bool, kMaxDims> given{};
  SG_CHECK(!dims.empty(), op, ": no dimension of ", x.shape(), " is given; ", op, "(x) reduces all");
  for (int dim : dims) {
    bool& here = given[size_t(check_dim(op, x, dim))];
    SG_CHECK(!here, op, ": dimension ", dim, " of shape ", x.shape(), " is given twice");
    here = true;
  }
  return given;
}

Tensor broadcast_empty(const char* op, const Tensor& a, const Tensor& b, DType dtype) {
  check_same_kind(op, a, b);
  return empty(a.shape() == b.shape() ? a.shape() : broadcast_shapes(op, a.shape(), b.shape()), {dtype, a.device()},
               op);
}

void reduce_to(GradSlot& dx, const Tensor& dy, const Shape& shape) {
  if (!dx.wanted()) return;
  if (dy.shape() == shape)
    dx.alias(dy);
  else
    launch(kernels::sum_to, dy, dx.write(), dy);
}

Out accumulating(const Out& to) {
  if (to.beta == 0) launch(kernels::fill, to.tensor, to, 0.0);
  return out(to.tensor, 1);
}

// Whether a tensor of whole numbers can hold it.
static bool is_held(double value, DType dtype) {
  if (dtype == DType::u8) return value >= 0 && value < 0x1p8;
  double limit = dtype == DType::i32 ? 0x1p31 : 0x1p63;
  return value >= -limit && value < limit;
}

void check_held(const char* op, const Scalar& value, DType dtype) {
  if (!is_floating(dtype)) value.check_exact(op);
  SG_CHECK(is_floating(dtype) || is_held(std::trunc(value), dtype), op, ": the number ", value, " does not fit into ",
           dtype);
}

Tensor number_beside(const char* op, const Tensor& x, const Scalar& value) {
  if (!is_floating(x.dtype())) value.check_exact(op);
  SG_CHECK(is_floating(x.dtype()) || (value == std::trunc(value) && is_held(value, x.dtype())), op, ": the number ",
           value, " beside ", x, " is no integer of dtype ", x.dtype(), "; convert it with .to(dtype)");
  return full({}, value, {x.dtype(), x.device()});
}

Tensor wide(const Tensor& x) { return cast(x, sum_dtype(x.dtype())); }

Tensor nonzero_flags(const Tensor& x) { return ne(x, zeros({}, {x.dtype(), x.device()})); }

// The index in two halves: a double holds each of them.
Tensor counted_labels(const Tensor& labels, int64_t ignore_index) {
  Tensor high = full({}, ignore_index >> 32, {DType::i64, labels.device()});
  return ne(labels, affine(high, 0x1p32, ignore_index & 0xffffffff));
}

Tensor as_rows(const Tensor& x) {
  if (x.ndim() == 2) return x;
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.size(d);
  return x.alias({rows, x.size(-1)});
}

}  // namespace shardgrad
