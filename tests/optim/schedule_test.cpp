#include <gtest/gtest.h>

#include <shardgrad/core/error.h>
#include <shardgrad/optim/schedule.h>

namespace shardgrad {
namespace {

TEST(Schedule, LinearAndCosineReachTheirEndAtTheLastStep) {
  for (auto schedule : {optim::linear(11, 0.2), optim::cosine(11, 0.2)}) {
    EXPECT_DOUBLE_EQ(schedule(0), 1);
    EXPECT_DOUBLE_EQ(schedule(5), 0.6);
    EXPECT_DOUBLE_EQ(schedule(10), 0.2);
    EXPECT_DOUBLE_EQ(schedule(1000), 0.2);
  }
  EXPECT_DOUBLE_EQ(optim::linear(11)(1), 0.9);
  EXPECT_GT(optim::cosine(11)(1), 0.97);  // flat at first
}

TEST(Schedule, StaircaseDropsAfterEveryFlight) {
  auto schedule = optim::staircase(3, 0.1);
  for (int step : {0, 1, 2}) EXPECT_DOUBLE_EQ(schedule(step), 1);
  EXPECT_DOUBLE_EQ(schedule(3), 0.1);
  EXPECT_DOUBLE_EQ(schedule(7), 0.01);
}

// As PyTorch 2's OneCycleLR(max_lr=1, total_steps=10): the formula of its source, with its numbers.
TEST(Schedule, OneCycleIsThatOfPyTorch) {
  auto schedule = optim::one_cycle(10);
  double first = 1.0 / 25, final = 1.0 / 25e4;
  EXPECT_DOUBLE_EQ(schedule(0), first);
  EXPECT_DOUBLE_EQ(schedule(1), 0.52);
  EXPECT_DOUBLE_EQ(schedule(2), 1);
  EXPECT_NEAR(schedule(3), 0.950484632, 1e-9);
  EXPECT_NEAR(schedule(8), 0.049519368, 1e-9);
  EXPECT_DOUBLE_EQ(schedule(9), final);
  EXPECT_DOUBLE_EQ(schedule(1000), final);
  auto other = optim::one_cycle(21, {.pct_start = 0.5, .div_factor = 4, .final_div_factor = 10});
  EXPECT_DOUBLE_EQ(other(0), 0.25);
  EXPECT_GT(other(9), 0.99);  // the top is between two steps, at 9.5
  EXPECT_GT(other(10), 0.99);
  EXPECT_DOUBLE_EQ(other(20), 0.025);
}

TEST(Schedule, OneCycleHasATopWhereverItIs) {
  EXPECT_DOUBLE_EQ(optim::one_cycle(10, {.pct_start = 0.1})(0), 1) << "at once";
  EXPECT_DOUBLE_EQ(optim::one_cycle(10, {.pct_start = 1})(9), 1) << "at the end";
  EXPECT_DOUBLE_EQ(optim::one_cycle(10, {.pct_start = 1})(90), 1);
  EXPECT_LT(optim::one_cycle(10, {.pct_start = 0})(0), 1) << "before the first step";
  EXPECT_DOUBLE_EQ(optim::one_cycle(1)(0), 1 / 25e4);
}

TEST(Schedule, WarmUpRisesToOneAndHandsOver) {
  auto schedule = optim::warmup(4, optim::linear(3));
  EXPECT_DOUBLE_EQ(schedule(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule(3), 1);
  EXPECT_DOUBLE_EQ(schedule(4), 1);
  EXPECT_DOUBLE_EQ(schedule(5), 0.5);
  EXPECT_DOUBLE_EQ(schedule(6), 0);
  EXPECT_DOUBLE_EQ(optim::warmup(0, optim::constant())(0), 1);
}

TEST(Schedule, ImpossibleLengthsAreRefused) {
  EXPECT_THROW(optim::linear(0), Error);
  EXPECT_THROW(optim::cosine(0), Error);
  EXPECT_THROW(optim::staircase(0, 0.5), Error);
  EXPECT_THROW(optim::one_cycle(0), Error);
  EXPECT_THROW(optim::one_cycle(9, {.pct_start = 1.5}), Error);
  EXPECT_THROW(optim::one_cycle(9, {.div_factor = 0}), Error);
  EXPECT_THROW(optim::warmup(-1, optim::constant()), Error);
}

}  // namespace
}  // namespace shardgrad
