// An image is seen as rows of channels, one for each of its H · W places and one more for the padding. A window is a
// list of such rows: for x of 2 x 2 places and a kernel of 2 with padding 1, the first of nine windows is the padding's
// row three times and row 0. So all windows are one index_select, the convolution one product, and backward what those
// have.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>

namespace shardgrad {
namespace {

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

Tensor one_group(const Tensor& x, const Tensor& weight, const Windows& windows) {
  int64_t n = x.size(0), width = windows.elements() * x.size(1);
  Tensor rows = reshape(windows.of(x, 0), {n, windows.places(), width});
  Tensor matrix = reshape(permute(weight, {0, 2, 3, 1}), {weight.size(0), width});
  return windows.image(linear(rows, matrix, Tensor()));
}

void check_conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  check_same_kind("conv2d", x, weight);
  check_floating("conv2d", x);
  SG_CHECK(x.ndim() == 4 && weight.ndim() == 4, "conv2d: x is (samples, channels, height, width) and the weight ",
           "(out, channels, height, width), got ", x.shape(), " and ", weight.shape());
  int64_t groups = options.groups;
  SG_CHECK(groups >= 1 && x.size(1) == groups * weight.size(1) && weight.size(0) % groups == 0, "conv2d: weight ",
           weight.shape(), " does not fit x ", x.shape(), " in ", groups, " groups");
  SG_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "conv2d: bias ", bias, " does not fit weight ",
           weight.shape());
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  if (should_lower(x, weight))
    return conv2d(lowered(x), lowered(weight), bias.defined() ? lowered(bias) : bias, options);
  check_conv(x, weight, bias, options);
  auto window = [&](int64_t kernel) { return Window{kernel, options.stride, options.padding, options.dilation}; };
  Windows windows("conv2d", x, window(weight.size(2)), window(weight.size(3)));
  int64_t groups = options.groups, in = weight.size(1), out = weight.size(0) / groups;
  std::vector<Tensor> parts;
  for (int64_t g = 0; g < groups; ++g)
    parts.push_back(one_group(groups == 1 ? x : slice(x, 1, g * in, (g + 1) * in),
                              groups == 1 ? weight : slice(weight, 0, g * out, (g + 1) * out), windows));
  Tensor y = groups == 1 ? parts[0] : cat(parts, 1);
  return bias.defined() ? y + reshape(bias, {-1, 1, 1}) : y;
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  SG_CHECK(x.ndim() == 3 && weight.ndim() == 3,
           "conv1d: x is (samples, channels, length) and the weight (out, channels, ", "length), got ", x.shape(),
           " and ", weight.shape());
  SG_CHECK(options.padding >= 0, "conv1d: padding ", options.padding, " is not possible");
  Tensor padded = x;
  if (options.padding > 0) {
    Tensor zero = zeros({x.size(0), x.size(1), options.padding}, {x.dtype(), x.device()});
    padded = cat({zero, x, zero}, 2);
  }
  ConvOptions along = options;  // of an image one element high, whose height has one place only
  along.padding = 0;
  return squeeze(conv2d(unsqueeze(padded, 2), unsqueeze(weight, 2), bias, along), 2);
}

}  // namespace shardgrad
