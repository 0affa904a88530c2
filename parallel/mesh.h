#pragma once
// The ranks of a job as a box of n axes, and the group of ranks along each of them. Eight ranks as 2 x 2 x 2:
//
//     Mesh mesh(world, {{"replica", 2}, {"shard", 2}, {"model", 2}});
//
//     rank         0  1  2  3  4  5  6  7      the last axis runs fastest: neighbours in rank are neighbours there
//     replica      0  0  0  0  1  1  1  1      group("replica") of rank 5: {1, 5}
//     shard        0  0  1  1  0  0  1  1      group("shard") of rank 5:   {5, 7}
//     model        0  1  0  1  0  1  0  1      group("model") of rank 5:   {4, 5}
//
// The order of axes is a choice of speed: what talks most comes last, for neighbours in rank mostly share a machine.
// Sums along an axis have the order of a group (dist/transports/tree_sum.h), so with axes of powers of two the sum
// along one axis after the other, last first, is the tree sum over all ranks, bit for bit, in f32 and f64; in 16 bits
// every axis rounds its sum.

#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::parallel {

struct Axis {
  std::string name;
  int size;
};

class Mesh {
 public:
  /// Called by all ranks of `world`, which must outlive the mesh, and keeps the groups for others like it. Throws
  /// Error(input) when the sizes do not multiply to the number of ranks, or a name is empty or given twice.
  Mesh(dist::ProcessGroup& world, std::vector<Axis> axes);

  dist::ProcessGroup& world() const { return world_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int size(std::string_view axis) const { return axes_[index(axis)].size; }
  /// Where this rank stands along an axis.
  int coordinate(std::string_view axis) const { return coordinates_[index(axis)]; }
  /// The ranks that differ from this one along the axis alone, in the order of their coordinates. An axis of all ranks
  /// has the world as its group. Throws Error(input) naming the axes when there is none of this name.
  dist::ProcessGroup& group(std::string_view axis) const { return *groups_[index(axis)]; }

 private:
  size_t index(std::string_view axis) const;

  dist::ProcessGroup& world_;
  std::vector<Axis> axes_;
  std::vector<int> coordinates_;
  std::vector<dist::ProcessGroup*> groups_;
};

}  // namespace shardgrad::parallel
