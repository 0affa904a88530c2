#pragma once
// The sum of what passes bring, such as the backward passes of a step, in the one order in which ranks are summed
// (dist/transports/tree_sum.h): neighbours 2i and 2i+1 first. Passes come one after the other, and what is waiting for
// its neighbour is kept. Of seven passes there are at most three sums at a time, as a binary counter has digits:
//
//     passes until now   1    2     3        4      5        6           7
//     sums               0    0+1   0+1, 2   0..3   0..3, 4  0..3, 4+5   0..3, 4+5, 6     total: 0..3 + ((4+5) + 6)
//
// Where pass p brings what two ranks have added, grains 2p and 2p+1, the total so has the bits of one rank that adds
// twice as many passes: both are the tree over the grains.

#include <functional>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad::dist {

class PassSums {
 public:
  /// Adds `more` to `sum`, or makes it the sum where there is none.
  using Add = std::function<void(Tensor& sum, const Tensor& more)>;
  explicit PassSums(Add add) : add_(std::move(add)) {}

  bool empty() const { return sums_.empty(); }
  /// Whether the value of this pass is added to that of the one before it, and not kept.
  bool adds_to_last(int64_t pass) const;
  /// Whether this pass comes after all that were taken.
  bool follows(int64_t pass) const { return sums_.empty() || sums_.back().end() <= pass; }
  /// The value of a pass, from 0 up, that follows. Those that are left out, which bring nothing, are a 0 that nobody
  /// adds.
  void take(int64_t pass, const Tensor& value);
  /// Adds all to `total`, and forgets it.
  void join(Tensor& total);
  void clear() { sums_.clear(); }
  /// The tensor of each sum.
  std::vector<Tensor> tensors() const;

 private:
  struct Sum {  // of the passes from place · 2^level to before (place + 1) · 2^level
    int level;
    int64_t place;
    Tensor value;
    void rise() { ++level, place >>= 1; }
    // The first pass behind those that it is of; and behind those of its neighbour, too.
    int64_t end() const { return (place + 1) << level; }
    int64_t end_with_neighbour() const { return ((place >> 1) + 1) << (level + 1); }
    bool is_left_of(const Sum& other) const {
      return level == other.level && place % 2 == 0 && other.place == place + 1;
    }
  };
  void join_last_two();
  void join_neighbours();
  Add add_;
  std::vector<Sum> sums_;
};

}  // namespace shardgrad::dist
