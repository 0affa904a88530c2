#pragma once
// Where the ranks of a group are, and what follows from it for who talks with whom across machines.
//
// Every rank has one *carrier* on every other machine, the rank there through which its part of a buffer comes and
// goes: the one with the same local rank, counted around where that machine has fewer ranks. So all ranks of a machine
// send side by side, and a rank talks with few ranks of each other machine, never with all.

#include <cstdint>
#include <vector>

#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::dist::two_level {

/// The map of a group whose ranks are on these machines, which may have any numbers.
RankMap map_of(const std::vector<int>& machines);

/// The rank of `machine` that carries the part of `rank` there; `rank` itself on its own machine.
int carrier(const RankMap& map, int machine, int rank);
/// The ranks whose part `rank` carries on its machine, itself among them, in ascending order.
std::vector<int> carried_by(const RankMap& map, int rank);

/// A part of the sum's tree (dist/transports/tree_sum.h): the ranks [begin, end), which are summed by themselves.
struct Subtree {
  int begin, end;
  int level;  ///< it is number begin >> level of its level
  bool operator==(const Subtree&) const = default;
};

/// The largest parts of the tree whose ranks are all on one machine, in ascending order: what is sent of a sum. Of a
/// machine it is one where its ranks are a power of two, neighbours, and aligned; at worst one for each of its ranks.
/// Takes steps of the number of ranks.
std::vector<Subtree> subtrees_of(const RankMap& map);
/// Those that a machine sums by itself.
std::vector<Subtree> subtrees_of(const RankMap& map, int machine);

/// How many times the bytes of a sum cross a cable because of where the ranks are: values sent over machines sending.
/// 1 where every machine's ranks are one part of the tree.
double cost_of_mapping(const RankMap& map);

}  // namespace shardgrad::dist::two_level
