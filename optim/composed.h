#pragma once
// Optimizers that are made of operations on the run: RMSprop, Adagrad and Lion. Each passes over the numbers several
// times, where SGD and Adam have a kernel of their own.

#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

struct RmspropOptions {
  double lr = 0.01;
  double alpha = 0.99;  ///< how much of the mean square is kept in a step
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
};

/// PyTorch's RMSprop, not centered:
///
///     g = grad + weight_decay · p
///     square_avg = alpha · square_avg + (1 - alpha) · g²
///     step = g / (√square_avg + eps)
///     momentum_buffer = momentum · momentum_buffer + step      where there is momentum; then step is this
///     p = p - lr · step
///
/// State: square_avg, momentum_buffer (f32; f64 for f64 parameters). Throws Error(input) for options that make no
/// sense.
class RMSprop : public Optimizer {
 public:
  using Options = RmspropOptions;
  RMSprop(std::vector<NamedParameter> parameters, RmspropOptions options, Rules rules = {});

 private:
  void update(Run& run) override;
  RmspropOptions options_;
};

struct AdagradOptions {
  double lr = 0.01;
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
};

/// PyTorch's Adagrad, t being the parameter's own step count from 1 on:
///
///     g = grad + weight_decay · p
///     sum = sum + g²
///     p = p - lr / (1 + (t - 1) · lr_decay) · g / (√(initial_accumulator_value + sum) + eps)
///
/// State: sum, which PyTorch's has the initial value in.
class Adagrad : public Optimizer {
 public:
  using Options = AdagradOptions;
  Adagrad(std::vector<NamedParameter> parameters, AdagradOptions options, Rules rules = {});

 private:
  void update(Run& run) override;
  AdagradOptions options_;
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

/// Lion (arXiv 2302.06675), whose steps have one size for all numbers:
///
///     p = p - lr · weight_decay · p
///     p = p - lr · sign(beta1 · exp_avg + (1 - beta1) · grad)
///     exp_avg = beta2 · exp_avg + (1 - beta2) · grad
class Lion : public Optimizer {
 public:
  using Options = LionOptions;
  Lion(std::vector<NamedParameter> parameters, LionOptions options, Rules rules = {});

 private:
  void update(Run& run) override;
  LionOptions options_;
};

}  // namespace shardgrad::optim
