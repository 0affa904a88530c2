#include <shardgrad/optim/state_rates.h>

namespace shardgrad::optim {

static std::string name_of_rates(const NamedParameter& parameter) { return parameter.name + ".lr"; }

void add_rates(std::map<std::string, Tensor>& state, const Optimizer& optimizer) {
  auto rates = optimizer.rates();
  for (const NamedParameter& parameter : optimizer.parameters()) {
    auto [lr, own, ratio] = rates.at(parameter.name);
    state.emplace(name_of_rates(parameter), from_vector<double>({lr, own, ratio}, {kRateCount}, {DType::f64, kCpu}));
  }
}

StateSpecs rates_specs(const Optimizer& optimizer) {
  StateSpecs specs;
  for (const NamedParameter& parameter : optimizer.parameters())
    specs[name_of_rates(parameter)] = {{kRateCount}, DType::f64};
  return specs;
}

std::map<std::string, Optimizer::Rates> rates_in(const std::map<std::string, Tensor>& state,
                                                 const Optimizer& optimizer) {
  std::map<std::string, Optimizer::Rates> rates;
  for (const NamedParameter& parameter : optimizer.parameters()) {
    auto found = state.find(name_of_rates(parameter));
    if (found == state.end()) continue;
    std::vector<double> saved = found->second.to_vector<double>();
    rates[parameter.name] = {saved[0], saved[1], saved[2]};
  }
  return rates;
}

}  // namespace shardgrad::optim
