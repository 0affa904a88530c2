#pragma once
// Convolutions and pooling of images (autograd/ops.h), samples first, then channels, as in PyTorch. They are made of an
// index of rows and a product: the windows of all places side by side, times the weight. So they run on every device,
// and cost the memory of the windows: kernel height times width times the input, over the stride.

#include <shardgrad/core/tensor.h>
#include <shardgrad/kernels/window.h>

namespace shardgrad {

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
/// The largest of each square window of x (N, C, H, W), of fewer than 2^31 places; NaN is larger than any number, and
/// what is padded smaller. Of equal ones the first has the gradient.
Tensor max_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options = {});
/// The mean of each square window, zeros at the padding counted.
Tensor avg_pool2d(const Tensor& x, int64_t kernel, const PoolOptions& options = {});
/// The means of size · size parts of each image: row i of them goes from ⌊i · H / size⌋ to ⌈(i + 1) · H / size⌉, and
/// columns likewise.
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t size);

}  // namespace shardgrad
