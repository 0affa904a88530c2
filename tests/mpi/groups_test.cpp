// The suite of tests/dist/group_cases.h over ranks that mpirun started, and MPI's own collectives as a second opinion.

#include <tests/dist/group_cases.h>
#include <tests/mpi/world.h>

namespace shardgrad::dist::testing {
namespace {

class Groups : public ::testing::TestWithParam<size_t> {};

TEST_P(Groups, Case) {
  group_cases()[GetParam()].run(shardgrad::testing::world());
  shardgrad::testing::world().barrier();
}

std::string name_of_case(const ::testing::TestParamInfo<size_t>& info) { return group_cases()[info.param].name; }

INSTANTIATE_TEST_SUITE_P(All, Groups, ::testing::Range(size_t(0), group_cases().size()), name_of_case);

TEST(Job, I48_LauncherAndGroupAgreeOnTheRanks) {
  ProcessGroup& world = shardgrad::testing::world();
  EXPECT_EQ(std::to_string(world.rank()), std::getenv("OMPI_COMM_WORLD_RANK"));
  EXPECT_EQ(std::to_string(world.size()), std::getenv("OMPI_COMM_WORLD_SIZE"));
  EXPECT_EQ(context().rank(), world.rank());
  EXPECT_EQ(context().world_size(), world.size());
  EXPECT_EQ(world.global_rank(world.rank()), world.rank());
}

}  // namespace
}  // namespace shardgrad::dist::testing
