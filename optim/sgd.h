#pragma once

#include <memory>

#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool stochastic_rounding = false;  ///< takes parameters of bf16, and rounds them up or down by chance (optim/adam.h)
};

/// Stochastic gradient descent with PyTorch's formulas:
///
///     g = grad + weight_decay · p
///     m = g at the first step, momentum · m + (1 - dampening) · g later        (only with momentum)
///     p = p - lr · (nesterov ? g + momentum · m : m)
///
/// State: momentum_buffer, only with momentum. Throws Error(input) for options that make no sense.
class SGD : public Optimizer {
 public:
  using Options = SgdOptions;
  SGD(std::vector<NamedParameter> parameters, SgdOptions options, Rules rules = {});

 private:
  void update(Run& run) override;
  size_t most_gathered() const override;
  void begin_updates() override;
  void end_updates() override;
  bool takes_scale() const override { return true; }
  bool can_be_captured() const override { return true; }
  SgdOptions options_;
  struct Gathered;  // for a launch
  std::shared_ptr<Gathered> gathered_;
};

}  // namespace shardgrad::optim
