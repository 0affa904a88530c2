#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/train/agreement.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;

// When ranks talk follows from all clocks. From its own, a rank would wait for one that does not come.
TEST(Agreement, RanksOfAnySpeedAskAfterTheSameStepsAndStopTogether) {
  std::vector<std::vector<int64_t>> asked(2);
  std::vector<int64_t> stopped(2);
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    auto rank = size_t(world.rank());
    train::Agreement agreement(world);
    for (int64_t step = 1; step <= 200; ++step) {
      if (world.rank() == 1 && step == 100) world.control().request_stop();
      int64_t before = context().recorder().total_bytes_sent();
      bool stop = agreement.is_time(step) && agreement.agree(step, rank == 0 ? 1e-6 : 0.24, {}).stop;
      if (context().recorder().total_bytes_sent() > before) asked[rank].push_back(step);
      if (!stop) continue;
      stopped[rank] = step;
      break;
    }
  });
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_EQ(stopped[0], stopped[1]);
  EXPECT_GE(stopped[0], 100);
  EXPECT_LT(stopped[0], 116);
  ASSERT_GT(asked[0].size(), 2);
  EXPECT_EQ(asked[0][1] - asked[0][0], 8) << "about a second";
}

TEST(Agreement, RanksOfDifferentProgramsAreRefused) {
  using train::BuildInfo;
  for (const char* BuildInfo::*field : {&BuildInfo::version, &BuildInfo::git, &BuildInfo::compiler, &BuildInfo::onednn,
                                        &BuildInfo::openmp, &BuildInfo::cuda})
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      BuildInfo build = train::build_info();
      EXPECT_NO_THROW(train::check_same_program(world, build));
      if (world.rank() == 1) build.*field = "other";
      EXPECT_THAT(error_of([&] { train::check_same_program(world, build); }),
                  HasSubstr("the program (shardgrad --version) of rank 1 differs from that of rank 0"));
    });
}

TEST(Agreement, RanksWithDifferentValuesAreRefused) {
  std::string message = error_of([] {
    dist::run_ranks(
        3, [](dist::ProcessGroup& world) { train::check_same(world, "the training data", world.rank() == 2 ? 5 : 4); });
  });
  EXPECT_THAT(message, HasSubstr("the training data of rank 2 differs from that of rank 0"));
}

}  // namespace
}  // namespace shardgrad
