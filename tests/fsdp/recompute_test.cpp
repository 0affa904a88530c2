// Recompute inside and outside of sharded units: the same bits, and each unit gathered at most twice.

#include <gtest/gtest.h>

#include "tests/fsdp/regions.h"

namespace shardgrad::fsdp::testing {
namespace {

void expect_same_bits(Device device, std::vector<int> worlds, int steps) {
  for (int world : worlds) {
    TrainingRun setup{.world = world, .optim = Optim::adamw, .device = device, .steps = steps};
    setup.config = {.strategy = Strategy::ddp, .wrap = kWrap};
    Outcome expected = train_with(Where::nothing, setup);
    for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3, Strategy::hybrid})
      for (Where where : kChoices) {
        if (strategy == Strategy::hybrid && world != 4) continue;
        setup.config.strategy = strategy;
        setup.config.shard_ranks = strategy == Strategy::hybrid ? 2 : 0;
        EXPECT_TRUE(train_with(where, setup) == expected)
            << name_of(strategy) << " W=" << world << " on " << device << " recompute " << int(where);
      }
  }
}

TEST(Recompute, I03_EveryStrategyAndRegionGivesTheBitsOfThePlainRun) { expect_same_bits(kCpu, {1, 2, 3, 4}, 4); }
TEST(Recompute, I03_OnAnAsynchronousDeviceToo) { expect_same_bits(kAcc, {1, 2, 3, 4}, 3); }

TEST(Recompute, I03_PrefetchAndWrappingChangeNothing) {
  TrainingRun setup{.world = 2, .device = kAcc, .steps = 3};
  setup.config.wrap = kWrap;
  Outcome expected = train_with(Where::nothing, setup);
  for (int prefetch : {0, 1, 3})
    for (bool leaves : {false, true})
      for (Where where : kChoices) {
        setup.config.prefetch = prefetch;
        setup.config.wrap = leaves ? wrap_by_size(1) : wrap_by_type({"Half"});
        EXPECT_TRUE(train_with(where, setup) == expected) << "prefetch " << prefetch << " recompute " << int(where);
      }
}

TEST(Recompute, I03_OffloadAndAccumulationChangeNothing) {
  for (bool no_sync : {false, true}) {
    TrainingRun setup{.world = 2, .device = kAcc, .steps = 2, .micro = 2, .no_sync = no_sync, .clip = 0.5};
    setup.config.wrap = kWrap;
    Outcome expected = train_with(Where::nothing, setup);
    for (bool offload : {false, true})
      for (Where where : kChoices) {
        setup.config.move_params_to_cpu = offload;
        EXPECT_TRUE(train_with(where, setup) == expected)
            << "no_sync " << no_sync << " offload " << offload << " recompute " << int(where);
      }
  }
}

template <Where where> void expect_at_most_two_gathers(int prefetch) {
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Net<where>>();
    auto sharded = fully_shard(*model, group, {.prefetch = prefetch, .wrap = kWrap});
    for (int step = 0; step < 4; ++step) {
      context().recorder().clear();
      Tensor loss = mse_loss(model(rows_of_batch("x", step, 0, 4, 7, DType::f32)), zeros({4, 5}), 20);
      loss.backward();
      model->zero_grad();
      std::map<std::string, int> gathers, in_forward, reductions;
      for (const Record& record : context().recorder().records()) {
        gathers[record.unit] += record.op == "all_gather";
        in_forward[record.unit] += record.op == "all_gather" && record.phase == "forward";
        reductions[record.unit] += record.op == "reduce_scatter";
      }
      EXPECT_EQ(sharded->units().size(), 9);
      int twice = 0;
      for (const auto& unit : sharded->units()) {
        EXPECT_EQ(in_forward[unit->name()], 1);
        EXPECT_LE(gathers[unit->name()], 2) << unit->name() << " in step " << step << " recompute " << int(where);
        EXPECT_EQ(reductions[unit->name()], 1) << unit->name();
        EXPECT_EQ(unit->state(), UnitState::sharded);
        twice += gathers[unit->name()] == 2;
      }
      EXPECT_EQ(twice, step == 0 ? 8 : 7) << "all but the root and, once known, the last";
    }
  });
}

