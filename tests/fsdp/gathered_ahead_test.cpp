// Units that are gathered ahead because they came next the last time, and are not called this time.

#include <shardgrad/optim/adam.h>

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

struct Halves : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7);
  bool both = true;
  Tensor forward(const Tensor& x) { return both ? b(a(x)) : a(x); }
};

const Config kConfigs[] = {{},
                           {.prefetch = 0},
                           {.strategy = Strategy::zero1, .bucket_bytes = 0},
                           {.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0},
                           {.move_params_to_cpu = true}};

// What the model gives on rank 0 after `work`, when both halves are called again.
std::vector<double> output_after(Config config, std::optional<DType> param_dtype,
                                 const std::function<void(const nn::Child<Halves>&, Sharded&)>& work) {
  config.param_dtype = param_dtype;
  std::vector<double> output;
  dist::run_ranks(2,
                  [&](dist::ProcessGroup& group) {
                    auto model = nn::make<Halves>();
                    auto sharded = fully_shard(*model, group, config);
                    work(model, *sharded);
                    model->both = true;
                    NoGrad no_grad;
                    std::vector<double> values = values_of(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32)));
                    if (group.rank() == 0) output = values;
                  },
                  {.device = kAcc, .group = {.delay = dist::fixed_delay(std::chrono::milliseconds(5))}});
  return output;
}

void expect_the_same(const std::function<void(const nn::Child<Halves>&, Sharded&)>& work) {
  for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::bf16)}) {
    std::vector<double> expected = output_after({.strategy = Strategy::ddp, .bucket_bytes = 0}, dtype, work);
    for (const Config& config : kConfigs)
      EXPECT_EQ(output_after(config, dtype, work), expected)
          << name_of(config.strategy) << " prefetch " << config.prefetch << " offload " << config.move_params_to_cpu;
  }
}

TEST(GatheredAhead, TheOptimizerWritesAfterTheGatherAndTheNextForwardGathersAgain) {
  expect_the_same([](const nn::Child<Halves>& model, Sharded&) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
    for (bool both : {true, false, false}) {  // b keeps the gradient of the first pass
      model->both = both;
      sum(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32))).backward();
      optimizer.step();
    }
  });
}

TEST(GatheredAhead, ALoadAfterAnEvaluationIsSeen) {
  expect_the_same([](const nn::Child<Halves>& model, Sharded& sharded) {
    auto state = full_state_dict(sharded, false);
    NoGrad no_grad;
    for (bool both : {true, false}) {
      model->both = both;
      model(rows_of_batch("x", 0, 0, 4, 7, DType::f32));
    }
    for (auto& [name, tensor] : state) fill_(tensor, 0.25);
    load_full_state_dict(sharded, state);
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
