#include <shardgrad/dist/transports/two_level/machines.h>

#include <algorithm>
#include <string>

namespace shardgrad::dist::two_level {

RankMap map_of(const std::vector<int>& machines) {
  std::vector<std::string> names;
  for (int machine : machines) names.push_back(std::to_string(machine));
  return RankMap(names);
}

int carrier(const RankMap& map, int machine, int rank) {
  if (map.node_rank(rank) == machine) return rank;
  return map.global_rank(machine, map.local_rank(rank) % map.local_size(machine));
}

std::vector<int> carried_by(const RankMap& map, int rank) {
  std::vector<int> ranks;
  for (int r = 0; r < map.world_size(); ++r)
    if (carrier(map, map.node_rank(rank), r) == rank) ranks.push_back(r);
  return ranks;
}

namespace {

// Enters the largest parts of number `index` of `level` that lie within a machine. From rank r on, the ranks before
// ends[r] are on r's machine.
void enter(const std::vector<int>& ends, int level, int index, std::vector<Subtree>& found) {
  int begin = index << level, end = std::min(int(ends.size()), (index + 1) << level);
  if (begin >= end) return;
  if (ends[size_t(begin)] >= end) {
    found.push_back({begin, end, level});
    return;
  }
  enter(ends, level - 1, 2 * index, found);
  enter(ends, level - 1, 2 * index + 1, found);
}

}  // namespace

std::vector<Subtree> subtrees_of(const RankMap& map) {
  int ranks = map.world_size(), root = 0;
  while (1 << root < ranks) ++root;
  std::vector<int> ends(size_t(ranks), ranks);
  for (int r = ranks - 2; r >= 0; --r)
    ends[size_t(r)] = map.node_rank(r) == map.node_rank(r + 1) ? ends[size_t(r) + 1] : r + 1;
  std::vector<Subtree> found;
  enter(ends, root, 0, found);
  return found;
}

std::vector<Subtree> subtrees_of(const RankMap& map, int machine) {
  std::vector<Subtree> found = subtrees_of(map);
  std::erase_if(found, [&](const Subtree& part) { return map.node_rank(part.begin) != machine; });
  return found;
}

double cost_of_mapping(const RankMap& map) { return double(subtrees_of(map).size()) / map.node_count(); }

}  // namespace shardgrad::dist::two_level
