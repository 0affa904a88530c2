// Which options each parameter has.

#include <cmath>

#include <shardgrad/autograd/match.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

void Optimizer::apply_rules(const Rules& rules) {
  std::vector<bool> used(rules.size());
  for (size_t i = 0; i < slots_.size(); ++i)
    for (size_t r = 0; r < rules.size(); ++r) {
      if (!matches(rules[r].pattern, parameters_[i].name)) continue;
      used[r] = true;
      slots_[i].weight_decay = rules[r].overrides.weight_decay.value_or(slots_[i].weight_decay);
      slots_[i].lr_scale = rules[r].overrides.lr_scale;
      break;
    }
  for (size_t r = 0; r < rules.size(); ++r) {
    const Overrides& set = rules[r].overrides;
    SG_CHECK(used[r], name_, ": the rule '", rules[r].pattern, "' applies to no parameter; the first one is named '",
             parameters_[0].name, "'");
    check_option(name_.c_str(), "lr_scale of a rule", set.lr_scale, set.lr_scale >= 0);
    double decay = set.weight_decay.value_or(0);
    check_option(name_.c_str(), "weight_decay of a rule", decay, decay >= 0);
  }
}

// Each replay of a captured step has the rates that it finds.
static void check_not_captured(const char* call) {
  if (Capture::current()) refuse_in_capture(concat(call, "()"), "set learning rates before the step");
}

void Optimizer::set_lr(double lr) {
  check_not_captured("set_lr");
  check_option(name_.c_str(), "lr", lr, lr >= 0);
  for (Slot& slot : slots_) {
    if (slot.own_lr && lr_ > 0) slot.lr_scale = *slot.own_lr / lr_;
    slot.own_lr.reset();
  }
  lr_ = lr;
}

void Optimizer::check_number(size_t i) const {
  SG_CHECK(i < slots_.size(), name_, ": there is no parameter number ", i, "; parameters() are ", slots_.size(),
           ", which count from 0");
}

double Optimizer::lr_of(size_t i) const {
  check_number(i);
  return slots_[i].own_lr.value_or(lr_ * slots_[i].lr_scale);
}

double Optimizer::weight_decay_of(size_t i) const {
  check_number(i);
  return slots_[i].weight_decay;
}

void Optimizer::set_lr_of(size_t i, double lr) {
  check_not_captured("set_lr_of");
  check_option(name_.c_str(), "lr", lr, lr >= 0);
  check_number(i);
  slots_[i].own_lr = lr;
}

std::string faults_of(const std::map<std::string, Optimizer::Rates>& rates) {
  std::string faults;
  for (const auto& [name, each] : rates)
    for (double value : {each.lr, each.own, each.ratio})
      if (!std::isfinite(value) || value < 0)
        faults += concat("\n  '", name, "' has ", value, " among its learning rates");
  return faults;
}

std::map<std::string, Optimizer::Rates> Optimizer::rates() const {
  std::map<std::string, Rates> rates;
  for (size_t i = 0; i < slots_.size(); ++i) rates[parameters_[i].name] = {lr_, lr_of(i), slots_[i].lr_scale};
  return rates;
}

void Optimizer::set_rates(const std::map<std::string, Rates>& rates) {
  check_not_captured("set_rates");
  std::string faults = faults_of(rates);
  SG_CHECK(faults.empty(), name_, ": learning rates that are not possible:", faults);
  for (size_t i = 0; i < slots_.size(); ++i) {
    auto found = rates.find(parameters_[i].name);
    if (found == rates.end()) continue;
    const Rates& given = found->second;
    lr_ = given.lr;
    slots_[i].lr_scale = given.ratio;
    slots_[i].own_lr.reset();
    if (given.own != given.lr * given.ratio) slots_[i].own_lr = given.own;
  }
}

}  // namespace shardgrad::optim
