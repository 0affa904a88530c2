// The suite of tests/dist/group/group_cases.h over ranks that mpirun started, and MPI's own collectives as a second
// opinion.

#include <mpi.h>

#include <cstdlib>

#include <tests/dist/group/group_cases.h>
#include <tests/mpi/world.h>

namespace shardgrad::dist::testing {
namespace {

TEST(World, IsOfTheKindThatWasAskedFor) {
  EXPECT_EQ(shardgrad::testing::world().kind(), std::getenv("SHARDGRAD_GROUP"));
}

class Groups : public ::testing::TestWithParam<size_t> {};

TEST_P(Groups, Case) {
  group_cases()[GetParam()].run(shardgrad::testing::world());
  shardgrad::testing::world().barrier();
}

std::string name_of_case(const ::testing::TestParamInfo<size_t>& info) { return group_cases()[info.param].name; }

INSTANTIATE_TEST_SUITE_P(All, Groups, ::testing::Range(size_t(0), group_cases().size()), name_of_case);

// Whole numbers, of which a sum has the same bits in any order.
template <class T> void expect_what_mpi_says(MPI_Datatype type) {
  ProcessGroup& world = shardgrad::testing::world();
  for (int n : {1, 17, 2051}) {
    int total = n * world.size();
    std::string what = concat(dtype_of<T>, " n=", n, " rank ", world.rank());
    std::vector<T> all = values<T>(world.rank(), total), mine = values<T>(world.rank(), n);
    Tensor full = make(world, total, dtype_of<T>, Where::group_memory);
    Tensor shard = make(world, n, dtype_of<T>, Where::group_memory);

    std::vector<T> expected(all.size());
    MPI_Allgather(mine.data(), n, type, expected.data(), n, type, MPI_COMM_WORLD);
    fill(shard, mine);
    world.all_gather(full, shard).host_wait();
    expect_same_bits(full, expected, "all_gather " + what);

    MPI_Allreduce(all.data(), expected.data(), total, type, MPI_SUM, MPI_COMM_WORLD);
    fill(full, all);
    world.all_reduce(full).host_wait();
    expect_same_bits(full, expected, "all_reduce " + what);

    expected.resize(mine.size());
    MPI_Reduce_scatter_block(all.data(), expected.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    fill(full, all);
    world.reduce_scatter(shard, full).host_wait();
    expect_same_bits(shard, expected, "reduce_scatter " + what);
  }
}

TEST(Mpi, AgreesOnWholeNumbers) {
  int started = 0;
  MPI_Initialized(&started);
  if (!started) GTEST_SKIP() << "the ranks were not started by mpirun";
  expect_what_mpi_says<int32_t>(MPI_INT32_T);
  expect_what_mpi_says<int64_t>(MPI_INT64_T);
}

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
