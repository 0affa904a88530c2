#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/autograd/ops/windows.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

using kernels::ConvArgs;

struct Conv2d final : Node {
  const char* name() const override { return "conv2d"; }
  ConvArgs args;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    if (dx[1].wanted() || dx[2].wanted())
      launch(kernels::conv2d_backward_weight, dy[0], destination(dx[1]), destination(dx[2]), dy[0], saved(0), args);
    if (dx[0].wanted()) launch(kernels::conv2d_backward_input, dy[0], dx[0].write(), dy[0], saved(1), args);
  }
};

void check_conv(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvArgs& args) {
  check_same_kind(op, x, weight);
  check_floating(op, x);
  check_window(op, args.down);
  check_window(op, args.across);
  int64_t groups = args.groups;
  SG_CHECK(groups >= 1 && x.size(1) == groups * weight.size(1) && weight.size(0) % groups == 0, op, ": weight ",
           weight.shape(), " does not fit x ", x.shape(), " in ", groups, " groups");
  if (bias.defined()) check_same_kind(op, weight, bias);
  SG_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)}, op, ": bias ", bias, " does not fit weight ",
           weight.shape());
  SG_CHECK(args.down.places(x.size(2)) > 0 && args.across.places(x.size(3)) > 0, op, ": a window of ", args.down.kernel,
           " x ", args.across.kernel, " does not fit into ", x.shape(), " with padding ", args.down.padding, " and ",
           args.across.padding);
  SG_CHECK(padded(x.size(2), args.down) < kCounted && padded(x.size(3), args.across) < kCounted &&
               x.size(2) * x.size(3) < kCounted &&
               args.down.places(x.size(2)) * args.across.places(x.size(3)) < kCounted,
           op, ": images of ", x.shape(), " with padding ", args.down.padding, " and ", args.across.padding,
           " have 2^31 places or more, which is more than it counts");
}

// Of images; `op` is what the caller called it.
Tensor convolve(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, ConvArgs args) {
  check_conv(op, x, weight, bias, args);
  // Beyond the image a stride makes no difference, but kernels go through the remainders by it.
  args.down.stride = std::min(args.down.stride, padded(x.size(2), args.down));
  args.across.stride = std::min(args.across.stride, padded(x.size(3), args.across));
  Shape shape{x.size(0), weight.size(0), args.down.places(x.size(2)), args.across.places(x.size(3))};
  Tensor y = empty(shape, {x.dtype(), x.device()});
  launch(kernels::conv2d, x, out(y), x, weight, bias, args);
  if (auto* node = record<Conv2d>(y, x, weight, bias)) {
    node->args = args;
    node->save(kept_if(needs_grad(weight), x), kept_if(needs_grad(x), weight));
  }
  return y;
}

ConvArgs args_of(const Tensor& weight, const ConvOptions& o) {
  return {{weight.size(2), o.stride.down, o.padding.down, o.dilation.down},
          {weight.size(3), o.stride.across, o.padding.across, o.dilation.across},
          o.groups};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  if (should_lower(x, weight, bias)) return conv2d(lowered(x), lowered(weight), lowered(bias), options);
  SG_CHECK(x.ndim() == 4 && weight.ndim() == 4, "conv2d: x is (samples, channels, height, width) and the weight ",
           "(out, channels, height, width), got ", x.shape(), " and ", weight.shape());
  return convolve("conv2d", x, weight, bias, args_of(weight, options));
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  if (should_lower(x, weight, bias)) return conv1d(lowered(x), lowered(weight), lowered(bias), options);
  SG_CHECK(x.ndim() == 3 && weight.ndim() == 3,
           "conv1d: x is (samples, channels, length) and the weight (out, channels, ", "length), got ", x.shape(),
           " and ", weight.shape());
  check_same_kind("conv1d", x, weight);
  Tensor of_row = unsqueeze(weight, 2);
  ConvArgs args = args_of(of_row, options);
  args.down = {.kernel = 1};  // an image one element high
  return squeeze(convolve("conv1d", unsqueeze(x, 2), of_row, bias, args), 2);
}

}  // namespace shardgrad
