// The list of gathers, reductions and releases is part of the contract: one transfer more is a failure.

#include <shardgrad/fsdp/step/schedule.h>

#include <gtest/gtest.h>

#include <thread>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

struct Traffic {
  std::vector<std::string> events;  // "AG b0", "RS b0", "AR b0", "free b0", in order, "|" where backward begins
  int64_t bytes_sent = 0;
  int gathers = 0, reductions = 0;
};

Traffic read(const std::vector<Record>& records) {
  Traffic traffic;
  bool backward = false;
  for (const Record& record : records) {
    if (record.unit.empty() || record.op == "broadcast") continue;
    if (!backward && record.phase == "backward") traffic.events.push_back("|"), backward = true;
    const char* verb = record.op == "all_gather"       ? "AG "
                       : record.op == "reduce_scatter" ? "RS "
                       : record.op == "all_reduce"     ? "AR "
                                                       : "free ";
    traffic.events.push_back(verb + record.unit);
    traffic.bytes_sent += record.bytes_sent;
    traffic.gathers += record.op == "all_gather";
    traffic.reductions += record.op == "reduce_scatter" || record.op == "all_reduce";
  }
  return traffic;
}

// Records of each step of rank 0, and the padded size of every unit. Each step may have a thread of its own.
template <class Model>
std::vector<Traffic> steps(int world, Config config, int count, std::map<std::string, int64_t>* padded = nullptr,
                           bool threads = false) {
  std::vector<Traffic> result;
  dist::run_ranks(world, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Model>();
    auto sharded = fully_shard(*model, group, config);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    for (int step = 0; step < count; ++step) {
      context().recorder().clear();
      auto train = [&, &mine = context()] {
        ContextScope scope(mine);
        group.take_over();
        Tensor x = rows_of_batch("x", step, 0, 4, 7, DType::f32);
        mse_loss(model(x), rows_of_batch("t", step, 0, 4, 5, DType::f32), 20).backward();
        optimizer.step();
        optimizer.zero_grad();
      };
      threads ? std::thread(train).join() : train();
      if (group.rank() == 0) result.push_back(read(context().recorder().records()));
    }
    if (padded && group.rank() == 0)
      for (const auto& unit : sharded->units())
        for (const auto& flat : unit->flat_params()) (*padded)[unit->name()] += flat->padded();
  });
  return result;
}

using Events = std::vector<std::string>;

TEST(Schedule, I17_ZeRO3FollowsTheListOfTheDesign) {
  auto run = steps<Rooted>(2, {.strategy = Strategy::zero3, .prefetch = 1}, 4);
  Events first = {"AG root", "AG b0", "free b0", "AG b1",   "free b1",  "AG b2", "free b2",
                  "|",       "AG b2", "AG b1",   "RS b2",   "free b2",  "AG b0", "RS b1",
                  "free b1", "RS b0", "free b0", "RS root", "free root"};
  Events warm = {"AG root", "AG b0", "AG b1", "free b0", "AG b2", "free b1", "|",       "AG b1",    "RS b2",
                 "free b2", "AG b0", "RS b1", "free b1", "RS b0", "free b0", "RS root", "free root"};
  EXPECT_EQ(run[0].events, first);
  for (size_t step : {1, 2, 3}) EXPECT_EQ(run[step].events, warm) << "step " << step;
}

TEST(Schedule, ZeRO2KeepsParametersFromForwardToBackward) {
  auto run = steps<Rooted>(2, {.strategy = Strategy::zero2, .prefetch = 1}, 2);
  Events warm = {"AG root", "AG b0",   "AG b1", "AG b2",   "|",       "RS b2",    "free b2",
                 "RS b1",   "free b1", "RS b0", "free b0", "RS root", "free root"};
  EXPECT_EQ(run[1].events, warm);
}

TEST(Schedule, DdpOnlyReduces) {
  auto run = steps<Rooted>(2, {.strategy = Strategy::ddp, .bucket_bytes = 0}, 2);
  EXPECT_EQ(run[1].events, (Events{"|", "AR b2", "AR b1", "AR b0", "AR root"}));
}

TEST(Schedule, WithoutPrefetchAUnitIsGatheredWhenItIsNeeded) {
  auto run = steps<Rooted>(2, {.strategy = Strategy::zero3, .prefetch = 0}, 2);
  Events warm = {"AG root", "AG b0", "free b0", "AG b1", "free b1", "AG b2",   "|",       "RS b2",    "free b2",
                 "AG b1",   "RS b1", "free b1", "AG b0", "RS b0",   "free b0", "RS root", "free root"};
  EXPECT_EQ(run[1].events, warm);
}

TEST(Schedule, TheByteBudgetHoldsPrefetchBack) {
  auto run = steps<Rooted>(2, {.strategy = Strategy::zero3, .prefetch = 2, .prefetch_bytes = 1}, 2);
  auto without = steps<Rooted>(2, {.strategy = Strategy::zero3, .prefetch = 0}, 2);
  EXPECT_EQ(run[1].events, without[1].events);
}

