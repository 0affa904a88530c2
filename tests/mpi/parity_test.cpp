// The strategies on ranks that are processes: the same bits as each other, and as ranks that are threads.

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"
#include "tests/mpi/world.h"

namespace shardgrad::fsdp::testing {
namespace {

template <class Model> void expect_same_bits(const char* name) {
  dist::ProcessGroup& world = ::shardgrad::testing::world();
  for (Optim optim : {Optim::sgd, Optim::adamw}) {
    Setup setup{.world = world.size(), .optim = optim, .batch = 11, .micro = 2, .clip = 0.05};
    Outcome threads = train<Model>(setup);
    for (const Config& config : strategies(world.size())) {
      setup.config = config;
      EXPECT_TRUE(train_rank<Model>(setup, &world) == threads)
          << name << " " << name_of(config.strategy) << " " << config.shard_ranks << " on " << world.kind() << ", rank "
          << world.rank();
    }
  }
}

TEST(ProcessParity, I50_RanksThatAreProcessesGiveTheBitsOfRanksThatAreThreads) {
  expect_same_bits<Chain>("Chain");
  expect_same_bits<Rooted>("Rooted");
  expect_same_bits<Flat>("Flat");
  expect_same_bits<Twice>("Twice");
  expect_same_bits<Unused>("Unused");
  expect_same_bits<Frozen>("Frozen");
  expect_same_bits<Tied>("Tied");
  expect_same_bits<TiedAcross>("TiedAcross");
  expect_same_bits<Tiny>("Tiny");
  expect_same_bits<Dropping>("Dropping");
  expect_same_bits<Wide>("Wide");
  expect_same_bits<FrozenAround>("FrozenAround");
  expect_same_bits<TwoIn>("TwoIn");
  expect_same_bits<TwoOut>("TwoOut");
  expect_same_bits<Siamese>("Siamese");
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
