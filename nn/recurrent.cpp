#include <shardgrad/nn/recurrent.h>

#include <cmath>

namespace shardgrad::nn {

Recurrent::Recurrent(const char* name, int64_t gates, int64_t in, int64_t hidden, const RecurrentOptions& options)
    : in_(in), hidden_(hidden), options_(options) {
  SG_CHECK(in >= 1 && hidden >= 1 && options.layers >= 1, name, ": ", in, " inputs, ", hidden, " hidden numbers and ",
           options.layers, " layers are not possible; each is at least 1");
  SG_CHECK(options.dropout >= 0 && options.dropout < 1, name, ": probability ", options.dropout,
           " is not within [0, 1)");
  SG_CHECK(options.dropout == 0 || options.layers > 1, name, ": dropout is between layers, and there is only one");
  Init spread = init::uniform(-1 / std::sqrt(double(hidden)), 1 / std::sqrt(double(hidden)));
  size_t each = options.bidirectional ? 2 : 1;
  for (size_t i = 0; i < size_t(options.layers) * each; ++i) {
    std::string suffix = suffix_of(i);
    Direction& made = directions_.emplace_back();
    made.weight_ih = param("weight_ih" + suffix, {gates * hidden, i < each ? in : int64_t(each) * hidden}, spread);
    made.weight_hh = param("weight_hh" + suffix, {gates * hidden, hidden}, spread);
    if (!options.bias) continue;
    made.bias_ih = param("bias_ih" + suffix, {gates * hidden}, spread);
    made.bias_hh = param("bias_hh" + suffix, {gates * hidden}, spread);
  }
}

std::string Recurrent::suffix_of(size_t i) const {
  if (!options_.bidirectional) return concat("_l", i);
  return concat("_l", i / 2, i % 2 ? "_reverse" : "");
}

Tensor* Recurrent::parameter(std::string_view name) {
  for (size_t i = 0; i < directions_.size(); ++i) {
    std::string suffix = suffix_of(i);
    if (!name.ends_with(suffix)) continue;
    std::string_view what = name.substr(0, name.size() - suffix.size());
    if (what == "weight_ih") return &directions_[i].weight_ih;
    if (what == "weight_hh") return &directions_[i].weight_hh;
    if (what == "bias_ih") return &directions_[i].bias_ih;
    if (what == "bias_hh") return &directions_[i].bias_hh;
  }
  return nullptr;
}

void Recurrent::check_input(const Tensor& x) const {
  SG_CHECK((x.ndim() == 2 || x.ndim() == 3) && x.size(-1) == in_, type_name(), ": an input of shape ", x.shape(),
           " is not (", options_.batch_first ? "samples, places, " : "places, samples, ", in_, "), or (places, ", in_,
           ")");
  SG_CHECK(x.size(x.ndim() == 3 && options_.batch_first ? 1 : 0) > 0, type_name(), ": an input of shape ", x.shape(),
           " has no places");
}

// Each direction's state: one tensor (samples, hidden) of every kind.
std::vector<std::vector<Tensor>> Recurrent::begin(const Tensor& x, std::span<const Tensor> states) const {
  const Shape each{x.size(1), hidden_}, whole{int64_t(directions_.size()), x.size(1), hidden_};
  std::vector<std::vector<Tensor>> result(directions_.size());
  for (const Tensor& given : states) {
    SG_CHECK(!given.defined() || given.shape() == whole, type_name(), ": a state of shape ", given.shape(),
             " does not fit; that of an input with ", x.size(1), " samples is ", whole);
    for (size_t i = 0; i < result.size(); ++i)
      result[i].push_back(given.defined() ? select(given, 0, int64_t(i)) : zeros(each, {x.dtype(), x.device()}));
  }
  return result;
}

Tensor Recurrent::run_direction(size_t i, const Tensor& x, std::vector<Tensor>& state) const {
  const Direction& mine = directions_[i];
  bool backwards = options_.bidirectional && i % 2 == 1;
  Tensor of_input = linear(x, mine.weight_ih, mine.bias_ih);
  for (Tensor& each : state) each = each.to(of_input.dtype());
  std::vector<Tensor> places = chunk(of_input, x.size(0)), outputs(places.size());
  for (size_t k = 0; k < places.size(); ++k) {
    size_t place = backwards ? places.size() - 1 - k : k;
    step(squeeze(places[place], 0), linear(state[0], mine.weight_hh, mine.bias_hh), state);
    outputs[place] = state[0];
  }
  return stack(outputs);
}

Tensor Recurrent::run_layer(int64_t layer, const Tensor& x, std::vector<std::vector<Tensor>>& states) {
  Tensor from = x;
  if (layer > 0 && training() && options_.dropout > 0)  // whose first dimension counts samples
    from = transpose(dropout(transpose(x, 0, 1), options_.dropout, full_name()), 0, 1);
  if (!options_.bidirectional) return run_direction(size_t(layer), from, states[size_t(layer)]);
  size_t first = size_t(layer) * 2;
  Tensor forwards = run_direction(first, from, states[first]);
  return cat({forwards, run_direction(first + 1, from, states[first + 1])}, 2);
}

std::vector<Tensor> Recurrent::run(const Tensor& x, std::span<const Tensor> states) {
  check_input(x);
  bool one_sample = x.ndim() == 2, turned = options_.batch_first && !one_sample;
  std::vector<Tensor> given(states.begin(), states.end());
  if (one_sample)
    for (Tensor& each : given)
      if (each.defined()) each = unsqueeze(each, 1);
  Tensor y = one_sample ? unsqueeze(x, 1) : turned ? transpose(x, 0, 1) : x;
  std::vector<std::vector<Tensor>> now = begin(y, given);
  for (int64_t layer = 0; layer < options_.layers; ++layer) y = run_layer(layer, y, now);
  std::vector<Tensor> results{one_sample ? squeeze(y, 1) : turned ? transpose(y, 0, 1) : y};
  for (size_t kind = 0; kind < states.size(); ++kind) {
    std::vector<Tensor> of_directions;
    for (const std::vector<Tensor>& state : now) of_directions.push_back(state[kind]);
    Tensor whole = stack(of_directions);
    results.push_back(one_sample ? squeeze(whole, 1) : whole);
  }
  return results;
}

LSTMResult LSTM::forward(const Tensor& x, const Tensor& h, const Tensor& c) {
  SG_CHECK(h.defined() == c.defined(), "LSTM: it has two states, h and c; give both or none");
  const Tensor states[] = {h, c};
  std::vector<Tensor> results = run(x, states);
  return {results[0], results[1], results[2]};
}

void LSTM::step(const Tensor& of_input, const Tensor& of_state, std::span<Tensor> state) const {
  std::vector<Tensor> gates = chunk(of_input + of_state, 4, 1);
  state[1] = sigmoid(gates[1]) * state[1] + sigmoid(gates[0]) * tanh(gates[2]);
  state[0] = sigmoid(gates[3]) * tanh(state[1]);
}

GRUResult GRU::forward(const Tensor& x, const Tensor& h) {
  std::vector<Tensor> results = run(x, {&h, 1});
  return {results[0], results[1]};
}

void GRU::step(const Tensor& of_input, const Tensor& of_state, std::span<Tensor> state) const {
  std::vector<Tensor> input = chunk(of_input, 3, 1), before = chunk(of_state, 3, 1);
  Tensor update = sigmoid(input[1] + before[1]);
  Tensor candidate = tanh(input[2] + sigmoid(input[0] + before[0]) * before[2]);
  state[0] = (1 - update) * candidate + update * state[0];
}

}  // namespace shardgrad::nn
