#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/autograd/ops/windows.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// It keeps where the largest were, not x.
struct MaxPool2d final : Node {
  const char* name() const override { return "max_pool2d"; }
  kernels::PoolArgs args;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::max_pool2d_backward, dy[0], dx[0].write(), dy[0], saved(0), args);
  }
};

struct AvgPool2d final : Node {
  const char* name() const override { return "avg_pool2d"; }
  kernels::PoolArgs args;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::avg_pool2d_backward, dy[0], dx[0].write(), dy[0], args);
  }
};

void check_image(const char* op, const Tensor& x) {
  check_floating(op, x);
  SG_CHECK(x.ndim() == 4, op, ": x is (samples, channels, height, width), got ", x.shape());
  SG_CHECK(x.size(2) > 0 && x.size(3) > 0, op, ": images of ", x.shape(), " have no places");
  SG_CHECK(std::max(x.size(2), x.size(3)) < kCounted, op, ": images of ", x.shape(),
           " have 2^31 rows or columns, or more, which is more than it counts");
}

// Beyond the image a stride makes no difference.
Window window_of(const char* op, int64_t extent, int64_t kernel, int64_t stride, int64_t padding) {
  Window window{kernel, stride == 0 ? kernel : stride, padding};
  check_window(op, window);
  SG_CHECK(2 * padding <= kernel, op, ": kernel ", kernel, ", stride ", window.stride, " and padding ", padding,
           " are not possible; padding is at most half of the kernel");
  window.stride = std::min(window.stride, std::max(kernel, padded(extent, window)));
  return window;
}

kernels::PoolArgs windows_of(const char* op, const Tensor& x, const Size2d& kernel, const PoolOptions& o) {
  return {window_of(op, x.size(2), kernel.down, o.stride.down, o.padding.down),
          window_of(op, x.size(3), kernel.across, o.stride.across, o.padding.across), o.count_include_pad};
}

// With `ceil` one more where the image ends within a window that begins in it, or in its padding before it.
int64_t places_of(const Window& window, int64_t extent, bool ceil) {
  if (!ceil) return window.places(extent);
  int64_t beyond = padded(extent, window) - window.kernel + window.stride - 1;
  if (beyond < 0) return 0;
  int64_t last = beyond / window.stride;
  return last * window.stride >= extent + window.padding ? last : last + 1;
}

Tensor empty_pooled(const char* op, const Tensor& x, const kernels::PoolArgs& args, bool ceil) {
  int64_t rows = places_of(args.down, x.size(2), ceil), columns = places_of(args.across, x.size(3), ceil);
  SG_CHECK(rows > 0 && columns > 0, op, ": a window of ", args.down.kernel, " x ", args.across.kernel,
           " does not fit into ", x.shape(), " with padding ", args.down.padding, " and ", args.across.padding);
  return empty({x.size(0), x.size(1), rows, columns}, {x.dtype(), x.device()}, op);
}

Tensor means(const Tensor& x, Tensor y, const kernels::PoolArgs& args) {
  launch(kernels::avg_pool2d, x, out(y), x, args);
  if (auto* node = record<AvgPool2d>(y, x)) node->args = args;
  return y;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2d kernel, const PoolOptions& options) {
  check_image("max_pool2d", x);
  kernels::PoolArgs args = windows_of("max_pool2d", x, kernel, options);
  SG_CHECK(x.size(2) * x.size(3) < kCounted, "max_pool2d: images of ", x.shape(),
           " have 2^31 places or more, which is more than it counts");
  Tensor y = empty_pooled("max_pool2d", x, args, options.ceil_mode), index;
  if (will_record(x)) index = empty(y.shape(), {DType::i32, x.device()});
  launch(kernels::max_pool2d, x, out(y), index.defined() ? out(index) : unwanted(), x, args);
  if (auto* node = record<MaxPool2d>(y, x)) {
    node->args = args;
    node->save(index);
  }
  return y;
}

Tensor avg_pool2d(const Tensor& x, Size2d kernel, const PoolOptions& options) {
  check_image("avg_pool2d", x);
  kernels::PoolArgs args = windows_of("avg_pool2d", x, kernel, options);
  return means(x, empty_pooled("avg_pool2d", x, args, options.ceil_mode), args);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d size) {
  check_image("adaptive_avg_pool2d", x);
  int64_t height = x.size(2), width = x.size(3);
  int64_t rows = size.down == kSameExtent ? height : size.down,
          columns = size.across == kSameExtent ? width : size.across;
  SG_CHECK(rows >= 1 && columns >= 1 && std::max(rows, columns) < kCounted, "adaptive_avg_pool2d: a size of ",
           size.down, " x ", size.across, " is not possible");
  if (rows == 1 && columns == 1) return cast(mean(wide(x), {2, 3}, true), x.dtype());
  bool parts = height % rows != 0 || width % columns != 0;
  auto window = [parts](int64_t extent, int64_t places) {
    int64_t kernel = std::max<int64_t>(1, extent / places);
    return Window{parts ? kernel + 1 : kernel, kernel};  // of parts this only says about how many elements they have
  };
  Tensor y = empty({x.size(0), x.size(1), rows, columns}, {x.dtype(), x.device()}, "adaptive_avg_pool2d");
  return means(x, y, {window(height, rows), window(width, columns), true, parts});
}

}  // namespace shardgrad
