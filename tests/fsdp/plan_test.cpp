// The plan: what the engine does on meta is what it does.

#include <shardgrad/fsdp/plan.h>

#include <gtest/gtest.h>

#include <sstream>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

/// `before`: elements of an activation that has gone when the steps begin.
template <class Model>
Plan plan_of(int world, const Config& config, Device device, int64_t before = 0, bool alone = false) {
  Plan plan;
  auto body = [&](dist::ProcessGroup& group) {
    auto model = nn::make<Model>();
    auto sharded = fully_shard(*model, group, config);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
    zeros({before});
    Plan mine = make_plan(*sharded, [&] {
      mse_loss(model(zeros({4, 7})), zeros({4, 5}), 20).backward();
      optimizer.step();
      optimizer.zero_grad();
    });
    if (group.rank() == 0) plan = mine;
  };
  if (alone)
    dist::run_one_of(world, body);
  else
    dist::run_ranks(world, body, {.device = device, .threads = 1});
  return plan;
}

TEST(Plan, PredictedOnMetaEqualsMeasured) {
  for (int world : {1, 2, 4})
    for (Config config : {Config{.strategy = Strategy::ddp, .bucket_bytes = 0},
                          Config{.strategy = Strategy::zero1, .bucket_bytes = 0}, Config{.strategy = Strategy::zero2},
                          Config{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0}, Config{},
                          Config{.strategy = Strategy::hybrid, .shard_ranks = (world + 1) / 2}}) {
      Plan predicted = plan_of<Rooted>(world, config, kMeta), measured = plan_of<Rooted>(world, config, kCpu);
      EXPECT_EQ(predicted, measured) << name_of(config.strategy) << " W=" << world << '\n'
                                     << predicted.table() << measured.table();
    }
}

// More collectives than a recorder keeps when it is not tracing.
TEST(Plan, ALongStepIsCountedToItsEnd) {
  dist::run_one_of(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, group);
    NoGrad no_grad;
    constexpr int kTimes = 4000;
    Plan plan = make_plan(*sharded, [&] {
      for (int i = 0; i < kTimes; ++i) model(zeros({4, 7}));
    });
    int64_t bytes = 0;
    for (const UnitPlan& unit : plan.units) {
      EXPECT_EQ(unit.gathers, kTimes) << unit.name;
      bytes += unit.bytes_sent;
    }
    EXPECT_EQ(bytes, plan.bytes_sent);
    EXPECT_FALSE(context().recorder().tracing());
  });
}

// One rank whose peers do not exist needs and sends what it would with them.
TEST(Plan, OneOfManyRanksIsPlannedAlone) {
  for (int world : {1, 2, 3, 4})
    for (Config config : {Config{.strategy = Strategy::ddp}, Config{.strategy = Strategy::zero1},
                          Config{.strategy = Strategy::zero2}, Config{}, Config{.move_params_to_cpu = true},
                          Config{.strategy = Strategy::hybrid, .shard_ranks = world % 2 == 0 ? 2 : 1}}) {
      Plan alone = plan_of<Rooted>(world, config, kMeta, 0, true);
      Plan together = plan_of<Rooted>(world, config, kMeta);
      EXPECT_EQ(alone, together) << name_of(config.strategy) << " W=" << world << '\n'
                                 << alone.table() << together.table();
    }
  Plan many = plan_of<Rooted>(4096, {}, kMeta, 0, true);
  EXPECT_EQ(many.units[1].gathers, 2);
  EXPECT_EQ(many.units[1].bytes_sent, 3 * many.units[1].full_bytes / 4096 * 4095);
}

TEST(Plan, PeaksAreOfTheStepAlone) { EXPECT_EQ(plan_of<Rooted>(2, {}, kMeta, 1 << 20), plan_of<Rooted>(2, {}, kMeta)); }

TEST(Plan, OffloadIsPredictedToo) {
  Config config{.move_params_to_cpu = true};
  EXPECT_EQ(plan_of<Rooted>(2, config, kMeta), plan_of<Rooted>(2, config, kAcc));
}

TEST(Plan, TheTableNamesUnitsAndTraffic) {
  Plan plan = plan_of<Rooted>(2, {}, kMeta);
  ASSERT_EQ(plan.units.size(), 4u);
  EXPECT_EQ(plan.units[1].name, "b0");
  EXPECT_EQ(plan.units[1].parameters, 7 * 9 + 9);
  EXPECT_EQ(plan.units[1].gathers, 2);
  EXPECT_EQ(plan.units[1].bytes_sent, 3 * plan.units[1].full_bytes / 2);
  EXPECT_EQ(plan.units[3].gathers, 1) << "the last unit is kept for backward";
  EXPECT_TRUE(plan.table().starts_with("unit  parameters   MiB  share  gathers  reductions  MiB sent\n"))
      << plan.table();
  for (const char* part : {"\nb0            72  0.00 ", "\n  optimizer_state       0.00\n"})
    EXPECT_NE(plan.table().find(part), std::string::npos) << plan.table();
  std::istringstream all(plan.table().substr(plan.table().find("\nall ")));
  std::string name, mebibytes;
  int64_t parameters = 0, gathers = 0, reductions = 0;
  all >> name >> parameters >> mebibytes >> gathers >> reductions;
  for (const UnitPlan& unit : plan.units) {
    parameters -= unit.parameters;
    gathers -= unit.gathers;
    reductions -= unit.reductions;
  }
  EXPECT_EQ(parameters, 0) << plan.table();
  EXPECT_EQ(gathers, 0) << plan.table();
  EXPECT_EQ(reductions, 0) << plan.table();
}

TEST(Plan, B34_AUnitThatHoldsMostOfTheModelIsWarnedOf) {
  EXPECT_NE(plan_of<Flat>(2, {}, kMeta).warning().find("unit 'root' holds 100 %"), std::string::npos);
  EXPECT_NE(plan_of<Rooted>(2, {.wrap = wrap_by_size(1 << 20)}, kMeta).warning(), "");
  EXPECT_EQ(plan_of<Rooted>(2, {}, kMeta).warning(), "");
  EXPECT_EQ(plan_of<Flat>(1, {}, kMeta).warning(), "") << "one rank gathers nothing";
  EXPECT_EQ(plan_of<Flat>(2, {.strategy = Strategy::ddp}, kMeta).warning(), "") << "all is in memory anyway";
}

TEST(Plan, TheWarningSaysWhatCanBeDoneInTheWordsOfItsReader) {
  EXPECT_TRUE(plan_of<Flat>(2, {}, kMeta)
                  .warning()
                  .ends_with("; they are one module's, which only smaller ones in its place can change"));
  Plan plan = plan_of<Rooted>(2, {.wrap = wrap_by_size(1 << 20)}, kMeta);
  EXPECT_TRUE(plan.warning().ends_with("; make units of parts of it (Config::wrap)"));
  plan.wrap_setting = "fsdp.wrap=size";
  EXPECT_TRUE(plan.warning().ends_with("; make units of parts of it (fsdp.wrap=size)"));
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
