// Every byte equals the plan.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

int64_t bytes(Category category) { return context().ledger().current(category); }

int64_t total_padded(const Sharded& sharded) {
  int64_t total = 0;
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) total += flat->padded();
  return total;
}

template <class Model> void step(nn::Child<Model>& model, optim::Optimizer& optimizer, int number) {
  Tensor x = rows_of_batch("x", number, 0, 4, 7, DType::f32);
  mse_loss(model(x), rows_of_batch("t", number, 0, 4, 5, DType::f32), 20).backward();
  optimizer.step();
}

TEST(Bytes, I26_I27_PersistentMemoryIsFourFourAndEightBytesPerElementOfThePaddedShard) {
  for (int world : {1, 2, 3, 4})
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Rooted>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy});
        int64_t shard = total_padded(*sharded) / (strategy == Strategy::ddp ? 1 : world);
        EXPECT_EQ(bytes(Category::parameter_shard), 4 * shard);
        EXPECT_EQ(context().ledger().current(), 4 * shard) << "nothing else is held after construction";
        optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
        step(model, optimizer, 0);
        EXPECT_EQ(bytes(Category::parameter_shard), 4 * shard);
        EXPECT_EQ(bytes(Category::gradient_shard) + bytes(Category::full_gradient), 4 * shard);
        EXPECT_EQ(bytes(Category::optimizer_state), 8 * shard);
        EXPECT_EQ(bytes(Category::gathered_parameter), 0);
        optimizer.zero_grad();
        EXPECT_EQ(context().ledger().current(), 12 * shard) << "no gradient bytes remain";
      });
}

TEST(Bytes, I28_GatheredParametersNeverExceedTheBound) {
  for (int prefetch : {0, 1, 2})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.strategy = Strategy::zero3, .prefetch = prefetch});
      int64_t root = 0, largest = 0;
      for (const auto& unit : sharded->units()) {
        if (unit->is_root())
          root = int64_t(unit->full_bytes());
        else
          largest = std::max(largest, int64_t(unit->full_bytes()));
      }
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
      int64_t worst = 0;
      context().ledger().on_change([&](Tag, int64_t) { worst = std::max(worst, bytes(Category::gathered_parameter)); });
      for (int i = 0; i < 3; ++i) step(model, optimizer, i);
      context().ledger().on_change(nullptr);
      EXPECT_LE(worst, root + (1 + prefetch) * largest) << "prefetch " << prefetch;
      EXPECT_GT(worst, root);
      EXPECT_EQ(bytes(Category::gathered_parameter), 0);
    });
}

TEST(Bytes, AtMostTwoFullGradientsAreAliveTheOneBeingWrittenAndTheOneBeingSent) {
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      std::vector<int64_t> sizes;
      for (const auto& unit : sharded->units()) sizes.push_back(int64_t(unit->full_bytes()));
      std::ranges::sort(sizes, std::greater());
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
      for (int i = 0; i < 3; ++i) step(model, optimizer, i);
      // The root's is open from its first gradient on.
      int64_t root = int64_t(sharded->units()[0]->full_bytes());
      EXPECT_LE(context().ledger().peak(Category::full_gradient), root + sizes[0] + sizes[1]);
      EXPECT_GE(context().ledger().peak(Category::full_gradient), sizes[0] + sizes[1]);
    });
}

TEST(Bytes, I33_NothingGrowsOverAThousandSteps) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.001});
    int64_t current = 0, peak = 0;
    for (int i = 0; i < 1000; ++i) {
      step(model, optimizer, i % 8);
      optimizer.zero_grad();
      if (i % 10 == 0) {
        NoGrad no_grad;
        model(rows_of_batch("x", 0, 0, 4, 7, DType::f32));
      }
      if (i == 20) current = context().ledger().current(), peak = context().ledger().peak();
    }
    EXPECT_EQ(context().ledger().current(), current);
    EXPECT_EQ(context().ledger().peak(), peak);
  });
}

struct Explosive : Rooted {
  bool armed = false;
  Tensor forward(const Tensor& x) {
    Tensor h = tanh(b0(x * scale));
    if (armed) fail("boom");
    return b2(tanh(b1(h))) + shift;
  }
};

TEST(Bytes, I33_AnExceptionInForwardLeavesNothingBehind) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Explosive>();
    fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    step(model, optimizer, 0);
    optimizer.zero_grad();
    int64_t baseline = context().ledger().current();
    for (int i = 0; i < 3; ++i) {
      model->armed = true;
      EXPECT_THROW(step(model, optimizer, 1), Error);
      model->armed = false;
      step(model, optimizer, 1);
      optimizer.zero_grad();
      EXPECT_EQ(context().ledger().current(), baseline);
    }
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
