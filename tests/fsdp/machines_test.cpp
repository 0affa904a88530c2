// Where the ranks are changes what crosses between machines, never the numbers.

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

void expect_the_bits_of_one_machine(const std::vector<int>& machines, const TrainingRun& on_one) {
  TrainingRun on_several = on_one;
  on_several.machines = machines;
  EXPECT_TRUE(train<Chain>(on_several) == train<Chain>(on_one))
      << name_of(on_one.config.strategy) << ' ' << on_one.config.shard_ranks << " on machines "
      << ::testing::PrintToString(machines);
}

// By slot and by node, even and uneven.
TEST(Machines, I03_EveryStrategyGivesTheBitsOfOneMachineWhereverTheRanksAre) {
  for (const std::vector<int>& machines : {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}})
    for (const Config& config : strategies(4))
      expect_the_bits_of_one_machine(
          machines,
          {.world = 4, .config = config, .optim = Optim::adamw, .steps = 2, .clip = 0.05, .group = "shared_memory"});
}

TEST(Machines, I03_SumsInSixteenBitsAreThoseOfOneMachine) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero3})
    expect_the_bits_of_one_machine(
        {0, 0, 1, 1, 1}, {.world = 5,
                          .config = {.strategy = strategy, .param_dtype = DType::bf16, .reduce_dtype = DType::bf16},
                          .steps = 2,
                          .batch = 10});
}

TEST(Machines, RowsThatCrossMoreMachinesThanNeededAreNamed) {
  EXPECT_EQ(crossing_rows({0, 0, 1, 1}, 2), "");
  EXPECT_EQ(crossing_rows({0, 0, 1, 1, 2, 2, 3, 3}, 4), "") << "a row is larger than a machine";
  EXPECT_EQ(crossing_rows({0, 0, 0, 0}, 2), "");
  EXPECT_TRUE(contains(crossing_rows({0, 1, 0, 1}, 2),
                       "2 of 2 rows of 2 ranks lie on 2 machines each, not 1, so what they gather crosses between "
                       "machines 1 time, where 0 would do; choose fsdp.shard_ranks"));
  EXPECT_TRUE(contains(crossing_rows({0, 0, 0, 1, 1, 1}, 2), "1 of 3 rows of 2 ranks lie on 2 machines each, not 1"));
  EXPECT_TRUE(contains(crossing_rows({0, 1, 2, 3, 0, 1, 2, 3}, 4),
                       "lie on 4 machines each, not 2, so what they gather crosses between machines 3 times, where 1"));
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
