// What an optimizer of a sharded model updates and what it refuses: the same as that of a plain one.

#include <gtest/gtest.h>

#include "tests/autograd/support.h"
#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// Less elements than ranks have: at three ranks the last one's shard is padding.
struct Small : nn::Module {
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 5);
  Tensor forward(const Tensor& x) { return out(x); }
};

TEST(Optimizers, AStepWithoutAnyGradientIsRefusedUnderEveryStrategy) {
  for (int world : {1, 2, 3})
    for (const Config& config : strategies(world))
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        SCOPED_TRACE(concat(name_of(config.strategy), " W=", world));
        auto model = nn::make<Small>();
        auto sharded = fully_shard(*model, group, config);
        optim::AdamW optimizer(model->named_parameters(), {});
        auto refused = [&] {
          return contains(message_of([&] { optimizer.step(); }),
                          "AdamW: no parameter has a gradient; call backward() before step()");
        };
        EXPECT_TRUE(refused()) << "before any backward";
        {
          NoGrad no_grad;
          model(zeros({2, 7}));
        }
        EXPECT_TRUE(refused()) << "after an evaluation";
        sum(model->out(ones({2, 7}))).backward();
        optimizer.step();  // also on a rank that holds nothing but padding
        optimizer.zero_grad();
        EXPECT_TRUE(refused()) << "after zero_grad";
      });
}

TEST(Optimizers, ParametersThatAPassDoesNotUseStayAsTheyAre) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Unused>();
      auto sharded = fully_shard(*model, group, config);
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      auto before = full_state_dict(*sharded, false);
      mse_loss(model(ones({4, 7})), zeros({4, 5}), 40).backward();
      optimizer.step();
      auto after = full_state_dict(*sharded, false);
      for (auto& [name, tensor] : before)
        EXPECT_EQ(values_of(tensor) == values_of(after.at(name)), name.starts_with("spare") || name == "lucky.extra")
            << name;
    });
}

// Weights and biases are neighbours in one shard, with the same weight decay.
TEST(Optimizers, NeighboursWithLearningRatesOfTheirOwnStepAsInAPlainModel) {
  for (bool adam : {false, true}) {
    auto train = [&](nn::Child<Small>& model, int rank, int world) {
      optim::Rules rules{{"*.bias", {.lr_scale = 3}}};
      std::unique_ptr<optim::Optimizer> optimizer;
      if (adam)
        optimizer = std::make_unique<optim::AdamW>(model->named_parameters(), optim::AdamOptions{.lr = 0.02}, rules);
      else
        optimizer = std::make_unique<optim::SGD>(model->named_parameters(), optim::SgdOptions{.lr = 0.02}, rules);
      for (int step = 0; step < 4; ++step) {
        if (step == 3) optimizer->set_lr_of(0, 0.05);
        int64_t begin = 12 * rank / world, end = 12 * (rank + 1) / world;
        Tensor x = rows_of_batch("x", step, begin, end, 7, DType::f64);
        mse_loss(model(x), rows_of_batch("t", step, begin, end, 5, DType::f64), 60).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
    };
    std::map<std::string, std::vector<double>> expected;
    {
      Context context;
      auto plain = nn::make<Small>();
      plain->to(DType::f64);
      train(plain, 0, 1);
      for (auto& [name, tensor] : plain->state_dict()) expected[name] = values_of(tensor.detach());
    }
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Small>();
        model->to(DType::f64);
        auto sharded = fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
        train(model, group.rank(), 2);
        for (auto& [name, tensor] : full_state_dict(*sharded, false))
          test::expect_close(values_of(tensor), expected.at(name), 1e-12, name);
      });
  }
}

TEST(Optimizers, ShardsIn16BitsAreRefusedAndParametersIn16BitsAreNot) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto narrow = nn::make<Small>();
    narrow->to(DType::bf16);
    auto sharded_narrow = fully_shard(*narrow, group);
    EXPECT_TRUE(contains(message_of([&] { optim::AdamW(narrow->named_parameters(), {}); }), "'out.weight' is bf16"));
    auto wide = nn::make<Small>();
    auto sharded_wide = fully_shard(*wide, group, {.param_dtype = DType::bf16});
    optim::AdamW optimizer(wide->named_parameters(), {});
    mse_loss(wide(ones({2, 7})), zeros({2, 5}, DType::bf16), 20).backward();
    optimizer.step();
  });
}

// Rank 0 alone has a gradient, so that its bits are the same on any number of ranks.
void train_rounded(nn::Child<Small>& model, bool adam, int rank) {
  optim::AdamOptions of_adam{.lr = 1e-3, .stochastic_rounding = true};
  optim::SgdOptions of_sgd{.lr = 1e-4, .momentum = 0.9, .stochastic_rounding = true};
  std::unique_ptr<optim::Optimizer> optimizer;
  if (adam)
    optimizer = std::make_unique<optim::AdamW>(model->named_parameters(), of_adam);
  else
    optimizer = std::make_unique<optim::SGD>(model->named_parameters(), of_sgd);
  for (int step = 0; step < 4; ++step) {
    sum(model(full({1, 7}, step + 1, DType::bf16)) * (rank == 0 ? 1.0 : 0.0)).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
}

TEST(Optimizers, ShardsInBf16AreRoundedAsThoseOfAPlainModel) {
  for (bool adam : {false, true}) {
    Weights expected, before;
    {
      Context context;
      auto plain = nn::make<Small>();
      plain->to(DType::bf16);
      plain->materialize();
      for (auto& [name, tensor] : plain->state_dict()) before[name] = values_of(tensor.detach());
      train_rounded(plain, adam, 0);
      for (auto& [name, tensor] : plain->state_dict()) expected[name] = values_of(tensor.detach());
    }
    EXPECT_NE(expected, before);
    for (int world : {1, 2, 3})
      for (const Config& config : strategies(world))
        dist::run_ranks(world, [&](dist::ProcessGroup& group) {
          auto model = nn::make<Small>();
          model->to(DType::bf16);
          auto sharded = fully_shard(*model, group, config);
          train_rounded(model, adam, group.rank());
          EXPECT_EQ(weights_of(*sharded), expected) << name_of(config.strategy) << " W=" << world << " adam " << adam;
        });
  }
}

TEST(Optimizers, AShardedModelIsNotMoved) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Small>();
    auto sharded = fully_shard(*model, group);
    EXPECT_TRUE(contains(message_of([&] { model->to(DType::bf16); }), "'out.weight' is sharded"));
    EXPECT_TRUE(contains(message_of([&] { model->to(kAcc); }), "before fully_shard"));
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
