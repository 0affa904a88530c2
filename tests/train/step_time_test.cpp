// The time that a step will take: the pieces of one rank's step, put into the order of several ranks' with what they
// send. How near that is to a measured step: bench/compare_plan_time.

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/rehearsal.h>
#include <shardgrad/train/step_time.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using train::Pieces;
using train::Rates;
using train::StepClock;
using train::StepTime;

// Numbered in the order in which they are made, as a recorder does.
class Records {
 public:
  Records& compute(const char* op, const char* unit, double begin, double end) {
    return add({.op = op, .unit = unit, .lane = "compute", .begin = begin, .end = end});
  }
  Records& send(const char* op, const char* unit, uint64_t number) {
    return add(
        {.op = op, .unit = unit, .lane = "communication", .bytes_sent = 100, .end = 0, .group = 7, .number = number});
  }
  Records& wait(uint64_t number) { return add({.op = "wait", .end = 0, .group = 7, .number = number}); }
  std::vector<Record> all;

 private:
  Records& add(Record record) {
    record.sequence = all.size();
    all.push_back(std::move(record));
    return *this;
  }
};

TEST(StepTime, APieceLastsFromTheEndOfTheOneBeforeAndContainsNoOther) {
  Records step;
  step.compute("forward", "", 1, 10).compute("forward", "a", 2, 4).send("all_gather", "a", 1);
  step.compute("forward", "b", 5, 9).compute("backward", "a", 12, 15).compute("step", "", 15, 16);
  EXPECT_EQ(train::pieces_of(step.all, 0.5, 18),
            (Pieces{{"forward a", {3.5}}, {"forward b", {5}}, {"backward a", {6}}, {"step ", {3}}}));
}

TEST(StepTime, APieceHeldUpOnceCountsAsInTheOtherSteps) {
  Pieces medians = train::medians_of({{{"forward a", {1, 9}}, {"step ", {3}}},
                                      {{"forward a", {7, 2}}, {"step ", {5}}},
                                      {{"forward a", {2, 1}}, {"step ", {4}}}});
  EXPECT_EQ(medians, (Pieces{{"forward a", {2, 2}}, {"step ", {4}}}));
}

const Pieces kPieces{{"forward a", {2}}, {"forward b", {2}}, {"backward b", {4}}, {"backward a", {4}}, {"step ", {2}}};

// The worked example of train/step_time.h.
std::vector<Record> two_units() {
  Records step;
  step.send("all_gather", "a", 1).wait(1).send("all_gather", "b", 2).compute("forward", "a", 0, 0.1).wait(2);
  step.compute("forward", "b", 0.1, 0.2).compute("backward", "b", 0.2, 0.3).send("reduce_scatter", "b", 3);
  step.compute("backward", "a", 0.3, 0.4).send("reduce_scatter", "a", 4).wait(3).wait(4).compute("step", "", 0.4, 0.5);
  return step.all;
}

TEST(StepTime, WhatIsSentHidesBehindWhatIsComputedMeanwhile) {
  StepTime time = train::step_time(two_units(), kPieces, 0.5, {.bandwidth = 200, .latency = 0.5});
  EXPECT_DOUBLE_EQ(time.step, 15);
  EXPECT_DOUBLE_EQ(time.computing, 13);
  EXPECT_DOUBLE_EQ(time.sending, 4);
  EXPECT_DOUBLE_EQ(time.exposed, 2);
}

TEST(StepTime, ASlowNetworkHoldsTheStepUp) {
  StepTime time = train::step_time(two_units(), kPieces, 0.5, {.bandwidth = 10, .latency = 0});
  EXPECT_DOUBLE_EQ(time.sending, 40);
  EXPECT_DOUBLE_EQ(time.step, 10 + 10 + 2 + 4 + 10 + 10 + 1);  // a's forward, and a's backward, behind what is sent
  EXPECT_DOUBLE_EQ(time.exposed, 40 - 2 - 4);
}

TEST(StepTime, OneThatComputesSomethingElseIsRefused) {
  Pieces other = kPieces;
  other.erase("backward b");
  EXPECT_THAT(
      error_of([&] { train::step_time(two_units(), other, 1, {}); }),
      testing::HasSubstr("the step of one rank alone has 0 times 'backward b', and that of one of several more"));
}

TEST(StepTime, StepsThatDifferAreRefused) {
  Pieces other = kPieces;
  other.erase("backward b");
  EXPECT_THAT(error_of([&] {
                train::medians_of({kPieces, other, kPieces});
              }),
              testing::HasSubstr("a step has 'backward b' 1 times, and another one has not"));
}

TEST(StepTime, StreamsThatSendAtOnceShareTheNetwork) {
  std::vector<Record> records = two_units();
  for (Record& record : records)
    if (record.op == "reduce_scatter") record.lane = "reductions";
  StepTime time = train::step_time(records, kPieces, 0.5, {.bandwidth = 0.1, .latency = 0});
  EXPECT_DOUBLE_EQ(time.sending, 4000);
  EXPECT_GE(time.step, 4000);
  EXPECT_GE(time.exposed, 4000 - 13);
}

