#pragma once
// Learning rates in a state dict: "<parameter>.lr" is f64 [lr, own, ratio], as Optimizer::Rates has them. A state of
// before has none, and leaves them as they are.

#include <map>
#include <string>

#include <shardgrad/autograd/state_check.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

/// Optimizer::Rates as numbers.
inline constexpr int64_t kRateCount = 3;

void add_rates(std::map<std::string, Tensor>& state, const Optimizer& optimizer);
StateSpecs rates_specs(const Optimizer& optimizer);
/// Of a state that fits; there may be faults_of them.
std::map<std::string, Optimizer::Rates> rates_in(const std::map<std::string, Tensor>& state,
                                                 const Optimizer& optimizer);

}  // namespace shardgrad::optim
