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
  /// x + residual, and what forward makes of it.
  AddNormResult of_sum(const Tensor& x, const Tensor& residual) const {
    return add_layer_norm(x, residual, weight, bias, eps_);
  }

 private:
  double eps_;
};

/// Divides the last dimension by its root mean square, then scales by weight (features).
class RMSNorm : public Module {
 public:
  Tensor weight;  ///< undefined when not affine

  explicit RMSNorm(int64_t features, double eps = 1e-6, bool affine = true);
  Tensor forward(const Tensor& x) { return rms_norm(x, weight, eps_); }
  /// x + residual, and what forward makes of it.
  AddNormResult of_sum(const Tensor& x, const Tensor& residual) const {
    return add_rms_norm(x, residual, weight, eps_);
  }

 private:
  double eps_;
};

/// x + residual, and what `norm`, a LayerNorm or an RMSNorm, makes of it: one operation where calling it is nothing but
/// its forward, else two, with its hooks around the second. Bits are the same.
template <class Norm> AddNormResult add_and_norm(const Child<Norm>& norm, const Tensor& x, const Tensor& residual) {
  if (norm->direct()) return norm->of_sum(x, residual);
  Tensor sum = x + residual;
  return {sum, norm(sum)};
}

/// Normalises each channel of x (samples, channels), or (samples, channels, length), over the samples and their places,
/// which count alike. In training with the batch's own statistics, which also move the running ones by `momentum` (the
/// variance in its unbiased form, as PyTorch's); in evaluation with the running ones. The statistics are of this rank's
/// samples, or of all ranks' once fsdp::convert_sync_batchnorm was called.
class BatchNorm1d : public Module {
 public:
  Tensor weight, bias;               ///< (channels); undefined when not affine
  Tensor running_mean, running_var;  ///< in f32 where the rest is of 16 bits

  explicit BatchNorm1d(int64_t channels, double eps = 1e-5, double momentum = 0.1, bool affine = true);
  /// Throws Error(input) in training for one element of each channel, which has no variance. A rank without samples
  /// takes part: the result is empty, its gradients are zero, and the running statistics stay as they are.
  Tensor forward(const Tensor& x);
  /// Takes statistics in training from the samples of all ranks that `sum_over_ranks` adds up, from now on. Then a rank
  /// may have any number of samples, if they are at least two together.
  void synchronise(SumOverRanks sum_over_ranks) { sum_over_ranks_ = std::move(sum_over_ranks); }
  bool synchronised() const { return bool(sum_over_ranks_); }

 protected:
  Tensor normalize(const Tensor& x);

 private:
  Tensor forward_of_all_ranks(const Tensor& x, int64_t count);
  void update_running(const BatchNormResult& batch, const Tensor& unbiased);
  double eps_, momentum_;
  SumOverRanks sum_over_ranks_;
};

/// The same of images (samples, channels, height, width).
class BatchNorm2d : public BatchNorm1d {
 public:
  using BatchNorm1d::BatchNorm1d;
  Tensor forward(const Tensor& x);
};

/// Normalises each of `groups` parts of the channels of a sample, x (samples, channels, …), to mean 0 and variance 1,
/// then scales each channel by weight and adds bias.
class GroupNorm : public Module {
 public:
  Tensor weight, bias;  ///< (channels); undefined when not affine

  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& x);

 private:
  int64_t groups_, channels_;
  double eps_;
};

}  // namespace shardgrad::nn
