#pragma once
// One use of a model under every strategy: all must end with the same weights, whatever the use is.

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {

inline const std::vector<Config> kAll{{.strategy = Strategy::ddp},
                                      {.strategy = Strategy::zero1},
                                      {.strategy = Strategy::zero2},
                                      {.strategy = Strategy::zero2, .keep_params = true},
                                      {.strategy = Strategy::zero3}};

template <class Model> Tensor loss_of(nn::Child<Model>& model, int number, int64_t begin, int64_t end) {
  Tensor x = rows_of_batch("x", number, begin, end, 7, DType::f32);
  return mse_loss(output_of(model, x), rows_of_batch("t", number, begin, end, 5, DType::f32), 40);
}

using Weights = std::map<std::string, std::vector<double>>;

inline Weights weights_of(Sharded& sharded) {
  Weights weights;
  for (auto& [name, tensor] : full_state_dict(sharded, false)) weights[name] = values_of(tensor);
  return weights;
}

// Runs `use` under every strategy on two ranks; all must end with the same weights, which are returned.
template <class Model>
Weights same_weights(const std::function<void(nn::Child<Model>&, Sharded&, dist::ProcessGroup&)>& use, int world = 2) {
  Weights expected;
  for (const Config& config : kAll) {
    std::vector<Weights> ends;
    ends.resize(size_t(world));
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Model>();
      auto sharded = fully_shard(*model, group, config);
      use(model, *sharded, group);
      ends[size_t(group.rank())] = weights_of(*sharded);
    });
    if (expected.empty()) expected = ends[0];
    for (const Weights& end : ends) EXPECT_EQ(end, expected) << name_of(config.strategy) << config.keep_params;
  }
  return expected;
}

template <class Model> void train_step(nn::Child<Model>& model, optim::Optimizer& optimizer, int number, int rank) {
  loss_of(model, number, 4 * rank, 4 * rank + 4).backward();
  optimizer.step();
  optimizer.zero_grad();
}

}  // namespace shardgrad::fsdp::testing
