#pragma once
// Convolutions and pooling of images (autograd/ops.h), samples first, then channels, as in PyTorch. They are made of an
// index of rows and a product: the windows of all places side by side, times the weight. So they run on every device,
// and cost the memory of the windows: kernel height times width times the input, over the stride.

#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// How a window of `kernel` elements goes over an extent: every `stride`-th place of the input with `padding` elements
/// more at both ends, its elements `dilation` apart.
struct Window {
  int64_t kernel, stride = 1, padding = 0, dilation = 1;
  /// How many places there are.
  int64_t places(int64_t extent) const {
    int64_t room = extent + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  }
};

/// The same along both dimensions.
struct ConvOptions {
  int64_t stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;  ///< channels are cut into so many parts, each with a part of the weight
};
/// x (N, C, H, W), weight (O, C / groups, kernel height, kernel width), bias (O) or undefined: (N, O, H', W'), a
/// cross-correlation with zeros around x.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options = {});
/// x (N, C, L), weight (O, C / groups, kernel): (N, O, L').
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options = {});

struct PoolOptions {
  int64_t stride = 0;  ///< 0: the kernel, so that windows do not overlap
  int64_t padding = 0;
};
/// The largest of each square window of x (N, C, H, W); what is padded is smaller than any.
Tensor max_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options = {});
/// The mean of each square window, zeros at the padding.
Tensor avg_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options = {});

}  // namespace shardgrad
