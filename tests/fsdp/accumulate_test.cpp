// Gradients over several backward passes: what is sent, what is kept, and what is refused.

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

int64_t padded_bytes(const Sharded& sharded) {
  int64_t total = 0;
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) total += int64_t(flat->full_bytes());
  return total;
}

template <class Model> void pass(nn::Child<Model>& model, int number) {
  Tensor x = rows_of_batch("x", number, 0, 4, 7, DType::f32);
  mse_loss(model(x), rows_of_batch("t", number, 0, 4, 5, DType::f32), 20).backward();
}

int count(const std::string& op) {
  int found = 0;
  for (const Record& record : context().recorder().records()) found += record.op == op && !record.unit.empty();
  return found;
}

TEST(Accumulation, I18_NoSyncGathersAsUsualAndReducesOnce) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group);
    auto counts = [&](bool local) {
      context().recorder().clear();
      std::optional<NoSync> scope;
      if (local) scope.emplace(*sharded);
      pass(model, 0);
      return std::pair(count("all_gather"), count("reduce_scatter"));
    };
    EXPECT_EQ(counts(true), std::pair(7, 0)) << "first step";
    EXPECT_EQ(counts(true), std::pair(6, 0));
    EXPECT_EQ(counts(false), std::pair(6, 4));
    EXPECT_EQ(counts(false), std::pair(6, 4));
  });
}

TEST(Accumulation, I29_NoSyncKeepsTheFullGradientsAndSyncOnlyTheShards) {
  for (int world : {1, 2, 3})
    for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Rooted>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy});
        int64_t full = padded_bytes(*sharded);
        {
          NoSync local(*sharded);
          for (int i = 0; i < 3; ++i) {
            pass(model, i);
            EXPECT_EQ(bytes(Category::full_gradient), full);
            EXPECT_EQ(bytes(Category::gradient_shard), 0);
          }
        }
        pass(model, 3);
        EXPECT_EQ(bytes(Category::full_gradient) + bytes(Category::gradient_shard), full / world);
        pass(model, 4);
        EXPECT_EQ(bytes(Category::full_gradient) + bytes(Category::gradient_shard), full / world);
      });
}

TEST(Accumulation, DdpAndZero1HoldASecondFullGradientWhileASyncedPassRuns) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      int64_t full = padded_bytes(*sharded);
      pass(model, 0);
      EXPECT_EQ(context().ledger().peak(Category::full_gradient), full);
      EXPECT_EQ(bytes(Category::full_gradient), full);
      pass(model, 1);
      EXPECT_GT(context().ledger().peak(Category::full_gradient), full);
      EXPECT_EQ(bytes(Category::full_gradient), full);
    });
}

// Without the sum being equal to 2 g, g the gradient of one pass, the old part was counted once per rank.
TEST(Accumulation, I05_PassesWithAndWithoutSyncMayBeMixed) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto after = [&](std::vector<bool> synced) {
        auto model = nn::make<Chain>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy});
        for (bool sync : synced) {
          std::optional<NoSync> local;
          if (!sync) local.emplace(*sharded);
          pass(model, 0);
        }
        return values_of(sharded->units()[0]->flat_params()[0]->grad());
      };
      std::vector<double> one = after({true}), four = after({true, false, true, true});
      for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(four[i], 4 * one[i]);
    });
}

TEST(Accumulation, I05_AUnitThatOnlyAnEarlierPassUsedIsReducedByTheLastOne) {
  struct Either : nn::Module {
    nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 5), b = child<nn::Linear>("b", 7, 5);
    bool first = true;
    Tensor forward(const Tensor& x) { return first ? a(x) : b(x); }
  };
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Either>();
    auto sharded = fully_shard(*model, group);
    {
      NoSync local(*sharded);
      pass(model, 0);
    }
    model->first = false;
    pass(model, 0);
    for (const auto& unit : sharded->units()) EXPECT_TRUE(unit->flat_params()[0]->grad().defined()) << unit->name();
    EXPECT_EQ(bytes(Category::full_gradient), 0);
  });
}

