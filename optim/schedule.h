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
/// 1/steps, 2/steps, …, 1, and then `after` from its step 0. Throws for negative steps.
Schedule warmup(int64_t steps, Schedule after);

}  // namespace shardgrad::optim
