#pragma once
// What each rank has of each tensor, where the ranks of a mesh hold parts of larger ones (Part). Of a weight (5, 7) by
// rows over a model axis of 2, flat shards over a data axis of 2:
//
//     rank             0                1                2                3
//     data, model      0, 0             0, 1             1, 0             1, 1
//     part             rows [0, 3)      rows [3, 5)      rows [0, 3)      rows [3, 5)
//     elements of it   [0, 11)          [0, 14)          [11, 21)         none

#include <map>
#include <set>
#include <string>
#include <vector>

#include <shardgrad/autograd/part.h>
#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::fsdp {

/// A rank's elements [begin, begin + count) of its part of a tensor.
struct Held {
  Shape shape;  ///< of the part
  Part part = {};
  DType dtype = DType::f32;
  int64_t begin = 0, count = 0;
};

/// Throws Error(input) on every rank, naming one, where ranks have other names. A collective, shown as `call`.
void check_same_names(const std::set<std::string>& mine, dist::ProcessGroup& ranks, const char* call);

class HeldParts {
 public:
  using Mine = std::map<std::string, Held>;
  /// Throws Error(input) on every rank, naming tensors, ranges and ranks, where ranks have other names, parts of other
  /// wholes, or parts that leave a gap or overlap; two that have the same part have copies of it. A collective, shown
  /// as `call`.
  HeldParts(const Mine& mine, dist::ProcessGroup& ranks, const char* call);
  /// What `rank` has of tensor i, in the order of names. Its part is {} where that is the whole tensor.
  const Held& of(size_t i, int rank) const { return held_[size_t(rank) * count_ + i]; }
  /// Ranks that have all of tensor i together, none of them in vain.
  const std::vector<int>& cover(size_t i) const { return covers_[i]; }

 private:
  std::string fault(size_t i);
  std::string cover_part(size_t i, int holder);

  dist::ProcessGroup& ranks_;
  size_t count_;
  std::vector<Held> held_;
  std::vector<std::vector<int>> covers_;
};

/// Whether both are of one part, or both whole.
inline bool same_part(const Held& a, const Held& b) {
  return a.part.begin == b.part.begin && a.part.extent == b.part.extent && a.shape == b.shape;
}

}  // namespace shardgrad::fsdp
