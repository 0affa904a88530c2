#pragma once
// Learning rates over time. A schedule gives the factor of the base learning rate at a step (0 is the first):
//
//     auto schedule = optim::warmup(100, optim::cosine(total - 100));
//     optimizer.set_lr(base * schedule(step));

#include <cstdint>
#include <functional>

namespace shardgrad::optim {

using Schedule = std::function<double(int64_t step)>;

/// Always 1.
Schedule constant();
/// From 1 at step 0 straight down to `final` at step `steps` - 1 and from then on. Throws unless steps >= 1.
Schedule linear(int64_t steps, double final = 0);
/// The same along half a cosine.
Schedule cosine(int64_t steps, double final = 0);
/// Times `factor` after every `every` steps. Throws unless every >= 1.
Schedule staircase(int64_t every, double factor);
/// PyTorch's names and defaults.
struct OneCycleOptions {
  double pct_start = 0.3;         ///< share of the steps in which it rises
  double div_factor = 25;         ///< it begins at 1/div_factor
  double final_div_factor = 1e4;  ///< and ends at a final_div_factor-th of that
};
/// Up along half a cosine from 1/div_factor to 1, which is the base rate, and down along another one to
/// 1/(div_factor · final_div_factor) at step `steps` - 1: PyTorch's OneCycleLR (torch/optim/lr_scheduler.py) with
/// anneal_strategy "cos", two phases, and without a cycle of the momentum. Throws unless steps >= 1, pct_start is in
/// [0, 1] and the factors are above 0.
Schedule one_cycle(int64_t steps, const OneCycleOptions& options = {});
/// 1/steps, 2/steps, …, 1, and then `after` from its step 0. Throws for negative steps.
Schedule warmup(int64_t steps, Schedule after);

}  // namespace shardgrad::optim
