#include <shardgrad/optim/grad_scaler.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::optim {
namespace {

// 0 · x is 0 for a finite x and not a number otherwise, and so is the sum. The host waits once per device.
bool all_finite(const std::vector<Tensor>& gradients) {
  NoGrad no_grad;
  TagScope owner(Category::workspace);
  std::vector<Tensor> sums;
  for (const Tensor& gradient : gradients) {
    auto same = [&](const Tensor& sum) { return sum.device() == gradient.device() && sum.dtype() == gradient.dtype(); };
    auto sum = std::ranges::find_if(sums, same);
    if (sum == sums.end()) sum = sums.insert(sum, zeros({}, {gradient.dtype(), gradient.device()}));
    Tensor zero = affine(gradient, 0, 0);
    launch(kernels::sum_to, zero, out(*sum, 1), zero);
  }
  return std::ranges::all_of(sums, [](const Tensor& sum) { return sum.device() == kMeta || sum.item() == 0; });
}

// Ranks that decide alone would step apart.
void check_alone(const Optimizer& optimizer) {
  for (const NamedParameter& parameter : optimizer.parameters()) {
    if (!parameter.tensor.requires_grad()) continue;
    bool sharded = leaf_of(parameter.tensor).sink() != nullptr;
    SG_CHECK(!sharded && is_whole(parameter.tensor.shape(), parameter.part), "GradScaler: the gradient of '",
             parameter.name, "' is spread over the ranks, which must leave out a step together; make the scaler with ",
             "fsdp::sharded_grad_scaler(", sharded ? "*sharded" : "mesh.world()", ")");
  }
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options, Sum sum_over_ranks)
    : options_(options), sum_(std::move(sum_over_ranks)), factor_(options.init_scale) {
  check_option("GradScaler", "init_scale", options.init_scale, options.init_scale > 0);
  check_option("GradScaler", "growth_factor", options.growth_factor, options.growth_factor > 1);
  check_option("GradScaler", "backoff_factor", options.backoff_factor,
               options.backoff_factor > 0 && options.backoff_factor < 1);
  check_option("GradScaler", "growth_interval", double(options.growth_interval), options.growth_interval >= 1);
}

// A replay would go on with the factor of now.
static void check_not_captured_scaler() {
  if (Capture::current())
    refuse_in_capture("GradScaler, whose host looks whether gradients are finite,", "compute in bf16 or in f32");
}

Tensor GradScaler::scale(const Tensor& loss) const {
  if (!options_.enabled) return loss;
  check_not_captured_scaler();
  return loss * factor_;
}

bool GradScaler::finite(const Optimizer& optimizer) {
  if (!options_.enabled) return true;
  check_not_captured_scaler();
  auto known = seen_.find(&optimizer);
  if (known != seen_.end()) return known->second.finite;
  if (!sum_) check_alone(optimizer);
  double overflowed = all_finite(optimizer.gradients()) ? 0 : 1;
  if (sum_) overflowed = sum_(overflowed, optimizer);
  return seen_.emplace(&optimizer, Seen{overflowed == 0}).first->second.finite;
}

void GradScaler::unscale(const Optimizer& optimizer) {
  if (!options_.enabled) return;
  finite(optimizer);
  Seen& seen = seen_.at(&optimizer);
  SG_CHECK(!seen.stepped && !seen.unscaled, "GradScaler: unscale() after ", seen.stepped ? "step()" : "another one",
           ", since update(); call it once per step, before step()");
  NoGrad no_grad;
  for (Tensor& gradient : optimizer.gradients())
    if (seen.finite)
      gradient *= 1 / factor_;
    else
      launch(kernels::fill, gradient, out(gradient), 0.0);
  seen.unscaled = true;
}

bool GradScaler::step(Optimizer& optimizer, double grad_scale) {
  return step_by(optimizer, [&](double factor) { optimizer.step(grad_scale / factor); });
}

bool GradScaler::step(Optimizer& optimizer, const Tensor& grad_scale) {
  return step_by(optimizer, [&](double factor) {
    NoGrad no_grad;
    TagScope owner(Category::workspace);
    optimizer.step(factor == 1 ? grad_scale : affine(grad_scale, 1 / factor, 0));
  });
}

template <class Step> bool GradScaler::step_by(Optimizer& optimizer, const Step& step) {
  bool good = finite(optimizer);
  if (!options_.enabled) {
    step(1);
    return true;
  }
  Seen& seen = seen_.at(&optimizer);
  SG_CHECK(!seen.stepped, "GradScaler: step() for the second time since update(); call update() once per step");
  seen.stepped = true;
  if (good) step(seen.unscaled ? 1 : factor_);
  return good;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  SG_CHECK(!seen_.empty(), "GradScaler: update() without step(); call step(optimizer) first");
  bool good = std::ranges::all_of(seen_, [](const auto& entry) { return entry.second.finite; });
  seen_.clear();
  if (!good) {
    factor_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ >= options_.growth_interval) {
    double grown = factor_ * options_.growth_factor;
    if (std::isfinite(float(grown))) factor_ = grown;  // it multiplies f32 losses
    good_steps_ = 0;
  }
}

void GradScaler::load_state(State state) {
  check_option("GradScaler", "factor", state.factor, state.factor > 0);
  check_option("GradScaler", "good_steps", double(state.good_steps), state.good_steps >= 0);
  factor_ = state.factor;
  good_steps_ = state.good_steps;
}

}  // namespace shardgrad::optim
