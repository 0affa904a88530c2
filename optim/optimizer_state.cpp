// Saving and loading: state tensors and step counts, of this rank or of a plain model.

#include <shardgrad/autograd/state_check.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/optim/state_rates.h>

namespace shardgrad::optim {

static void check_all_whole(std::span<const NamedParameter> parameters) {
  for (const NamedParameter& parameter : parameters)
    check_whole(parameter.name, parameter.tensor.shape(), parameter.part);
}

std::vector<Optimizer::StateSlice> Optimizer::state_slices() {
  allocate_states();
  std::vector<StateSlice> slices;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].states.empty()) continue;
    LocalRange whole;
    size_t part = 0;
    for (const LocalRange& range : ranges_of(i, Gradients::unused, whole)) {
      for (size_t s = 0; s < state_names_.size() && range.count > 0; ++s)
        slices.push_back({state_name(i, s), parameters_[i].tensor.shape(), range.begin,
                          slots_[i].states[part][s].rows(0, range.count), parameters_[i].part});
      ++part;
    }
  }
  return slices;
}

std::vector<Optimizer::StatePlace> Optimizer::planned_states(const IsGiven& given) const {
  std::vector<StatePlace> places;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!has_state(i) && !is_given(i, given)) continue;
    LocalRange whole;
    for (const LocalRange& range : ranges_of(i, Gradients::unused, whole))
      for (size_t s = 0; s < state_names_.size() && range.count > 0; ++s)
        places.push_back({state_name(i, s), parameters_[i].tensor.shape(), range.begin, range.count,
                          state_dtype(range.values), parameters_[i].part});
  }
  return places;
}

std::map<std::string, int64_t> Optimizer::steps() const {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < slots_.size(); ++i) result[parameters_[i].name] = slots_[i].steps;
  return result;
}

void Optimizer::set_steps(const std::map<std::string, int64_t>& steps) {
  SG_CHECK(steps.size() == slots_.size(), name_, ": step counts for ", steps.size(), " parameters; there are ",
           slots_.size());
  for (const NamedParameter& parameter : parameters_) {
    auto given = steps.find(parameter.name);
    SG_CHECK(given != steps.end() && given->second >= 0, name_, ": no usable step count for '", parameter.name, "'");
  }
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].steps = steps.at(parameters_[i].name);
}

std::map<std::string, Tensor> Optimizer::state_dict() {
  check_all_whole(parameters_);
  std::map<std::string, Tensor> state;
  for (StateSlice& slice : state_slices()) {
    SG_CHECK(slice.begin == 0 && slice.values.numel() == slice.shape.numel(), name_, ": state_dict(): '", slice.name,
             "' is sharded and this rank holds a part of it; gather it with fsdp's optimizer state functions");
    state.emplace(slice.name, slice.values.view(slice.shape));
  }
  for (auto& [name, steps] : steps())
    state.emplace(name + ".step", from_vector<int64_t>({steps}, {1}, {DType::i64, kCpu}));
  add_rates(state, *this);
  return state;
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& state) {
  StateCheck check(state);
  auto given = [&](const std::string& name) { return state.contains(name); };
  StateSpecs rates = rates_specs(*this);
  for (auto& [name, tensor] : state_dict())
    if (given(name) || !rates.contains(name)) check.expect(name, tensor.shape(), tensor.dtype());
  for (size_t i = 0; i < slots_.size(); ++i) {  // of frozen ones, and empty ones as others save them
    const Tensor& parameter = parameters_[i].tensor;
    bool expected = has_state(i) && parameter.numel() > 0;
    for (size_t s = 0; s < state_names_.size() && !expected && given(state_name(i, 0)); ++s)
      check.expect(state_name(i, s), parameter.shape(), parameter.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  std::string faults = check.faults();
  std::map<std::string, Rates> saved;
  if (faults.empty()) faults = faults_of(saved = rates_in(state, *this));
  SG_CHECK(faults.empty(), name_, ": this is not a state of this optimizer; nothing was loaded:", faults);
  std::map<std::string, int64_t> counts;
  for (const NamedParameter& parameter : parameters_)
    counts[parameter.name] = int64_t(state.at(parameter.name + ".step").item());
  set_steps(counts);
  set_rates(saved);
  allocate_states(given);
  for (const StateSlice& slice : state_slices())
    copy_into(slice.values, state.at(slice.name).view(slice.values.shape()));
}

}  // namespace shardgrad::optim
