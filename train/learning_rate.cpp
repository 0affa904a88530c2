#include <shardgrad/train/learning_rate.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/error.h>

namespace shardgrad::train {

// The factor of the base rate, which all but plateau have from the step alone.
static optim::Schedule make_schedule(const Config::Schedule& s, int64_t total_steps) {
  if (s.name == "one_cycle") return optim::one_cycle(total_steps, s.one_cycle);
  int64_t rest = std::max<int64_t>(1, total_steps - s.warmup_steps);
  optim::Schedule after = optim::constant();
  if (s.name == "linear") after = optim::linear(rest, s.final);
  if (s.name == "cosine") after = optim::cosine(rest, s.final);
  if (s.name == "step") after = optim::staircase(s.step_size.value(), s.gamma);
  return optim::warmup(s.warmup_steps, after);
}

double learning_rate(const Config& config, int64_t total_steps, int64_t step, const std::optional<Best>& best) {
  const Config::Schedule& schedule = config.schedule;
  double rate = config.optimizer.lr * make_schedule(schedule, total_steps)(step);
  return schedule.name == "plateau" && best ? rate * std::pow(schedule.gamma, double(best->plateaus)) : rate;
}

std::string plateau_note(const Config& config, int64_t total_steps, int64_t step, const std::string& score,
                         const Best& best) {
  const Config::Schedule& schedule = config.schedule;
  bool lowers = schedule.name == "plateau" && best.worse > 0 && best.worse % schedule.patience == 0;
  if (!lowers || step == total_steps) return "";
  return concat("no better ", score, " in ", best.worse, best.worse == 1 ? " evaluation" : " evaluations",
                ": the learning rate is ", learning_rate(config, total_steps, step, best), " from here on");
}

}  // namespace shardgrad::train
