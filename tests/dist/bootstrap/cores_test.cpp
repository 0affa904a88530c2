#include <gtest/gtest.h>

#include <shardgrad/dist/bootstrap/cores.h>

namespace shardgrad::dist {
namespace {

using Cpus = std::vector<int>;

TEST(CpuShare, HardwareThreadsOfACoreGoToOneRank) {
  std::vector<CpuPlace> four_cores;  // numbered as Linux does: all first threads, then all second ones
  for (int cpu = 0; cpu < 8; ++cpu) four_cores.push_back({0, cpu % 4, cpu});
  EXPECT_EQ(share_of(four_cores, 0, 2), (Cpus{0, 4, 1, 5}));
  EXPECT_EQ(share_of(four_cores, 1, 2), (Cpus{2, 6, 3, 7}));
  EXPECT_EQ(share_of(four_cores, 3, 4), (Cpus{3, 7}));
  EXPECT_EQ(share_of(four_cores, 0, 1).size(), 8u);
}

TEST(CpuShare, RanksOfOnePackageStayTogether) {
  std::vector<CpuPlace> alternating;  // cores of two packages by turns
  for (int cpu = 0; cpu < 8; ++cpu) alternating.push_back({cpu % 2, cpu / 2, cpu});
  EXPECT_EQ(share_of(alternating, 0, 4), (Cpus{0, 2}));
  EXPECT_EQ(share_of(alternating, 1, 4), (Cpus{4, 6}));
  EXPECT_EQ(share_of(alternating, 2, 4), (Cpus{1, 3}));
}

TEST(CpuShare, EveryCpuGoesToOneRankAndSharesDifferByOneAtMost) {
  for (int cpus = 1; cpus <= 13; ++cpus)
    for (int ranks = 1; ranks <= cpus; ++ranks) {
      std::vector<CpuPlace> places;
      for (int cpu = 0; cpu < cpus; ++cpu) places.push_back({0, cpu, 10 * cpu});
      Cpus together;
      for (int r = 0; r < ranks; ++r) {
        Cpus share = share_of(places, r, ranks);
        EXPECT_TRUE(int(share.size()) == cpus / ranks || int(share.size()) == cpus / ranks + 1) << cpus << '/' << ranks;
        together.insert(together.end(), share.begin(), share.end());
      }
      ASSERT_EQ(int(together.size()), cpus);
      for (int cpu = 0; cpu < cpus; ++cpu) EXPECT_EQ(together[size_t(cpu)], 10 * cpu);
    }
}

}  // namespace
}  // namespace shardgrad::dist
