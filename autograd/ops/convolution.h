#pragma once
// Convolutions and pooling of images (autograd/ops.h), samples first, then channels, as in PyTorch. Backward keeps the
// image and the weight, never an array of windows.

#include <shardgrad/core/tensor.h>
#include <shardgrad/kernels/window.h>

namespace shardgrad {

/// Down and across an image; a single number is both.
struct Size2d {
  int64_t down, across;
  Size2d(int64_t both) : down(both), across(both) {}
  Size2d(int64_t down, int64_t across) : down(down), across(across) {}
};

/// How windows go over an image, as Window says for one dimension.
struct ConvOptions {
  Size2d stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;  ///< channels are cut into so many parts, each with a part of the weight
};
/// x (N, C, H, W), weight (O, C / groups, kernel height, kernel width), bias (O) or undefined: (N, O, H', W'), a
/// cross-correlation with zeros around x. An image has fewer than 2^31 places, its result too.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options = {});
/// x (N, C, L), weight (O, C / groups, kernel): (N, O, L'), by the options across.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options = {});

struct PoolOptions {
  Size2d stride = 0;  ///< 0: the kernel, so that windows do not overlap
  Size2d padding = 0;
  bool ceil_mode = false;         ///< windows that the image ends in the middle of count, if they begin before its end
  bool count_include_pad = true;  ///< of avg_pool2d: zeros at the padding are of the mean
};
/// The largest of each window of x (N, C, H, W), of fewer than 2^31 places; NaN is larger than any number, and what is
/// padded smaller. Of equal ones the first has the gradient.
Tensor max_pool2d(const Tensor& x, Size2d kernel, const PoolOptions& options = {});
/// The mean of each window.
Tensor avg_pool2d(const Tensor& x, Size2d kernel, const PoolOptions& options = {});
constexpr int64_t kSameExtent = -1;  ///< in the size of adaptive_avg_pool2d: the image's own
/// The means of size.down · size.across parts of each image: row i of them goes from ⌊i · H / size.down⌋ to
/// ⌈(i + 1) · H / size.down⌉, and columns likewise.
Tensor adaptive_avg_pool2d(const Tensor& x, Size2d size);

}  // namespace shardgrad
