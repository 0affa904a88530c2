// An image is seen as rows of channels, one for each of its H · W places and one more for the padding. A window is a
// list of such rows: for x of 2 x 2 places and a kernel of 2 with padding 1, the first of nine windows is the padding's
// row three times and row 0. So all windows are one index_select, the convolution one product, and backward what those
// have.

#include <limits>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

using kernels::ConvArgs;

/// Windows over both dimensions of (N, C, H, W).
struct Windows {
  Window down, across;
  int64_t rows, columns;  // places
  Tensor index;  // of each place's elements in turn, the row of the image: `height · width` where it is padding
  Windows(const char* op, const Tensor& x, Window h, Window w) : down(h), across(w) {
    SG_CHECK(x.ndim() == 4, op, ": x is (samples, channels, height, width), got ", x.shape());
    bool kernels = down.kernel >= 1 && across.kernel >= 1;
    SG_CHECK(kernels && down.stride >= 1 && across.stride >= 1 && down.dilation >= 1 && across.dilation >= 1 &&
                 down.padding >= 0,
             op, ": kernel ", down.kernel, " x ", across.kernel, ", stride ", down.stride, ", dilation ", down.dilation,
             " and padding ", down.padding, " are not possible");
    rows = down.places(x.size(2)), columns = across.places(x.size(3));
    SG_CHECK(rows > 0 && columns > 0, op, ": a window of ", down.kernel, " x ", across.kernel, " does not fit into ",
             x.shape(), " with padding ", down.padding);
    index = from_vector(elements_of_places(x.size(2), x.size(3)), {places() * elements()}, {DType::i64, x.device()});
  }
  int64_t places() const { return rows * columns; }
  int64_t elements() const { return down.kernel * across.kernel; }

  std::vector<int64_t> elements_of_places(int64_t height, int64_t width) const {
    std::vector<int64_t> at;
    at.reserve(size_t(places() * elements()));
    auto within = [](const Window& w, int64_t place, int64_t k) {
      return place * w.stride + k * w.dilation - w.padding;
    };
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t i = 0; i < down.kernel; ++i)
          for (int64_t j = 0; j < across.kernel; ++j) {
            int64_t y = within(down, r, i), z = within(across, c, j);
            bool inside = y >= 0 && y < height && z >= 0 && z < width;
            at.push_back(inside ? y * width + z : height * width);
          }
    return at;
  }

  /// (N, places, elements, C)
  Tensor of(const Tensor& x, double padding) const {
    int64_t n = x.size(0), channels = x.size(1);
    Tensor image = reshape(permute(x, {0, 2, 3, 1}), {n, x.size(2) * x.size(3), channels});
    if (down.padding > 0 || across.padding > 0)
      image = cat({image, full({n, 1, channels}, padding, {x.dtype(), x.device()})}, 1);
    return reshape(index_select(image, 1, index), {n, places(), elements(), channels});
  }
  /// (N, places, C) as an image again.
  Tensor image(const Tensor& y) const {
    return permute(reshape(y, {y.size(0), rows, columns, y.size(2)}), {0, 3, 1, 2});
  }
};

struct Conv2d final : Node {
  const char* name() const override { return "conv2d"; }
  ConvArgs args;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    if (dx[1].wanted() || dx[2].wanted())
      launch(kernels::conv2d_backward_weight, dy[0], destination(dx[1]), destination(dx[2]), dy[0], saved(0), args);
    if (dx[0].wanted()) launch(kernels::conv2d_backward_input, dy[0], dx[0].write(), dy[0], saved(1), args);
  }
};

void check_window(const char* op, const Window& window) {
  SG_CHECK(window.kernel >= 1 && window.stride >= 1 && window.padding >= 0 && window.dilation >= 1, op, ": kernel ",
           window.kernel, ", stride ", window.stride, ", padding ", window.padding, " and dilation ", window.dilation,
           " are not possible");
}

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
  SG_CHECK(args.down.places(x.size(2)) > 0 && args.across.places(x.size(3)) > 0, op, ": a window of ",
           args.down.kernel, " x ", args.across.kernel, " does not fit into ", x.shape(), " with padding ",
           args.down.padding, " and ", args.across.padding);
}

// Of images; `op` is what the caller called it.
Tensor convolve(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvArgs& args) {
  check_conv(op, x, weight, bias, args);
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

Windows pooling(const char* op, const Tensor& x, int64_t kernel, const PoolOptions& options) {
  SG_CHECK(kernel >= 1 && options.stride >= 0 && 2 * options.padding <= kernel, op, ": kernel ", kernel, ", stride ",
           options.stride, " and padding ", options.padding,
           " are not possible; padding is at most half of the kernel");
  check_floating(op, x);
  Window window{kernel, options.stride ? options.stride : kernel, options.padding};
  return {op, x, window, window};
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
  Tensor of_row = unsqueeze(weight, 2);
  ConvArgs args = args_of(of_row, options);
  args.down = {.kernel = 1};  // an image one element high
  return squeeze(convolve("conv1d", unsqueeze(x, 2), of_row, bias, args), 2);
}

Tensor max_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options) {
  Windows windows = pooling("max_pool2d", x, kernel, options);
  return windows.image(max(windows.of(x, -std::numeric_limits<double>::infinity()), 2).values);
}

Tensor avg_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options) {
  Windows windows = pooling("avg_pool2d", x, kernel, options);
  return windows.image(mean(windows.of(x, 0), 2));
}

}  // namespace shardgrad
