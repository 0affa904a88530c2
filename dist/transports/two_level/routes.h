#pragma once
// Which bytes cross between machines, when, and from whom to whom: pure functions of where the ranks are. A route is a
// list of steps, of which a rank begins one when it has ended the one before.

#include <cstddef>
#include <vector>

#include <shardgrad/core/dtype.h>
#include <shardgrad/dist/transports/two_level/machines.h>

namespace shardgrad::dist::two_level {

/// Bytes [begin, end) of a buffer that sender and receiver both have, to or from a rank of the group.
struct Transfer {
  int peer;
  size_t begin, end;
};
struct Step {
  std::vector<Transfer> sends, receives;
};

/// How machines pass things on: in one line, where each talks with its neighbours and long buffers flow through, or in
/// as few steps as doubling allows, for short ones.
enum class Way { line, tree };
/// What suits buffers of so many bytes.
Way way_for(size_t bytes);

/// A buffer cut into parts, one for each rank: part r begins at r * stride. The last ones may be shorter, or empty.
struct Cut {
  size_t stride, total;
  size_t begin(int part) const { return stride * size_t(part) < total ? stride * size_t(part) : total; }
  size_t end(int part) const { return begin(part + 1); }
  size_t length(int part) const { return end(part) - begin(part); }
};

/// So many elements, of which each rank sums a slice: nearly equal ones, at multiples of 16 elements.
Cut slices_of(int64_t elements, int ranks, DType dtype);

/// Each rank has its own part. Afterwards every part is on every machine, at its carrier, and has come there once.
std::vector<Step> gather_route(const RankMap& map, int rank, Cut cut, Way way);

/// Who has which part of a broadcast buffer on a machine: part p is of the rank that is its local rank's.
int broadcast_parts(const RankMap& map);  ///< how many there are: the ranks of the largest machine
inline int broadcast_carrier(const RankMap& map, int machine, int part) {
  return map.global_rank(machine, part % map.local_size(machine));
}
/// All ranks of root's machine have the buffer, cut into broadcast_parts. Afterwards every machine has it, each part at
/// its carrier. In a line, parts go on in pieces of `piece` bytes.
std::vector<Step> broadcast_route(const RankMap& map, int rank, int root, Cut cut, Way way, size_t piece);

/// Machines between which a barrier's word goes, at their first ranks: one step for each doubling.
std::vector<Step> barrier_route(const RankMap& map, int rank);

}  // namespace shardgrad::dist::two_level