// Gathers per step = Σ a_u, a_u = 1 for a unit kept from forward to backward, else 2; reductions one each; elements
// moved per rank = Σ (a_u + 1) · P_u · (W-1)/W.
template <class Model>
void expect_traffic(const char* name, std::map<std::string, int> first, std::map<std::string, int> later) {
  for (int world : {2, 3, 4}) {
    std::map<std::string, int64_t> padded;
    auto run = steps<Model>(world, {.strategy = Strategy::zero3}, 4, &padded);
    for (size_t step = 0; step < run.size(); ++step) {
      const auto& gathers = step == 0 ? first : later;
      int count = 0, reductions = 0;
      int64_t elements = 0;
      for (const auto& [unit, a] : gathers) {
        count += a;
        ++reductions;
        elements += (a + 1) * padded.at(unit) / world * (world - 1);
      }
      EXPECT_EQ(run[step].gathers, count) << name << " W=" << world << " step " << step;
      EXPECT_EQ(run[step].reductions, reductions) << name << " W=" << world << " step " << step;
      EXPECT_EQ(run[step].bytes_sent, 4 * elements) << name << " W=" << world << " step " << step;
    }
  }
}

TEST(Traffic, I19_ElementsMovedEqualTheFormula) {
  expect_traffic<Rooted>("Rooted", {{"root", 1}, {"b0", 2}, {"b1", 2}, {"b2", 2}},
                         {{"root", 1}, {"b0", 2}, {"b1", 2}, {"b2", 1}});
  expect_traffic<Chain>("Chain", {{"a", 2}, {"b", 2}, {"c", 2}}, {{"a", 2}, {"b", 2}, {"c", 1}});
  expect_traffic<Flat>("Flat", {{"root", 1}}, {{"root", 1}});
}

TEST(Traffic, I19_EveryStrategySendsWhatTheTableSays) {
  struct Row {
    Config config;
    double shares;  // of P, of all units
  };
  double across = 2.0 / 2 / 2;  // 2 (P/S)(R-1)/R with S = R = 2
  for (const Row& row :
       {Row{{.strategy = Strategy::ddp, .bucket_bytes = 0}, 2 * 0.75},
        Row{{.strategy = Strategy::zero1, .bucket_bytes = 0}, 2 * 0.75}, Row{{.strategy = Strategy::zero2}, 2 * 0.75},
        Row{{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0}, 2 * 0.75},
        Row{{.strategy = Strategy::zero3}, 3 * 0.75},
        Row{{.strategy = Strategy::hybrid, .shard_ranks = 2}, 3 * 0.5 + across},
        Row{{.strategy = Strategy::hybrid, .shard_ranks = 4}, 3 * 0.75},
        Row{{.strategy = Strategy::hybrid, .shard_ranks = 1}, 2 * 0.75}}) {
    std::map<std::string, int64_t> padded;
    auto run = steps<Rooted>(4, row.config, 3, &padded);
    double total = 0;
    for (auto& [unit, size] : padded) total += double(size);
    // P_k: the root and the unit whose backward comes first are gathered once only.
    double kept = row.config.reshards_after_forward() ? double(padded.at("root") + padded.at("b2")) : 0;
    int parts = row.config.parts(4);
    double expected = 4 * (row.shares * total - kept * double(parts - 1) / parts);
    for (size_t step : {1, 2})
      EXPECT_EQ(double(run[step].bytes_sent), expected)
          << name_of(row.config.strategy) << ' ' << row.config.shard_ranks << " step " << step;
  }
}

TEST(Traffic, KeptParametersAreGatheredOnceAfterAStepWhateverIsEvaluated) {
  for (Config config : {Config{.strategy = Strategy::zero1, .bucket_bytes = 0},
                        Config{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0}})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      fully_shard(*model, group, config);
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
      for (int step = 0; step < 3; ++step) {
        Tensor x = rows_of_batch("x", step, 0, 4, 7, DType::f32);
        context().recorder().clear();
        for (int i = 0; i < 2; ++i) {
          NoGrad no_grad;
          model(x);
        }
        mse_loss(model(x), rows_of_batch("t", step, 0, 4, 5, DType::f32), 20).backward();
        EXPECT_EQ(read(context().recorder().records()).gathers, 4);
        optimizer.step();
        optimizer.zero_grad();
      }
    });
}

TEST(Traffic, I17_OneRankSendsNothing) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    auto run = steps<Rooted>(1, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)}, 2);
    EXPECT_EQ(run[1].bytes_sent, 0);
    EXPECT_EQ(run[1].gathers + run[1].reductions, 0);
  }
}

TEST(Traffic, I22_EvaluationGathersEachUnitOnceAndKeepsNothing) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    fully_shard(*model, group);
    NoGrad no_grad;
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
    model(x);
    int64_t before = context().ledger().current();
    for (int i = 0; i < 3; ++i) {
      context().recorder().clear();
      model(x);
      Traffic traffic = read(context().recorder().records());
      EXPECT_EQ(traffic.gathers, 4);
      EXPECT_EQ(traffic.reductions, 0);
      EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0);
    }
    EXPECT_EQ(context().ledger().current(), before);
  });
}

// A reduction starts with its last gradient in every pass, whichever thread runs it.
TEST(Schedule, I17_I29_AStepInAThreadOfItsOwnMakesTheSameList) {
  for (const Config& config : strategies(2)) {
    auto one = steps<Chain>(2, config, 3), several = steps<Chain>(2, config, 3, nullptr, true);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].events, several[i].events) << name_of(config.strategy);
  }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
