#pragma once
// Layers of images: convolutions, pooling, and what makes rows of them.

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

namespace detail {
/// ±1/√(numbers that make one result), as PyTorch begins. Throws Error(input) where the channels do not divide, and for
/// a kernel without elements.
inline double conv_bound(const char* layer, int64_t in, int64_t out, int64_t groups, Size2d kernel) {
  SG_CHECK(groups >= 1 && in % groups == 0 && out % groups == 0, layer, ": ", in, " and ", out, " channels in ", groups,
           " groups are not possible; they must divide");
  SG_CHECK(kernel.down >= 1 && kernel.across >= 1, layer, ": a kernel of ", kernel.down, " x ", kernel.across,
           " is not possible");
  double fan_in = double(in / groups) * double(kernel.down) * double(kernel.across);
  return fan_in > 0 ? 1 / std::sqrt(fan_in) : 0;
}
}  // namespace detail

/// x (samples, in, height, width) to (samples, out, height', width'). Initialised like PyTorch's: uniform in ±1/√(in ·
/// kernel² / groups).
class Conv2d : public Module {
 public:
  Tensor weight, bias;  ///< (out, in / groups, kernel, kernel), (out); bias is undefined without one

  Conv2d(int64_t in, int64_t out, Size2d kernel, const ConvOptions& options = {}, bool with_bias = true)
      : options_(options) {
    double bound = detail::conv_bound("Conv2d", in, out, options.groups, kernel);
    weight = param("weight", {out, in / options.groups, kernel.down, kernel.across}, init::uniform(-bound, bound));
    if (with_bias) bias = param("bias", {out}, init::uniform(-bound, bound));
  }
  Tensor forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

 private:
  ConvOptions options_;
};

/// x (samples, in, length) to (samples, out, length'), likewise.
class Conv1d : public Module {
 public:
  Tensor weight, bias;  ///< (out, in / groups, kernel), (out)

  Conv1d(int64_t in, int64_t out, int64_t kernel, const ConvOptions& options = {}, bool with_bias = true)
      : options_(options) {
    double bound = detail::conv_bound("Conv1d", in, out, options.groups, {1, kernel});
    weight = param("weight", {out, in / options.groups, kernel}, init::uniform(-bound, bound));
    if (with_bias) bias = param("bias", {out}, init::uniform(-bound, bound));
  }
  Tensor forward(const Tensor& x) { return conv1d(x, weight, bias, options_); }

 private:
  ConvOptions options_;
};

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2d kernel, const PoolOptions& options = {}) : kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) { return max_pool2d(x, kernel_, options_); }

 private:
  Size2d kernel_;
  PoolOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2d kernel, const PoolOptions& options = {}) : kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) { return avg_pool2d(x, kernel_, options_); }

 private:
  Size2d kernel_;
  PoolOptions options_;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2d size) : size_(size) {}
  Tensor forward(const Tensor& x) { return adaptive_avg_pool2d(x, size_); }

 private:
  Size2d size_;
};

/// Pooling of lines (samples, channels, length), as of images that are one row high; of the options what is across
/// counts.
class LinePool : public Module {
 protected:
  LinePool(int64_t kernel, const PoolOptions& options) : kernel_(1, kernel), options_(options) {
    options_.stride.down = options.stride.across > 0 ? 1 : 0;
    options_.padding.down = 0;
  }
  template <class Pool> Tensor pooled(Pool pool, const Tensor& x) const {
    SG_CHECK(x.ndim() == 3, type_name(), ": the input is (samples, channels, length), got ", x.shape());
    return squeeze(pool(unsqueeze(x, 2), kernel_, options_), 2);
  }

 private:
  Size2d kernel_;
  PoolOptions options_;
};

class MaxPool1d : public LinePool {
 public:
  explicit MaxPool1d(int64_t kernel, const PoolOptions& options = {}) : LinePool(kernel, options) {}
  Tensor forward(const Tensor& x) { return pooled(max_pool2d, x); }
};

class AvgPool1d : public LinePool {
 public:
  explicit AvgPool1d(int64_t kernel, const PoolOptions& options = {}) : LinePool(kernel, options) {}
  Tensor forward(const Tensor& x) { return pooled(avg_pool2d, x); }
};

class AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(int64_t size) : size_(1, size) {}
  Tensor forward(const Tensor& x) { return squeeze(adaptive_avg_pool2d(unsqueeze(x, -2), size_), -2); }

 private:
  Size2d size_;
};

/// Dimensions first to last, both included, as one: all but that of the samples.
class Flatten : public Module {
 public:
  explicit Flatten(int first = 1, int last = -1) : first_(first), last_(last) {}
  Tensor forward(const Tensor& x) { return flatten(x, first_, last_); }

 private:
  int first_, last_;
};

struct Identity : Module {
  Tensor forward(const Tensor& x) { return x; }
};

}  // namespace shardgrad::nn
