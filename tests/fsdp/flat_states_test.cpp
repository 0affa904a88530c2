// Full parameters go only where the picture of their states (fsdp/step/flat_param.h) has an arrow.

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

void with_a_unit(const std::function<void(Unit&, FlatParam&)>& use) {
  for (Device device : {kCpu, kAcc})  // in common memory, and in memory of their own
    dist::run_ranks(2,
                    [&](dist::ProcessGroup& group) {
                      auto model = nn::make<Chain>();
                      auto sharded = fully_shard(*model, group);
                      Unit& unit = *sharded->units()[0];
                      use(unit, *unit.flat_params()[0]);
                    },
                    {.device = device, .threads = 1});
}

TEST(FlatStates, AGatherThatWasSentIsNeitherGivenUpNorOutdated) {
  with_a_unit([](Unit& unit, FlatParam& flat) {
    unit.unshard("test");
    std::string asserted = concat("the parameters of unit '", unit.name(), "' cannot go from gathering to stale");
    EXPECT_PRED2(contains, message_of([&] { flat.give_up_gather(); }), asserted);
    EXPECT_PRED2(contains, message_of([&] { flat.shard_written(); }), asserted);
    EXPECT_EQ(flat.state(), FullState::gathering);
    unit.wait();
    EXPECT_EQ(flat.state(), FullState::open);
    unit.reshard();
    EXPECT_EQ(flat.state(), FullState::stale);
  });
}

TEST(FlatStates, AGatherThatWasNotSentIsGivenUpWithItsMemory) {
  with_a_unit([](Unit&, FlatParam& flat) {
    Gathers asked;
    flat.start_gather(asked);
    EXPECT_EQ(flat.state(), FullState::gathering);
    EXPECT_TRUE(flat.full().storage()->resident());
    flat.give_up_gather();
    EXPECT_EQ(flat.state(), FullState::stale);
    EXPECT_FALSE(flat.full().storage()->resident());
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
