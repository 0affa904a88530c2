#include <limits>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct LayerNorm final : Node {
  const char* name() const override { return "layer_norm"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::layer_norm_backward, dy[0], destination(dx[0]), destination(dx[1]), destination(dx[2]), dy[0],
           saved(0), saved(1), saved(2), saved(3));
  }
};

struct RmsNorm final : Node {
  const char* name() const override { return "rms_norm"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::rms_norm_backward, dy[0], destination(dx[0]), destination(dx[1]), dy[0], saved(0), saved(1),
           saved(2));
  }
};

struct BatchNorm final : Node {
  const char* name() const override { return "batch_norm"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::batch_norm_backward, dy[0], destination(dx[0]), destination(dx[1]), destination(dx[2]), dy[0],
           saved(0), saved(1), saved(2), saved(3));
  }
};

// x is (samples, channels, …): as a matrix, or with all places along one dimension.
Shape with_places(const Tensor& x) {
  if (x.ndim() == 2) return x.shape();
  int64_t places = 1;
  for (int d = 2; d < x.ndim(); ++d) places *= x.size(d);
  return {x.size(0), x.size(1), places};
}
int64_t elements_of_channel(const Shape& x) { return x[0] * (x.ndim() > 2 ? x[2] : 1); }
// What has one number for each channel, as it broadcasts against x.
Shape beside(const Shape& x) { return x.ndim() > 2 ? Shape{x[1], 1} : Shape{x[1]}; }
Tensor sum_of_channels(const Tensor& x) { return x.ndim() > 2 ? sum(x, {0, 2}) : sum(x, 0); }

struct GroupNorm final : Node {
  const char* name() const override { return "group_norm"; }
  int64_t groups = 1;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::group_norm_backward, dy[0], destination(dx[0]), destination(dx[1]), destination(dx[2]), dy[0],
           saved(0), saved(1), saved(2), saved(3), groups);
  }
};

struct BatchNormApply final : Node {
  const char* name() const override { return "batch_norm_apply"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &x = saved(0), &mean = saved(1), &rstd = saved(2), &weight = saved(3);
    DType dtype = dy[0].dtype(), wide = rstd.dtype();
    Shape shape = with_places(dy[0]), one_each = beside(shape);
    Tensor g = dy[0].alias(shape);
    if (dx[0].wanted()) {
      Tensor scale = cast(weight.defined() ? mul(rstd, cast(weight, wide)) : rstd, dtype);
      launch(kernels::mul, g, view_of(dx[0].write(), shape), g, scale.alias(one_each));
    }
    if (dx[1].wanted()) {
      Tensor normalised = mul(sub(cast(x.alias(shape), wide), mean.alias(one_each)), rstd.alias(one_each));
      dx[1].alias(cast(sum_of_channels(mul(cast(g, wide), normalised)), dtype));
    }
    if (dx[2].wanted()) launch(kernels::sum_to, g, view_of(dx[2].write(), one_each), g);
  }
};

// With n samples on all ranks, x̂ = (x - mean) · rstd and g = dy · weight:
//     dx = rstd · (g - Σg / n - x̂ · Σ(g · x̂) / n),   sums over the samples of all ranks
// Gradients of weight and bias are this rank's part, as those of any parameter.
struct SyncBatchNorm final : Node {
  const char* name() const override { return "sync_batch_norm"; }
  SumOverRanks sum_over_ranks;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &x = saved(0), &weight = saved(1), &mean = saved(2), &rstd = saved(3), &samples = saved(4);
    DType given = x.dtype(), wide = rstd.dtype();
    Shape shape = with_places(x), one_each = beside(shape);
    Tensor g = cast(dy[0].alias(shape), wide);
    Tensor normalised = mul(sub(cast(x.alias(shape), wide), mean.alias(one_each)), rstd.alias(one_each));
    Tensor parts[] = {sum_of_channels(mul(g, normalised)), sum_of_channels(g)};
    if (dx[0].wanted()) {
      Tensor means = cat(parts, 0);
      sum_over_ranks(means);
      means = div(means, samples);
      int64_t channels = mean.numel();
      Tensor scale = weight.defined() ? mul(rstd, cast(weight, wide)) : rstd;
      auto mean_of = [&](int64_t k) { return means.rows(k * channels, (k + 1) * channels).alias(one_each); };
      Tensor rest = sub(sub(g, mean_of(1)), mul(normalised, mean_of(0)));
      dx[0].alias(cast(mul(rest, scale.alias(one_each)), given).alias(x.shape()));
    }
    for (size_t i : {1, 2})
      if (dx[i].wanted()) dx[i].alias(cast(parts[i - 1], given));
  }
};