TEST(Accumulation, AStepOnGradientsThatWereNeverReducedIsRefusedByName) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    {
      NoSync local(*sharded);
      pass(model, 0);
    }
    std::string what = message_of([&] { optimizer.step(); });
    EXPECT_TRUE(contains(what, "unit 'a'") && contains(what, "NoSync")) << what;
    EXPECT_TRUE(contains(message_of([&] { clip_grad_norm(*sharded, 1); }), "NoSync"));
    optimizer.zero_grad();
    EXPECT_EQ(bytes(Category::full_gradient), 0);
    pass(model, 1);
    optimizer.step();
  });
}

TEST(Accumulation, I05_SeveralForwardsMayComeBeforeTheirBackwards) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (bool no_sync : {false, true})
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto run = [&](bool together) {
          auto model = nn::make<Rooted>();
          auto sharded = fully_shard(*model, group, {.strategy = strategy});
          std::vector<Tensor> losses;
          auto forward = [&](int i) {
            Tensor x = rows_of_batch("x", i, 0, 4, 7, DType::f32);
            losses.push_back(mse_loss(model(x), rows_of_batch("t", i, 0, 4, 5, DType::f32), 20));
          };
          for (int i = 0; i < 3 && together; ++i) forward(i);
          for (int i = 0; i < 3; ++i) {
            if (!together) forward(i);
            std::optional<NoSync> local;
            if (no_sync && i < 2) local.emplace(*sharded);
            losses[size_t(i)].backward();
          }
          std::vector<std::vector<double>> grads;
          for (const auto& unit : sharded->units()) grads.push_back(values_of(unit->flat_params()[0]->grad()));
          return grads;
        };
        EXPECT_EQ(run(true), run(false)) << name_of(strategy);
      });
}

TEST(Accumulation, ClearingOneParametersGradientLeavesTheOthersAndStartsItAnew) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Flat>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      const FlatParam& flat = *sharded->units()[0]->flat_params()[0];
      pass(model, 0);
      std::vector<double> one = values_of(flat.grad());
      model->weight.zero_grad();
      pass(model, 0);
      int64_t bias = flat.slices()[1].offset - flat.shard_begin();
      std::vector<double> now = values_of(flat.grad());
      for (int64_t i = 0; i < flat.shard().numel(); ++i)
        EXPECT_EQ(now[size_t(i)], (i < bias ? 1 : 2) * one[size_t(i)]) << i;
    });
}

TEST(Accumulation, ClearingGivesBackWhatAPassWithoutSyncLeftAfterOneWithSync) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    pass(model, 0);
    {
      NoSync no_sync(*sharded);
      pass(model, 1);
    }
    EXPECT_GT(context().ledger().current(Category::full_gradient), 0);
    optimizer.zero_grad();
    EXPECT_EQ(context().ledger().current(Category::full_gradient), 0);
  });
}

// Of parameters that every rank has whole, whose gradients are shown once they are reduced.
TEST(Accumulation, AGradientThatWasNotReducedIsNotShown) {
  for (auto [world, strategy] : {std::pair(2, Strategy::ddp), std::pair(1, Strategy::zero3)})
    dist::run_ranks(world, [strategy = strategy](dist::ProcessGroup& group) {
      auto model = nn::make<Flat>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      EXPECT_FALSE(model->weight.grad().defined());
      for (int earlier : {0, 1}) {
        {
          NoSync local(*sharded);
          pass(model, 0);
        }
        EXPECT_TRUE(contains(message_of([&] { model->weight.grad(); }), "'weight' is not reduced over the ranks"))
            << earlier;
        pass(model, 0);
        EXPECT_EQ(model->weight.grad().shape(), Shape({5, 7}));
      }
    });
}

TEST(Accumulation, I33_AFailedBackwardIsNotSteppedOn) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
    Tensor h = tanh(model(x));
    leaf_of(model->a->bias).add_ready_hook([] { fail("boom"); });
    EXPECT_THROW(sum(h).backward(), Error);
    NoGrad no_grad;
    model(x);
    EXPECT_TRUE(contains(message_of([&] { optimizer.step(); }), "failed halfway"));
    optimizer.zero_grad();
    EXPECT_TRUE(contains(message_of([&] { optimizer.step(); }), "no parameter has a gradient"));
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
