#include <shardgrad/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <shardgrad/core/error.h>

namespace shardgrad::optim {

/// How far step is on the way from 0 to the last of `steps`: 0 to 1.
static double progress(int64_t step, int64_t steps) {
  return steps == 1 ? 1 : std::clamp(double(step) / double(steps - 1), 0.0, 1.0);
}

Schedule constant() {
  return [](int64_t) { return 1.0; };
}

Schedule linear(int64_t steps, double final) {
  SG_CHECK(steps >= 1, "linear schedule: ", steps, " steps; at least 1 is needed");
  return [=](int64_t step) { return 1 + (final - 1) * progress(step, steps); };
}

Schedule cosine(int64_t steps, double final) {
  SG_CHECK(steps >= 1, "cosine schedule: ", steps, " steps; at least 1 is needed");
  return
      [=](int64_t step) { return final + (1 - final) * (1 + std::cos(std::numbers::pi * progress(step, steps))) / 2; };
}

Schedule staircase(int64_t every, double factor) {
  SG_CHECK(every >= 1, "staircase schedule: every ", every, " steps; at least 1 is needed");
  return [=](int64_t step) { return std::pow(factor, double(step / every)); };
}

Schedule one_cycle(int64_t steps, const OneCycleOptions& o) {
  SG_CHECK(steps >= 1, "one_cycle schedule: ", steps, " steps; at least 1 is needed");
  SG_CHECK(o.pct_start >= 0 && o.pct_start <= 1, "one_cycle schedule: pct_start is ", o.pct_start,
           "; it is a share of the steps, from 0 to 1");
  SG_CHECK(o.div_factor > 0 && o.final_div_factor > 0, "one_cycle schedule: div_factor is ", o.div_factor,
           " and final_div_factor ", o.final_div_factor, "; both must be above 0");
  double first = 1 / o.div_factor, final = first / o.final_div_factor;
  double top = o.pct_start * double(steps) - 1, last = double(steps - 1);  // PyTorch counts both from 0
  auto anneal = [](double from, double to, double share) {
    double left = (1 + std::cos(std::numbers::pi * std::min(share, 1.0))) / 2;
    return left * from + (1 - left) * to;
  };
  return [=](int64_t step) {
    auto now = double(step);
    if (now <= top || top == last) return anneal(first, 1, top > 0 ? now / top : 1);
    return anneal(1, final, (now - top) / (last - top));
  };
}

Schedule warmup(int64_t steps, Schedule after) {
  SG_CHECK(steps >= 0, "warm-up: ", steps, " steps are not possible");
  return [=, after = std::move(after)](int64_t step) {
    return step < steps ? double(step + 1) / double(steps) : after(step - steps);
  };
}

}  // namespace shardgrad::optim
