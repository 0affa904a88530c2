// Shards in f32 whose conversion to 16 bits has memory that stays: the optimizer writes both in one pass, and
// everything else that writes a shard has it converted by the next gather.

#include <shardgrad/optim/adam.h>

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

const Config kConverted[] = {{.strategy = Strategy::ddp, .param_dtype = DType::bf16},
                             {.strategy = Strategy::zero1, .param_dtype = DType::bf16},
                             {.strategy = Strategy::zero2, .keep_params = true, .param_dtype = DType::bf16},
                             {.move_params_to_cpu = true, .param_dtype = DType::bf16}};

Tensor inputs(int64_t first) { return rows_of_batch("x", 0, first, 4, 7, DType::f32); }

TEST(ConvertedShard, AWholeThatTheOptimizerWroteIsReady) {
  Context context;
  dist::run_ranks(1, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, group, kConverted[0]);
    const FlatParam& flat = *sharded->units()[0]->flat_params()[0];
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
    EXPECT_EQ(flat.state(), FullState::stale) << "nobody has converted the initial values";
    sum(model(inputs(0))).backward();
    optimizer.step();
    EXPECT_EQ(flat.state(), FullState::closed);
    sharded->units()[0]->unshard("test");
    std::vector<double> shard = values_of(flat.shard()), full = values_of(flat.full());
    for (size_t i = 0; i < shard.size(); ++i) ASSERT_EQ(full[i], double(float(bf16(float(shard[i]))))) << i;
    load_full_state_dict(*sharded, full_state_dict(*sharded, false));
    EXPECT_EQ(flat.state(), FullState::stale) << "a load writes the shard only";
  });
}

// What a model computes after: a step; a load of the initial weights; a step that follows a load without a forward.
std::vector<std::vector<double>> outputs(const Config& config, Device device) {
  std::vector<std::vector<double>> results;
  dist::run_ranks(2,
                  [&](dist::ProcessGroup& group) {
                    auto model = nn::make<Chain>();
                    auto sharded = fully_shard(*model, group, config);
                    auto initial = full_state_dict(*sharded, false);
                    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
                    auto output = [&] {
                      NoGrad no_grad;
                      std::vector<double> values = values_of(model(inputs(0)));
                      if (group.rank() == 0) results.push_back(values);
                    };
                    auto backward = [&] { sum(model(inputs(4 * group.rank()))).backward(); };
                    output();
                    backward();
                    optimizer.step();
                    output();
                    load_full_state_dict(*sharded, initial);
                    output();
                    optimizer.zero_grad();
                    backward();
                    load_full_state_dict(*sharded, initial);
                    optimizer.step();
                    output();
                  },
                  {.device = device});
  return results;
}

TEST(ConvertedShard, I03_StepsAndLoadsAreSeenByTheNextForward) {
  for (Device device : {kCpu, kAcc}) {
    auto expected = outputs({.param_dtype = DType::bf16}, device);  // zero3 converts for each gather
    ASSERT_EQ(expected.size(), 4u);
    EXPECT_EQ(expected[0], expected[2]);
    EXPECT_NE(expected[0], expected[1]);
    EXPECT_NE(expected[0], expected[3]);
    for (const Config& config : kConverted)
      EXPECT_EQ(outputs(config, device), expected) << name_of(config.strategy) << " on " << device;
  }
}

// What the module shows is a conversion; nothing would carry an edit of it to the shard.
TEST(ConvertedShard, AnEditOfTheConversionIsRefusedAndOneOfTheWholeIsKept) {
  for (const Config& config : kConverted)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      SCOPED_TRACE(name_of(config.strategy));
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, group, config);
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
      auto refused = [&](const std::function<void()>& edit) {
        std::string what = message_of(edit);
        EXPECT_TRUE(contains(what, "'a.bias'") && contains(what, "SummonFullParams")) << what;
      };
      for (int step = 0; step < 2; ++step) {
        refused([&] { fill_(model->a->bias, 1); });
        refused([&] { model->load_state_dict(nn::StateDict(model->state_dict())); });
        NoGrad no_grad;
        model(inputs(0));
        refused([&] { fill_(model->a->bias, 1); });
        GradMode recorded(true);
        sum(model(inputs(4 * group.rank()))).backward();
        refused([&] { fill_(model->a->bias, 1); });
        optimizer.step();
        optimizer.zero_grad();
      }
      {
        SummonFullParams whole(*sharded, true);
        for (const NamedParameter& p : model->named_parameters()) fill_(p.tensor, 0.01);
      }
      for (auto& [name, tensor] : full_state_dict(*sharded, false))
        for (double value : values_of(tensor)) EXPECT_EQ(value, double(0.01f)) << name;
      NoGrad no_grad;
      std::vector<double> seen = values_of(model(inputs(0)));
      for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[i - i % 5]) << "all weights are equal";
    });
}

struct Apart : nn::Module {
  Tensor always = param("always", {40}, nn::init::ones()), once = param("once", {40}, nn::init::ones());
  Tensor forward(const Tensor& x, bool both) { return both ? sum(x * always) + sum(x * once) : sum(x * always); }
};

// The optimizer writes the conversion of what has a gradient only.
TEST(ConvertedShard, AStepAfterALoadLeavesWhatHasNoGradientToTheNextGather) {
  for (const Config& config : kConverted)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      SCOPED_TRACE(name_of(config.strategy));
      auto model = nn::make<Apart>();
      auto sharded = fully_shard(*model, group, config);
      optim::SGD optimizer(model->named_parameters(), {.lr = 1});
      model(ones({40}), false).backward();
      load_full_state_dict(*sharded, {{"always", ones({40})}, {"once", full({40}, 3)}});
      optimizer.step();
      NoGrad no_grad;
      EXPECT_EQ(model(ones({40}), true).item(), 40 * (1 - group.size() + 3));
    });
}

// A parameter that a later pass without sync does not use keeps what an earlier one gave it.
TEST(ConvertedShard, SumsOfPassesWithoutSyncKeepWhatOnlyTheFirstOneUsed) {
  for (int world : {1, 2})
    for (const Config& config : strategies(world))
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        SCOPED_TRACE(concat(name_of(config.strategy), " W=", world));
        Config in_16_bits = config;
        in_16_bits.param_dtype = DType::bf16;
        auto model = nn::make<Apart>();
        auto sharded = fully_shard(*model, group, in_16_bits);
        optim::SGD optimizer(model->named_parameters(), {.lr = 1});
        {
          NoSync local(*sharded);
          model(ones({40}), true).backward();
          model(ones({40}), false).backward();
        }
        model(ones({40}), false).backward();
        optimizer.step();
        auto state = full_state_dict(*sharded, false);
        EXPECT_EQ(values_of(state.at("once")), std::vector<double>(40, 1.0 - group.size()));
        EXPECT_EQ(values_of(state.at("always")), std::vector<double>(40, 1.0 - 3 * group.size()));
      });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
