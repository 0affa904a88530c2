#pragma once
// A tree of sums as a list that one kernel works off where the values are (kernels::join_values), so that the host
// waits for none of them. Of five values, an odd last one carried up, with results in 5, 6, …:
//
//     level 1    5 = 0 + 1    6 = 2 + 3
//     level 2    7 = 5 + 6
//     level 3    8 = 7 + 4
//
// What shall lie together in the end is named last: it gets the first places after the values that were given.

#include <cstdint>
#include <span>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad::optim {

/// What a kernel works off, in memory of `device`.
struct JoinList {
  int64_t given = 0, total = 0;  ///< values that are there, and all
  Tensor joins, levels;
  /// Those of finish(), in its order: begin `given`.
  Tensor results(const Tensor& values, int64_t count) const { return values.rows(given, given + count); }
  /// `values` (f64, total) has those that are given; gets the others.
  void run(const Tensor& values, double p) const;
};

class Joins {
 public:
  /// Values 0 … given - 1 are there.
  explicit Joins(int64_t given) : given_(given), levels_(size_t(given), 0) {}
  /// The value of a and b together.
  int64_t join(int64_t a, int64_t b);
  /// 0, which is there without being given.
  int64_t nothing();
  /// Neighbours 2i and 2i + 1, an odd last one carried up, until one is left; nothing() for none.
  int64_t tree(std::vector<int64_t> values);
  /// The list that leaves the values named by `results` one after the other.
  JoinList finish(std::span<const int64_t> results, Device device) const;

 private:
  struct Row {
    int64_t a, b;
  };
  int64_t add(Row row, int level);
  int64_t given_;
  std::vector<int> levels_;  // of each value: 0 where it is given
  std::vector<Row> rows_;    // of the values that are not given
};

}  // namespace shardgrad::optim
