#include <gtest/gtest.h>

#include <set>

#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::dist {
namespace {

TEST(RankMap, I48_GlobalRanksAndNodePairsMapOneToOne) {
  const std::vector<std::vector<std::string>> jobs = {
      {"a"}, {"a", "a", "b", "b"}, {"a", "b", "a", "b"}, {"a", "a", "a", "b", "c", "c"}, {"c", "a", "b", "a", "a"}};
  for (const auto& hosts : jobs) {
    RankMap map(hosts);
    std::set<std::pair<int, int>> pairs;
    for (int r = 0; r < map.world_size(); ++r) {
      int node = map.node_rank(r), local = map.local_rank(r);
      EXPECT_EQ(map.global_rank(node, local), r);
      EXPECT_LT(local, map.local_size(node));
      EXPECT_TRUE(pairs.emplace(node, local).second);
    }
    int total = 0;
    for (int node = 0; node < map.node_count(); ++node) total += map.local_size(node);
    EXPECT_EQ(total, int(hosts.size()));
  }
}

TEST(RankMap, I48_EvenNodesFollowTheUsualFormula) {
  RankMap map({"a", "a", "b", "b", "c", "c"});
  for (int r = 0; r < 6; ++r) EXPECT_EQ(r, map.node_rank(r) * 2 + map.local_rank(r));
}

TEST(RankMap, ByNodeTheRanksOfANodeAreNeighbours) {
  EXPECT_EQ(RankMap({"a", "b", "a", "c", "b"}).by_node(), (std::vector<int>{0, 2, 1, 4, 3}));
  EXPECT_EQ(RankMap({"a", "a", "b"}).by_node(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(in_order<std::string>({"a", "b", "c"}, {2, 0, 1}), (std::vector<std::string>{"c", "a", "b"}));
}

TEST(RankMap, AListOfRanksStaysShort) {
  EXPECT_EQ(list_of({3}), "rank 3");
  EXPECT_EQ(list_of({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(list_of({0, 1, 3}), "ranks 0, 1 and 3");
  EXPECT_EQ(list_of({0, 1, 2, 4, 6, 7, 8, 9}), "ranks 0-2, 4 and 6-9");
  std::vector<int> every_other, but_one;
  for (int r = 0; r < 1000; ++r) {
    if (r % 2) every_other.push_back(r);
    if (r != 250) but_one.push_back(r);
  }
  EXPECT_EQ(list_of(but_one), "ranks 0-249 and 251-999");
  EXPECT_LT(list_of(every_other).size(), 150u);
  EXPECT_TRUE(list_of(every_other).ends_with(", 39, … (500 in all)")) << list_of(every_other);
}

}  // namespace
}  // namespace shardgrad::dist
