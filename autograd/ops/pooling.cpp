#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
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
}

kernels::PoolArgs square_windows(const char* op, int64_t kernel, const PoolOptions& options) {
  SG_CHECK(kernel >= 1 && options.stride >= 0 && options.padding >= 0 && 2 * options.padding <= kernel, op, ": kernel ",
           kernel, ", stride ", options.stride, " and padding ", options.padding,
           " are not possible; padding is at most half of the kernel");
  Window window{kernel, options.stride ? options.stride : kernel, options.padding};
  return {window, window};
}

Tensor empty_pooled(const char* op, const Tensor& x, const kernels::PoolArgs& args) {
  int64_t rows = args.down.places(x.size(2)), columns = args.across.places(x.size(3));
  SG_CHECK(rows > 0 && columns > 0, op, ": a window of ", args.down.kernel, " x ", args.across.kernel,
           " does not fit into ", x.shape(), " with padding ", args.down.padding);
  return empty({x.size(0), x.size(1), rows, columns}, {x.dtype(), x.device()}, op);
}

Tensor mean_of_windows(const Tensor& x, const kernels::PoolArgs& args) {
  Tensor y = empty_pooled("avg_pool2d", x, args);
  launch(kernels::avg_pool2d, x, out(y), x, args);
  if (auto* node = record<AvgPool2d>(y, x)) node->args = args;
  return y;
}

// A dimension's `size` parts, which may overlap, as their means side by side.
Tensor means_of_parts(const Tensor& x, int dim, int64_t size) {
  std::vector<Tensor> means;
  for (int64_t i = 0, extent = x.size(dim); i < size; ++i)
    means.push_back(mean(slice(x, dim, i * extent / size, ((i + 1) * extent + size - 1) / size), dim, true));
  return cat(means, dim);
}

}  // namespace

Tensor max_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options) {
  check_image("max_pool2d", x);
  kernels::PoolArgs args = square_windows("max_pool2d", kernel, options);
  SG_CHECK(x.size(2) * x.size(3) < int64_t(1) << 31, "max_pool2d: images of ", x.shape(),
           " have 2^31 places or more, which is more than it counts");
  Tensor y = empty_pooled("max_pool2d", x, args), index;
  if (will_record(x)) index = empty(y.shape(), {DType::i32, x.device()});
  launch(kernels::max_pool2d, x, out(y), index.defined() ? out(index) : unwanted(), x, args);
  if (auto* node = record<MaxPool2d>(y, x)) {
    node->args = args;
    node->save(index);
  }
  return y;
}

Tensor avg_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options) {
  check_image("avg_pool2d", x);
  return mean_of_windows(x, square_windows("avg_pool2d", kernel, options));
}

Tensor adaptive_avg_pool2d(const Tensor& x, int64_t size) {
  check_image("adaptive_avg_pool2d", x);
  SG_CHECK(size >= 1, "adaptive_avg_pool2d: a size of ", size, " is not possible");
  int64_t height = x.size(2), width = x.size(3);
  if (size == 1) return cast(mean(wide(x), {2, 3}, true), x.dtype());
  if (height % size == 0 && width % size == 0)
    return mean_of_windows(x, {{height / size, height / size}, {width / size, width / size}});
  return cast(means_of_parts(means_of_parts(wide(x), 2, size), 3, size), x.dtype());
}

}  // namespace shardgrad
