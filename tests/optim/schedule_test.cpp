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
  EXPECT_THROW(optim::warmup(-1, optim::constant()), Error);
}

}  // namespace
}  // namespace shardgrad
