#include <shardgrad/train/learning_rate.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/train/registry.h>

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

LearningRate::LearningRate(const Config& config, const Optimizers& optimizers, int64_t total_steps)
    : total_steps_(total_steps), base_(optimizers.optimizer->lr()), drop_(config.schedule.gamma) {
  bool is_own = config.registry->has_own_optimizer(config.task.name);
  if (!is_own)
    factor_ = make_schedule(config.schedule, total_steps);
  else
    factor_ = optimizers.schedule ? optimizers.schedule(total_steps) : optim::constant();
  if (!is_own && config.schedule.name == "plateau") patience_ = config.schedule.patience;
}

double LearningRate::at(int64_t step, const std::optional<Best>& best) const {
  double rate = base_ * factor_(step);
  return patience_ && best ? rate * std::pow(drop_, double(best->plateaus)) : rate;
}

std::string LearningRate::plateau_note(int64_t step, const std::string& score, const Best& best) const {
  bool lowers = patience_ && best.worse > 0 && best.worse % *patience_ == 0;
  if (!lowers || step == total_steps_) return "";
  return concat("no better ", score, " in ", best.worse, best.worse == 1 ? " evaluation" : " evaluations",
                ": the learning rate is ", at(step, best), " from here on");
}

}  // namespace shardgrad::train
