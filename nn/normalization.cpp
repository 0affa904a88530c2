#include <shardgrad/nn/normalization.h>

#include <limits>

#include <shardgrad/core/context.h>

namespace shardgrad::nn {

LayerNorm::LayerNorm(int64_t features, double eps, bool affine) : eps_(eps) {
  if (!affine) return;
  weight = param("weight", {features}, init::ones());
  bias = param("bias", {features}, init::zeros());
}

RMSNorm::RMSNorm(int64_t features, double eps, bool affine) : eps_(eps) {
  if (affine) weight = param("weight", {features}, init::ones());
}

BatchNorm1d::BatchNorm1d(int64_t channels, double eps, double momentum, bool affine) : eps_(eps), momentum_(momentum) {
  if (affine) {
    weight = param("weight", {channels}, init::ones());
    bias = param("bias", {channels}, init::zeros());
  }
  running_mean = buffer("running_mean", {channels}, DType::f32, 0);
  running_var = buffer("running_var", {channels}, DType::f32, 1);
  for (const auto& statistic : own_buffers()) statistic.object->keeps_f32 = true;
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  SG_CHECK(x.ndim() == 2 || x.ndim() == 3, "BatchNorm1d: the input is (samples, channels), or (samples, channels, ",
           "length), got ", x.shape());
  return normalize(x);
}

Tensor BatchNorm1d::normalize(const Tensor& x) {
  int64_t count = x.size(1) ? x.numel() / x.size(1) : x.size(0);
  if (training() && sum_over_ranks_) return forward_of_all_ranks(x, count);
  // No samples have no statistics: nothing moves, the result is empty and the gradients are zero.
  if (!training() || count == 0) {
    DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
    return batch_norm_apply(x, running_mean.to(wide), pow(running_var.to(wide) + eps_, -0.5), weight, bias);
  }
  SG_CHECK(count >= 2, type_name(), ": in training a channel must have at least two elements, or none, got ",
           x.shape());
  BatchNormResult batch = batch_norm(x, weight, bias, eps_);
  if (!recomputing())
    update_running(batch, full({1}, double(count) / double(count - 1), {batch.mean.dtype(), x.device()}));
  return batch.y;
}

// A rank with two elements of each channel knows that there are enough; one that has fewer looks at the sum, and all do
// if all have.
Tensor BatchNorm1d::forward_of_all_ranks(const Tensor& x, int64_t count) {
  BatchNormResult batch = sync_batch_norm(x, weight, bias, sum_over_ranks_, eps_);
  bool few = count < 2 && x.device() != kMeta;
  double samples = few ? batch.samples.item() : 2;
  SG_CHECK(samples != 1, type_name(), ": in training the ranks have one sample together, which has no variance; they ",
           "need two, or none");
  if (samples > 0 && !recomputing()) update_running(batch, batch.samples / (batch.samples - 1));
  return batch.y;
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  SG_CHECK(x.ndim() == 4, "BatchNorm2d: the input is (samples, channels, height, width), got ", x.shape());
  return normalize(x);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps, bool affine)
    : groups_(groups), channels_(channels), eps_(eps) {
  SG_CHECK(groups >= 1 && channels % groups == 0, "GroupNorm: ", channels, " channels in ", groups,
           " groups are not possible; they must divide");
  if (!affine) return;
  weight = param("weight", {channels}, init::ones());
  bias = param("bias", {channels}, init::zeros());
}

Tensor GroupNorm::forward(const Tensor& x) {
  SG_CHECK(x.ndim() >= 2 && x.size(1) == channels_, "GroupNorm: the input is (samples, ", channels_, ", …), got ",
           x.shape());
  return group_norm(x, groups_, weight, bias, eps_);
}

void BatchNorm1d::update_running(const BatchNormResult& batch, const Tensor& unbiased) {
  NoGrad no_grad;
  Tensor biased = clamp(pow(batch.rstd, -2) - eps_, 0, std::numeric_limits<double>::infinity());
  auto move = [](const Tensor& running, double keep, const Tensor& step) {
    copy_into(running, (running.to(step.dtype()) * keep + step).to(running.dtype()));
  };
  move(running_mean, 1 - momentum_, batch.mean * momentum_);
  move(running_var, 1 - momentum_, biased * unbiased * momentum_);
}

}  // namespace shardgrad::nn
