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

// Enters the largest parts of number `index` of `level` that lie within the machine.
void enter(const RankMap& map, int machine, int level, int index, std::vector<Subtree>& found) {
  int begin = index << level, end = std::min(map.world_size(), (index + 1) << level);
  if (begin >= end) return;
  int inside = 0;
  for (int r = begin; r < end; ++r) inside += map.node_rank(r) == machine;
  if (inside == 0) return;
  if (inside == end - begin) {
    found.push_back({begin, end, level});
    return;
  }
  enter(map, machine, level - 1, 2 * index, found);
  enter(map, machine, level - 1, 2 * index + 1, found);
}

}  // namespace

std::vector<Subtree> subtrees_of(const RankMap& map, int machine) {
  int root = 0;
  while (1 << root < map.world_size()) ++root;
  std::vector<Subtree> found;
  enter(map, machine, root, 0, found);
  return found;
}

double cost_of_mapping(const RankMap& map) {
  size_t values = 0;
  for (int machine = 0; machine < map.node_count(); ++machine) values += subtrees_of(map, machine).size();
  return double(values) / map.node_count();
}

}  // namespace shardgrad::dist::two_level