class StepClockTest : public TrainerTest {
 protected:
  StepTime time(const std::string& strategy, int ranks, const Rates& network = {}, int of_machine = 1) {
    StepClock clock(config_, data::FashionMnist::known_outline(), kCpu, of_machine, 1);
    return clock.of(strategy, ranks, network);
  }
};

TEST_F(StepClockTest, OneRankOnlyComputes) {
  StepTime alone = time("ddp", 1, {.bandwidth = 1, .latency = 1});
  EXPECT_GT(alone.computing, 0);
  EXPECT_DOUBLE_EQ(alone.step, alone.computing);
  EXPECT_EQ(alone.sending, 0);
  EXPECT_EQ(alone.exposed, 0);
}

TEST_F(StepClockTest, EachStrategySendsWhatItsPlanSays) {
  constexpr double kBandwidth = 1e3;  // so low that nothing hides much
  for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3", "hybrid"}) {
    config_.strategy = strategy;
    config_.fsdp.options.shard_ranks = strategy == "hybrid" ? 2 : 0;
    fsdp::Plan plan = train::plan(config_, data::FashionMnist::known_outline(), 4, kMeta, {kCpu});
    StepTime four = time(strategy, 4, {.bandwidth = kBandwidth});
    EXPECT_NEAR(four.sending, double(plan.bytes_sent) / kBandwidth, 1e-6 * four.sending) << strategy;
    EXPECT_GE(four.step, four.sending) << strategy;
    EXPECT_NEAR(four.exposed, four.step - four.computing, 0.01 * four.step) << strategy;
  }
}

TEST_F(StepClockTest, ARankUpdatesItsShareOfTheModel) {
  for (auto [strategy, expected] : {std::pair("ddp", 1.0), {"zero1", 0.25}, {"zero3", 0.25}, {"hybrid", 0.5}}) {
    train::Config config = train::with_strategy(config_, strategy);
    config.fsdp.options.shard_ranks = config.strategy == "hybrid" ? 2 : 0;
    double share = 0;
    auto body = [&](dist::ProcessGroup& world) {
      train::Rehearsal rank(config, data::FashionMnist::known_outline(), world);
      share = train::updated_share(rank.sharded());
    };
    dist::run_one_of(4, body, 7, {kCpu});
    EXPECT_NEAR(share, expected, 0.01) << strategy;
  }
}

// Copies of the model add up what the ranks that share it have added up before.
TEST_F(StepClockTest, ACopysSumComesAfterThatOfTheRanksThatShareIt) {
  config_.strategy = "hybrid";
  config_.fsdp.options.shard_ranks = 2;
  config_.fsdp.wrap = "size";
  config_.fsdp.wrap_numel = 1 << 30;  // one unit, which hides nothing
  StepTime two = time("hybrid", 2, {.bandwidth = 1e3}), four = time("hybrid", 4, {.bandwidth = 1e3});
  EXPECT_GT(four.step, 1.2 * two.step);
}

TEST_F(StepClockTest, BackwardThatAsksFewerRanksIsTimedAsOneThatAsksAll) {
  config_.fsdp.options.reshard_after_forward = 2;
  EXPECT_GT(time("zero3", 4).step, 0);
  EXPECT_THROW(time("zero3", 1), Error) << "as a run would be";
}

// Samples without meaning would drive weights anywhere, and f16 overflows there.
TEST_F(StepClockTest, NoLearningRateDrivesTheWeightsAway) {
  config_.autocast = "f16";
  config_.optimizer = {.name = "sgd", .lr = 1e4};
  EXPECT_GT(time("ddp", 2).step, 0);
}

// The stream is busy from the first gather to the last reduction, and only then the update comes.
TEST_F(StepClockTest, TheUpdateWaitsForTheLastGradient) {
  StepTime four = time("zero3", 4, {.bandwidth = 1e6});
  EXPECT_GT(four.step, four.sending + 1e-6);
}

TEST_F(StepClockTest, WhateverAStepIsMadeOf) {
  config_.batch = 32;
  config_.clip_grad_norm = 1;
  for (bool recomputes : {false, true})
    for (int micro_batches : {1, 3}) {
      config_.recompute = recomputes ? std::vector<std::string>{"layer?"} : std::vector<std::string>{};
      config_.micro_batches = micro_batches;
      config_.grains = micro_batches == 1 && !recomputes ? 8 : 0;
      for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3"})
        for (int ranks : {1, 2, 64}) {
          if (config_.grains > 0 && ranks > config_.grains) continue;
          StepTime found = time(strategy, ranks, {.bandwidth = 1e9, .latency = 1e-5}, micro_batches);
          EXPECT_GE(found.step, found.computing) << strategy << ranks;
          EXPECT_GE(found.step, found.exposed) << strategy << ranks;
          EXPECT_EQ(found.sending > 0, ranks > 1) << strategy << ranks;
        }
    }
}

}  // namespace
}  // namespace shardgrad
