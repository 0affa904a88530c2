// The strategies on ranks that are processes: the same bits as each other, and as ranks that are threads.

#include <gtest/gtest.h>

#include <typeinfo>

#include "tests/fsdp/training.h"
#include "tests/mpi/world.h"

namespace shardgrad::fsdp::testing {
namespace {

template <class Model> void expect_same_bits(Optim optim) {
  dist::ProcessGroup& world = ::shardgrad::testing::world();
  TrainingRun setup{.world = world.size(), .optim = optim, .batch = 11, .micro = 2, .clip = 0.05};
  Outcome threads = train<Model>(setup);
  for (const Config& config : strategies(world.size())) {
    setup.config = config;
    EXPECT_TRUE(train_rank(any_model<Model>, setup, &world) == threads)
        << typeid(Model).name() << " " << name_of(config.strategy) << " " << config.shard_ranks << " on "
        << world.kind() << ", rank " << world.rank();
  }
}

template <class... Models> void with_each_model(auto optim_of) {
  int number = 0;
  (expect_same_bits<Models>(optim_of(number++)), ...);
}
void with_models(auto optim_of) {
  with_each_model<Chain, Rooted, Flat, Twice, Unused, Frozen, Tied, TiedAcross, Tiny, Dropping, Wide, FrozenAround,
                  TwoIn, TwoOut, Siamese>(optim_of);
}

TEST(ProcessParity, I50_RanksThatAreProcessesGiveTheBitsOfRanksThatAreThreads) {
  with_models([](int model) { return model % 2 ? Optim::sgd : Optim::adamw; });
}
TEST(ProcessParitySlow, I50_WithTheOtherOptimizerToo) {
  with_models([](int model) { return model % 2 ? Optim::adamw : Optim::sgd; });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
