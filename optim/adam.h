#pragma once

#include <memory>

#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay = {};  ///< unset: 0 for Adam, 0.01 for AdamW
  bool stochastic_rounding = false;         ///< takes parameters of bf16, and rounds them up or down by chance
};

/// Adam with PyTorch's formulas, t being the parameter's own step count:
///
///     g = grad + weight_decay · p
///     exp_avg    = beta1 · exp_avg    + (1 - beta1) · g
///     exp_avg_sq = beta2 · exp_avg_sq + (1 - beta2) · g²
///     p = p - lr · (exp_avg / (1 - beta1ᵗ)) / (√(exp_avg_sq / (1 - beta2ᵗ)) + eps)
///
/// Decay is for biases, too, unless Rules say otherwise; the program leaves out parameters of one dimension by itself
/// (train/config.h, no_decay). State: exp_avg, exp_avg_sq (f32; f64 for f64 parameters). Throws Error(input) for
/// options that make no sense.
///
/// With stochastic_rounding parameters of bf16 are taken, too (not f16): p is computed in f32, and rounded up or down
/// with such chances that its mean is what f32 would have, so that steps below its precision are not lost
/// (docs/mixed_precision.md). The random bits are a function of the parameter's name, its count of steps, and an
/// element's place in it, and of no seed: the same for any device, strategy, number of ranks and threads, and after a
/// resume. Of a part of a larger parameter (a mesh's) they are of its place in that part and of where the part begins.
class Adam : public Optimizer {
 public:
  using Options = AdamOptions;
  Adam(std::vector<NamedParameter> parameters, AdamOptions options, Rules rules = {})
      : Adam("Adam", std::move(parameters), options, std::move(rules), false) {}

 protected:
  Adam(const char* name, std::vector<NamedParameter> parameters, AdamOptions options, Rules rules, bool decoupled);

 private:
  void update(Run& run) override;
  size_t most_gathered() const override;
  void begin_updates() override;
  void end_updates() override;
  bool takes_scale() const override { return true; }
  bool can_be_captured() const override { return true; }
  AdamOptions options_;
  struct Gathered;  // for a launch
  std::shared_ptr<Gathered> gathered_;
  bool decoupled_;
};

/// Adam with decoupled weight decay: first p = p - lr · weight_decay · p, then Adam's step on the bare gradient.
/// Biases decay as for Adam.
class AdamW : public Adam {
 public:
  AdamW(std::vector<NamedParameter> parameters, AdamOptions options, Rules rules = {})
      : Adam("AdamW", std::move(parameters), options, std::move(rules), true) {}
};

}  // namespace shardgrad::optim