struct Statistics {
  Tensor mean, rstd, samples;
};

// Of x with_places. In two passes: a variance from sums of squares would cancel.
Statistics statistics_of(const Tensor& x, const SumOverRanks& sum_over_ranks, double eps) {
  NoGrad no_grad;
  int64_t channels = x.size(1);
  double count = double(elements_of_channel(x.shape()));
  Tensor sums[] = {sum_of_channels(x), full({1}, count, {x.dtype(), x.device()})};
  Tensor totals = cat(sums, 0);
  sum_over_ranks(totals);
  Tensor samples = totals.rows(channels, channels + 1);
  Tensor divisor = clamp(samples, 1, std::numeric_limits<double>::infinity());
  Tensor mean = div(totals.rows(0, channels), divisor), centered = sub(x, mean.alias(beside(x.shape())));
  Tensor squares = sum_of_channels(mul(centered, centered));
  sum_over_ranks(squares);
  return {mean, pow(div(squares, divisor) + eps, -0.5), samples};
}

void check_channels(const char* op, const Tensor& x) {
  SG_CHECK(x.ndim() >= 2, op, ": the input must be (samples, channels, …), got ", x.shape());
}

}  // namespace

void check_scale(const char* op, const Tensor& x, int dim, const Tensor& weight, const Tensor& bias) {
  check_floating(op, x);
  for (const Tensor* each : {&weight, &bias}) {
    if (!each->defined()) continue;
    check_same_kind(op, x, *each);
    SG_CHECK(each->ndim() == 1 && each->size(0) == x.size(dim), op, ": ", each == &weight ? "weight " : "bias ",
             each->shape(), " does not fit input ", x.shape(), "; it must be (", x.size(dim), ")");
  }
  bool same = (weight.defined() && (weight.same_as(bias) || weight.same_as(x))) || (bias.defined() && bias.same_as(x));
  SG_CHECK(!same, op, ": input, weight and bias must be different tensors; clone() one");
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (should_widen(x, weight, bias)) return layer_norm(widened(x), widened(weight), widened(bias), eps);
  SG_CHECK(x.ndim() >= 1, "layer_norm: needs at least one dimension, got a scalar");
  check_scale("layer_norm", x, -1, weight, bias);
  Tensor rows = as_rows(x);
  TensorOptions statistics{sum_dtype(x.dtype()), x.device()};
  Tensor y = empty_like(x), mean = empty({rows.size(0)}, statistics), rstd = empty({rows.size(0)}, statistics);
  launch(kernels::layer_norm, x, view_of(out(y), rows.shape()), out(mean), out(rstd), rows, weight, bias, eps);
  if (auto* node = record<LayerNorm>(y, x, weight, bias)) node->save(x, weight, mean, rstd);
  return y;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  if (should_widen(x, weight)) return rms_norm(widened(x), widened(weight), eps);
  SG_CHECK(x.ndim() >= 1, "rms_norm: needs at least one dimension, got a scalar");
  check_scale("rms_norm", x, -1, weight, Tensor());
  Tensor rows = as_rows(x), y = empty_like(x), rstd = empty({rows.size(0)}, {sum_dtype(x.dtype()), x.device()});
  launch(kernels::rms_norm, x, view_of(out(y), rows.shape()), out(rstd), rows, weight, eps);
  if (auto* node = record<RmsNorm>(y, x, weight)) node->save(x, weight, rstd);
  return y;
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  if (should_widen(x, weight, bias)) return group_norm(widened(x), groups, widened(weight), widened(bias), eps);
  check_channels("group_norm", x);
  check_scale("group_norm", x, 1, weight, bias);
  SG_CHECK(groups >= 1 && x.size(1) % groups == 0, "group_norm: ", x.size(1), " channels in ", groups,
           " groups are not possible; they must divide");
  TensorOptions statistics{sum_dtype(x.dtype()), x.device()};
  Tensor y = empty_like(x), mean = empty({x.size(0), groups}, statistics), rstd = empty(mean.shape(), statistics);
  launch(kernels::group_norm, x, out(y), out(mean), out(rstd), x, weight, bias, groups, eps);
  if (auto* node = record<GroupNorm>(y, x, weight, bias)) {
    node->groups = groups;
    node->save(x, weight, mean, rstd);
  }
  return y;
}

BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (should_widen(x, weight, bias)) return batch_norm(widened(x), widened(weight), widened(bias), eps);
  check_channels("batch_norm", x);
  check_scale("batch_norm", x, 1, weight, bias);
  SG_CHECK(elements_of_channel(with_places(x)) > 0, "batch_norm: an input of shape ", x.shape(),
           " has no samples to take statistics of");
  TensorOptions statistics{sum_dtype(x.dtype()), x.device()};
  BatchNormResult result{empty_like(x), empty({x.size(1)}, statistics), empty({x.size(1)}, statistics)};
  launch(kernels::batch_norm, x, out(result.y), out(result.mean), out(result.rstd), x, weight, bias, eps);
  if (auto* node = record<BatchNorm>(result.y, x, weight, bias)) node->save(x, weight, result.mean, result.rstd);
  return result;
}

BatchNormResult sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const SumOverRanks& sum_over_ranks, double eps) {
  if (should_widen(x, weight, bias))
    return sync_batch_norm(widened(x), widened(weight), widened(bias), sum_over_ranks, eps);
  check_channels("sync_batch_norm", x);
  check_scale("sync_batch_norm", x, 1, weight, bias);
  auto [mean, rstd, samples] =
      statistics_of(cast(x.detach().alias(with_places(x)), sum_dtype(x.dtype())), sum_over_ranks, eps);
  BatchNormResult result{empty_like(x), mean, rstd, samples};
  launch(kernels::batch_norm_apply, x, out(result.y), x, mean, rstd, weight, bias);
  if (auto* node = record<SyncBatchNorm>(result.y, x, weight, bias)) {
    node->sum_over_ranks = sum_over_ranks;
    node->save(x, weight, mean, rstd, samples);
  }
  return result;
}

Tensor batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                        const Tensor& bias) {
  if (should_widen(x, weight, bias)) return batch_norm_apply(widened(x), mean, rstd, widened(weight), widened(bias));
  check_channels("batch_norm_apply", x);
  check_scale("batch_norm_apply", x, 1, weight, bias);
  for (const Tensor* each : {&mean, &rstd})
    SG_CHECK(each->ndim() == 1 && each->size(0) == x.size(1) && each->dtype() == sum_dtype(x.dtype()) &&
                 each->device() == x.device() && !each->requires_grad(),
             "batch_norm_apply: ", each == &mean ? "mean " : "rstd ", *each, " does not fit input ", x,
             "; it must be (channels), without grad, of dtype ", sum_dtype(x.dtype()),
             " and on the input's device; convert it with .to(dtype) or .to(device)");
  Tensor y = empty_like(x);
  launch(kernels::batch_norm_apply, x, out(y), x, mean, rstd, weight, bias);
  if (auto* node = record<BatchNormApply>(y, x, weight, bias))
    node->save(kept_if(needs_grad(weight), x), mean, rstd, weight);
  return y;
}

}  // namespace shardgrad
