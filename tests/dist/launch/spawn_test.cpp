// spawn: ranks that are processes, of a function instead of a program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include <unistd.h>

#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/launch/launch_local.h>

namespace shardgrad::dist::spawned {
namespace {

using ::testing::HasSubstr;

template <class Body> std::pair<std::string, ErrorKind> failure(int ranks, const Body& body) {
  try {
    spawn(ranks, body, {.context = {.threads = 1}});
  } catch (const Error& error) {
    return {error.what(), error.kind()};
  }
  return {"none", ErrorKind::internal};
}

TEST(Spawn, RanksAreProcessesThatFindEachOther) {
  pid_t parent = getpid();
  int captured = 5;
  for (int ranks : {1, 2, 3})
    spawn(ranks,
          [&](ProcessGroup& world) {
            SG_CHECK(getpid() != parent && getppid() == parent, "not a child");
            SG_CHECK(world.size() == ranks && captured == 5, "another world");
            captured += world.rank();
            Tensor sum = from_vector<float>({float(captured)}, {1});
            world.all_reduce(sum).host_wait();
            SG_CHECK(sum.item() == 5 * ranks + ranks * (ranks - 1) / 2, "the sum is ", sum.item());
          },
          {.context = {.threads = 1}});
  EXPECT_EQ(captured, 5) << "what a rank changes is its own";
}

TEST(Spawn, I45_TheFirstExceptionIsThrownWithItsRankAndKind) {
  auto [what, kind] = failure(3, [](ProcessGroup& world) {
    if (world.rank() == 2) fail_as(ErrorKind::missing, "there is no sample 7");
    world.barrier();
  });
  EXPECT_EQ(what, "rank 2 failed: there is no sample 7");
  EXPECT_EQ(kind, ErrorKind::missing);
  auto [foreign, code] = failure(2, [](ProcessGroup& world) {
    if (world.rank() == 1) throw std::out_of_range("index 9");
    world.barrier();
  });
  EXPECT_EQ(foreign, "rank 1 failed: index 9");
  EXPECT_EQ(code, ErrorKind::rank_failed);
}

TEST(Spawn, OneRankThatFailsIsNamedToo) {
  auto [what, kind] = failure(1, [](ProcessGroup&) { fail("a batch of 0"); });
  EXPECT_EQ(what, "rank 0 failed: a batch of 0");
  EXPECT_EQ(kind, ErrorKind::input);
}

TEST(Spawn, I45_ARankThatDiesIsNamed) {
  auto [what, kind] = failure(2, [](ProcessGroup& world) {
    if (world.rank() == 1) raise(SIGKILL);
    world.barrier();
  });
  EXPECT_THAT(what, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(what, HasSubstr("died"));
  EXPECT_EQ(kind, ErrorKind::rank_failed);
}

TEST(Spawn, InsideAContextOrWithoutRanksItIsRefused) {
  EXPECT_THAT(failure(0, [](ProcessGroup&) {}).first, HasSubstr("spawn: 0 ranks are not possible"));
  Context context;
  EXPECT_THAT(failure(2, [](ProcessGroup&) {}).first, HasSubstr("spawn: called inside a context"));
}

}  // namespace
}  // namespace shardgrad::dist::spawned
