#include <gtest/gtest.h>

#include <set>

#include <shardgrad/dist/rank_map.h>

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

}  // namespace
}  // namespace shardgrad::dist
