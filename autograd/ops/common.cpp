#include <shardgrad/autograd/ops/common.h>

#include <shardgrad/kernels/ops.h>

namespace shardgrad {

void check_same_kind(const char* op, const Tensor& a, const Tensor& b) {
  SG_CHECK(a.dtype() == b.dtype(), op, ": dtypes ", a.dtype(), " (shape ", a.shape(), ") and ", b.dtype(), " (shape ",
           b.shape(), ") differ; convert one with .to(dtype)");
  SG_CHECK(a.device() == b.device(), op, ": devices ", a.device(), " (shape ", a.shape(), ") and ", b.device(),
           " (shape ", b.shape(), ") differ; move one with .to(device)");
}

void check_floating(const char* op, const Tensor& x) {
  SG_CHECK(is_floating(x.dtype()), op, ": needs a floating dtype, got ", x, "; convert it with .to(dtype)");
}

Tensor broadcast_empty(const char* op, const Tensor& a, const Tensor& b, DType dtype) {
  check_same_kind(op, a, b);
  return empty(a.shape() == b.shape() ? a.shape() : broadcast_shapes(op, a.shape(), b.shape()), {dtype, a.device()});
}

void reduce_to(GradSlot& dx, const Tensor& dy, const Shape& shape) {
  if (!dx.wanted()) return;
  if (dy.shape() == shape) dx.alias(dy);
  else launch(kernels::sum_to, dy, dx.write(), dy);
}

}  // namespace shardgrad