TEST(Recompute, I21_EveryUnitIsGatheredAtMostTwice) {
  for (int prefetch : {0, 1, 2}) {
    expect_at_most_two_gathers<Where::nothing>(prefetch);
    expect_at_most_two_gathers<Where::inside_units>(prefetch);
    expect_at_most_two_gathers<Where::around_units>(prefetch);
    expect_at_most_two_gathers<Where::nested>(prefetch);
    expect_at_most_two_gathers<Where::everything>(prefetch);
  }
}

// With one region at a time unsharded: root + (1 + prefetch) · largest, and the region's units.
TEST(Recompute, I28_GatheredParametersAreBoundedByTheRegion) {
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Net<Where::around_units>>();
    auto sharded = fully_shard(*model, group, {.prefetch = 1, .wrap = kWrap});
    int64_t root = 0, largest = 0, region = 0;
    for (const auto& unit : sharded->units()) {
      int64_t bytes = int64_t(unit->full_bytes());
      if (unit->is_root()) root = bytes;
      if (!unit->is_root()) largest = std::max(largest, bytes);
      if (unit->name().starts_with("first")) region += bytes;
    }
    Ledger& ledger = context().ledger();
    int64_t worst = 0;
    ledger.on_change([&](Tag, int64_t) { worst = std::max(worst, ledger.current(Category::gathered_parameter)); });
    for (int step = 0; step < 3; ++step) {
      mse_loss(model(rows_of_batch("x", step, 0, 4, 7, DType::f32)), zeros({4, 5}), 20).backward();
      model->zero_grad();
    }
    ledger.on_change(nullptr);
    EXPECT_LE(worst, root + 2 * largest + region);
    EXPECT_GT(worst, root + region);
    EXPECT_EQ(ledger.current(Category::gathered_parameter), 0);
  });
}

TEST(Recompute, AWriteBetweenTheRunsIsRefusedByName) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Net<Where::around_units>>();
      fully_shard(*model, group, {.strategy = strategy, .wrap = kWrap});
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = zeros({4, 5});
      mse_loss(model(x), t, 20).backward();
      Tensor loss = mse_loss(model(x), t, 20);
      optimizer.step();
      EXPECT_THROW(loss.backward(), Error);
    });
}

TEST(Recompute, I33_AFailedSecondRunLeavesTheScheduleUsable) {
  struct Faulty : nn::Module {
    struct Inner : nn::Module {
      nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7);
      bool armed = false;
      Tensor forward(const Tensor& x) {
        Tensor h = tanh(a(x));
        if (armed && recomputing()) fail("boom");
        return b(h);
      }
    };
    nn::Child<Inner> inner = child<Inner>("inner");
    nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 5);
    Faulty() { nn::recompute(*inner); }
    Tensor forward(const Tensor& x) { return out(inner(x)); }
  };
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Faulty>();
    fully_shard(*model, group, {.wrap = wrap_by_type({"Linear"})});
    auto step = [&] {
      mse_loss(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32)), zeros({4, 5}), 20).backward();
      model->zero_grad();
    };
    step();
    int64_t baseline = context().ledger().current();
    for (int i = 0; i < 3; ++i) {
      model->inner->armed = true;
      EXPECT_THROW(step(), Error);
      model->inner->armed = false;
      step();
      EXPECT_EQ(context().ledger().current(), baseline);
    }
  });
}

// A frozen unit at the beginning of a region is needed by the second run only.
TEST(Recompute, I28_AFrozenUnitThatNoGradientPassesIsGivenBackAfterTheSecondRun) {
  struct Pair : nn::Module {
    nn::Child<nn::Linear> frozen = child<nn::Linear>("frozen", 7, 9), trained = child<nn::Linear>("trained", 9, 5);
    Pair() {
      frozen->weight.set_requires_grad(false);
      frozen->bias.set_requires_grad(false);
    }
    Tensor forward(const Tensor& x) { return trained(tanh(frozen(x))); }
  };
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Pair>();
    nn::recompute(*model);
    auto sharded = fully_shard(*model, group, {.prefetch = 0});
    for (int i = 0; i < 2; ++i) {
      context().recorder().clear();
      mse_loss(model(rows_of_batch("x", i, 0, 4, 7, DType::f32)), rows_of_batch("t", i, 0, 4, 5, DType::f32), 20)
          .backward();
    }
    std::vector<std::string> events;
    for (const Record& record : context().recorder().records())
      if (record.phase == "backward") events.push_back(record.op + " " + record.unit);
    EXPECT_EQ(events, (std::vector<std::string>{"all_gather frozen", "reshard frozen", "reduce_scatter trained",
                                                "reshard trained"}));
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
