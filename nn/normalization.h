#pragma once

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Normalises the last dimension to mean 0 and variance 1, then scales by weight and adds bias, both (features).
class LayerNorm : public Module {
 public:
  Tensor weight, bias;  ///< undefined when not affine

  explicit LayerNorm(int64_t features, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& x) { return layer_norm(x, weight, bias, eps_); }

 private:
  double eps_;
};

/// Normalises each channel of x (samples, channels) over the samples. In training with the batch's own statistics,
/// which also move the running ones by `momentum` (the variance in its unbiased form, as PyTorch's); in evaluation with
/// the running ones. The statistics are of this rank's samples.
class BatchNorm1d : public Module {
 public:
  Tensor weight, bias;  ///< (channels); undefined when not affine
  Tensor running_mean, running_var;

  explicit BatchNorm1d(int64_t channels, double eps = 1e-5, double momentum = 0.1, bool affine = true);
  /// Throws Error(input) in training for one sample, which has no variance. A rank without samples takes part: the
  /// result is empty, its gradients are zero, and the running statistics stay as they are.
  Tensor forward(const Tensor& x);

 private:
  void update_running(const BatchNormResult& batch, double samples);
  double eps_, momentum_;
};

}  // namespace shardgrad::nn
