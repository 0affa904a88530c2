#pragma once
// Trains a small model for some steps and returns everything that strategies must agree on.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/sgd.h>

#include "tests/fsdp/models.h"
#include "tests/numbers.h"

namespace shardgrad::fsdp::testing {

/// What the error that `body` throws says; empty when it throws none.
template <class Body> std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

enum class Optim { sgd, adamw };

struct TrainingRun {
  int world = 1;
  Config config = {};
  bool shard = true;  ///< false: the plain model, whole batch, one process
  Optim optim = Optim::sgd;
  DType dtype = DType::f32;
  Device device = kCpu;
  int steps = 4;                   ///< the order of units is learned in the first; states of more than one step follow
  int64_t batch = 12;              ///< global
  int micro = 1;                   ///< micro-batches of a step
  bool no_sync = false;            ///< reduce only the last of them
  double clip = 0, norm_type = 2;  ///< clip_grad_norm; 0: not
  uint64_t delay_seed = 0;
  std::chrono::microseconds max_delay = dist::VirtualOptions().max_delay;
  std::string group = "threads";
  std::vector<int> machines = {};  ///< of the ranks; empty: all are on one
};

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {  // -0 is not 0, NaN equals nothing
  return a == b && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> weights, state;
  bool operator==(const Outcome& other) const {
    auto same = [](const auto& a, const auto& b) { return a.first == b.first && same_bits(a.second, b.second); };
    return same_bits(losses, other.losses) && same_bits(norms, other.norms) &&
           std::ranges::equal(weights, other.weights, same) && std::ranges::equal(state, other.state, same);
  }
};

/// A reduction for each unit, where there would be buckets.
inline std::optional<int64_t> no_buckets(Strategy strategy) {
  return strategy == Strategy::ddp || strategy == Strategy::zero1 ? std::optional<int64_t>(0) : std::nullopt;
}

// Every strategy with every lifetime it can have, and units of their own (buckets would join the small ones); groups of
// hybrid are powers of two, or their sums have another order.
inline std::vector<Config> strategies(int world) {
  std::vector<Config> all{{.strategy = Strategy::ddp, .bucket_bytes = 0},
                          {.strategy = Strategy::zero1, .bucket_bytes = 0},
                          {.strategy = Strategy::zero2}};
  all.push_back({.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0});
  all.push_back({.strategy = Strategy::zero3});
  for (int group = 1; group <= world; group *= 2)
    if (world % group == 0) all.push_back({.strategy = Strategy::hybrid, .shard_ranks = group});
  return all;
}

/// Bytes of this category that the rank has now.
inline int64_t bytes(Category::Kind category) { return context().ledger().current(category); }

inline std::vector<double> values_of(const Tensor& t) {
  Tensor wide = t.dtype() == DType::f64 ? t : t.to(DType::f64);
  return wide.to_vector<double>();
}

/// Rows [begin, end) of the global batch of a step, the same whatever the ranks are.
inline Tensor rows_of_batch(const char* what, int step, int64_t begin, int64_t end, int64_t columns, DType dtype) {
  std::string name = std::string(what) + std::to_string(step);
  NoGrad no_grad;
  Tensor all = test::normal({64, columns}, name, {DType::f64, kCpu}).rows(begin, end);
  return clone(all.to(dtype)).to(context().default_device());
}

inline std::unique_ptr<optim::Optimizer> make_optimizer(Optim kind, std::vector<NamedParameter> parameters) {
  if (kind == Optim::sgd)
    return std::make_unique<optim::SGD>(std::move(parameters),
                                        optim::SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
  return std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{.lr = 0.01, .weight_decay = 0.1});
}

/// This rank's optimizer state, summed into whole tensors over the ranks.
inline void collect_state(optim::Optimizer& optimizer, Optim kind, dist::ProcessGroup* group, Outcome& outcome) {
  std::vector<std::string> kinds = {"momentum_buffer"};
  if (kind == Optim::adamw) kinds = {"exp_avg", "exp_avg_sq"};
  for (const NamedParameter& parameter : optimizer.parameters())
    for (const std::string& state : kinds)
      outcome.state[parameter.name + "." + state].resize(size_t(parameter.tensor.numel()));
  for (const auto& slice : optimizer.state_slices()) {
    std::vector<double>& whole = outcome.state.at(slice.name);
    std::vector<double> mine = values_of(slice.values);
    for (size_t i = 0; i < mine.size(); ++i) whole[size_t(slice.begin) + i] = mine[i];
  }
  if (!group) return;  // every rank has all of it
  for (auto& [name, whole] : outcome.state) {
    Tensor sum = from_vector<double>(whole, {int64_t(whole.size())}, {DType::f64, kCpu});
    group->all_reduce(sum).host_wait();
    whole = sum.to_vector<double>();
  }
}

/// The rows of a micro-batch that are this rank's.
inline std::pair<int64_t, int64_t> my_rows(const TrainingRun& setup, dist::ProcessGroup* group) {
  int64_t rank = group ? group->rank() : 0, world = group ? group->size() : 1;
  return {setup.batch * rank / world, setup.batch * (rank + 1) / world};
}

inline Outcome train_rank(MakeModel make, const TrainingRun& setup, dist::ProcessGroup* group) {
  AnyModel model = make();
  if (setup.dtype != DType::f32) model.module.to(setup.dtype);
  std::shared_ptr<Sharded> sharded;
  if (group) sharded = fully_shard(model.module, *group, setup.config);
  auto optimizer = make_optimizer(setup.optim, model.module.named_parameters());
  // Nothing in the loop waits for the device, so that only the schedule's own waits order the steps.
  std::vector<Tensor> inputs, targets, losses;
  for (int step = 0; step < setup.steps * setup.micro; ++step) {
    auto [begin, end] = my_rows(setup, group);
    inputs.push_back(rows_of_batch("x", step, begin, end, 7, setup.dtype));
    targets.push_back(rows_of_batch("t", step, begin, end, 5, setup.dtype));
  }
  Outcome outcome;
  for (int step = 0, batch = 0; step < setup.steps; ++step) {
    for (int micro = 0; micro < setup.micro; ++micro, ++batch) {
      progress() = {uint64_t(batch), my_rows(setup, group).first};
      std::optional<NoSync> local;
      if (sharded && setup.no_sync && micro + 1 < setup.micro) local.emplace(*sharded);
      Tensor y = model.output(inputs[size_t(batch)]).to(setup.dtype);
      Tensor loss = mse_loss(y, targets[size_t(batch)], double(setup.batch * setup.micro * 5));
      loss.backward();
      losses.push_back(loss.detach());
    }
    if (setup.clip > 0)
      outcome.norms.push_back(sharded ? clip_grad_norm(*sharded, setup.clip, setup.norm_type)
                                      : optim::clip_grad_norm(optimizer->parameters(), setup.clip, setup.norm_type));
    optimizer->step();
    optimizer->zero_grad();
  }
  for (const Tensor& loss : losses) {
    if (group) group->all_reduce(loss).host_wait();
    outcome.losses.push_back(loss.item());
  }
  if (sharded) {
    for (auto& [name, tensor] : full_state_dict(*sharded, false)) outcome.weights[name] = values_of(tensor);
  } else {
    for (auto& [name, tensor] : model.module.state_dict()) outcome.weights[name] = values_of(tensor.detach());
  }
  collect_state(*optimizer, setup.optim, sharded ? sharded->mesh().shard() : nullptr, outcome);
  return outcome;
}

/// Trains; with ranks, every rank must end with the same outcome, which is returned.
inline Outcome train(MakeModel make, const TrainingRun& setup) {
  if (!setup.shard) {
    Context context({.device = setup.device});
    return train_rank(make, setup, nullptr);
  }
  std::vector<Outcome> outcomes(size_t(setup.world));
  dist::VirtualOptions options{
      .device = setup.device, .threads = 1, .delay_seed = setup.delay_seed, .max_delay = setup.max_delay};
  options.group.kind = setup.world == 1 ? "" : setup.group;
  options.group.machines = setup.machines;
  dist::run_ranks(
      setup.world, [&](dist::ProcessGroup& world) { outcomes[size_t(world.rank())] = train_rank(make, setup, &world); },
      options);
  for (const Outcome& outcome : outcomes)
    if (!(outcome == outcomes[0])) fail("the ranks ended with different outcomes");
  return outcomes[0];
}
template <class Model> Outcome train(const TrainingRun& setup) { return train(any_model<Model>, setup); }

}  // namespace shardgrad::fsdp::testing
