#include <shardgrad/nn/normalization.h>

#include <limits>

#include <shardgrad/core/context.h>

namespace shardgrad::nn {

LayerNorm::LayerNorm(int64_t features, double eps, bool affine) : eps_(eps) {
  if (!affine) return;
  weight = param("weight", {features}, init::ones());
  bias = param("bias", {features}, init::zeros());
}

BatchNorm1d::BatchNorm1d(int64_t channels, double eps, double momentum, bool affine) : eps_(eps), momentum_(momentum) {
  if (affine) {
    weight = param("weight", {channels}, init::ones());
    bias = param("bias", {channels}, init::zeros());
  }
  running_mean = buffer("running_mean", {channels}, DType::f32, 0);
  running_var = buffer("running_var", {channels}, DType::f32, 1);
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  // No samples have no statistics: nothing moves, the result is empty and the gradients are zero.
  bool empty = x.ndim() == 2 && x.size(0) == 0;
  if (!training() || empty) {
    DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
    return batch_norm_apply(x, running_mean.to(wide), pow(running_var.to(wide) + eps_, -0.5), weight, bias);
  }
  SG_CHECK(x.ndim() == 2 && x.size(0) >= 2,
           "BatchNorm1d: in training the input must be (samples, channels) with at least two samples, or none, got ",
           x.shape());
  BatchNormResult batch = batch_norm(x, weight, bias, eps_);
  if (!recomputing()) update_running(batch, double(x.size(0)));
  return batch.y;
}

void BatchNorm1d::update_running(const BatchNormResult& batch, double samples) {
  NoGrad no_grad;
  Tensor biased = clamp(pow(batch.rstd, -2) - eps_, 0, std::numeric_limits<double>::infinity());
  double unbiased = samples / (samples - 1);
  auto move = [](const Tensor& running, double keep, const Tensor& step) {
    copy_into(running, (running.to(step.dtype()) * keep + step).to(running.dtype()));
  };
  move(running_mean, 1 - momentum_, batch.mean * momentum_);
  move(running_var, 1 - momentum_, biased * (momentum_ * unbiased));
}

}  // namespace shardgrad::nn
