#include <shardgrad/autograd/converted_copies.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/autograd/recompute.h>
#include <shardgrad/core/pretend_zeros.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Cast final : Node {
  const char* name() const override { return "cast"; }
  Tensor source;  // a leaf: who needs its converted copy for backward keeps the leaf, and converts again
  uint64_t version = 0, copy_version = 0;  // of the leaf and of the copy when it was converted
  const Tensor* source_of_copy(const Tensor& copy) const override {
    return source.defined() && source.version() == version && copy.version() == copy_version ? &source : nullptr;
  }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::cast, dy[0], dx[0].write(), dy[0]);
  }
};

struct ToDevice final : Node {
  const char* name() const override { return "to_device"; }
  Device from;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override { dx[0].alias(to_device(dy[0], from)); }
};

struct Clone final : Node {
  const char* name() const override { return "clone"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override { dx[0].alias(dy[0]); }
};

void record_cast(const Tensor& y, const Tensor& x) {
  auto* node = is_floating(y.dtype()) ? record<Cast>(y, x) : nullptr;
  if (node && x.is_leaf() && !recomputing())
    node->source = x, node->version = x.version(), node->copy_version = y.version();
}

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), {dtype, x.device()});
  launch(kernels::cast, x, out(y), x);
  record_cast(y, x);
  return y;
}

Tensor cast_shared(const Tensor& x, DType dtype) {
  detail::ConvertedCopies* copies = detail::autocast.of(context()).copies;
  Tensor shared = copies ? copies->of(x, dtype) : Tensor();
  if (!shared.defined()) return cast(x, dtype);
  record_cast(shared, x);
  return shared;
}

Tensor to_device(const Tensor& x, Device device) {
  bool pretended = x.device() == kMeta && device == kCpu && detail::pretends_zeros.of(context());
  if (x.device() == device || pretended) return x;
  SG_CHECK(x.device() != kMeta, "to_device: ", x, " has no values to copy to ", device);
  Tensor y = empty(x.shape(), {x.dtype(), device});
  copy_into(y, x);  // in the order of the device's compute stream; the host may change x as soon as this returns
  if (auto* node = record<ToDevice>(y, x)) node->from = x.device();
  return y;
}

Tensor clone(const Tensor& x) {
  Tensor y = of_each(kernels::copy, x);
  record<Clone>(y, x);
  return y;
}

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }
Tensor Tensor::to(Device device) const { return to_device(*this, device); }

}  // namespace shardgrad
