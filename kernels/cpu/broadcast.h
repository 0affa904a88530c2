#pragma once
// How operands of other shapes meet the elements of an output: the fewest dimensions that describe it.

#include <algorithm>
#include <array>

#include <shardgrad/core/shape.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>

namespace shardgrad::cpu {

/// The output's dimensions, merged where every operand allows, and each operand's stride in elements along them
/// (0 where it is broadcast). There is always at least one dimension.
template <int operands> struct Broadcast {
  int ndim = 0;
  std::array<int64_t, kMaxDims> extent{};
  std::array<std::array<int64_t, kMaxDims>, operands> stride{};

  Broadcast(const Shape& y, const std::array<const Shape*, operands>& shapes) {
    std::array<int64_t, operands> step;  // elements of operand k in the dimensions seen so far
    step.fill(1);
    for (int d = 1; d <= y.ndim(); ++d) {  // from the last dimension; stored in reverse, turned round at the end
      int64_t n = y[-d];
      if (n == 1) continue;
      std::array<int64_t, operands> s{};
      bool merges = ndim > 0;
      for (int k = 0; k < operands; ++k) {
        bool present = d <= shapes[k]->ndim() && (*shapes[k])[-d] != 1;
        s[k] = present ? step[k] : 0;
        if (present) step[k] *= n;
        merges = merges && s[k] == stride[k][ndim - 1] * extent[ndim - 1];
      }
      if (merges) {
        extent[ndim - 1] *= n;
        continue;
      }
      for (int k = 0; k < operands; ++k) stride[k][ndim] = s[k];
      extent[ndim++] = n;
    }
    if (ndim == 0) extent[ndim++] = 1;
    std::reverse(extent.begin(), extent.begin() + ndim);
    for (auto& strides : stride) std::reverse(strides.begin(), strides.begin() + ndim);
  }

  /// The last two dimensions as a grid, and the number of such grids.
  Grid grid() const {
    Grid g;
    g.rows = ndim > 1 ? extent[ndim - 2] : 1;
    g.cols = extent[ndim - 1];
    for (int k = 0; k < operands; ++k) {
      g.row[k] = ndim > 1 ? stride[k][ndim - 2] : 0;
      g.fixed[k] = stride[k][ndim - 1] == 0;
    }
    return g;
  }
  int64_t grids() const {
    int64_t count = 1;
    for (int d = 0; d + 2 < ndim; ++d) count *= extent[d];
    return count;
  }
  /// Where grid number `index` begins in operand k.
  int64_t begin(int k, int64_t index) const {
    int64_t offset = 0;
    for (int d = ndim - 3; d >= 0; --d) {
      offset += index % extent[d] * stride[k][d];
      index /= extent[d];
    }
    return offset;
  }
};

/// Calls fn(grid, y_begin, begins) for grids that make up the output, divided among threads. Begins are in elements.
template <int operands, class Fn>
void for_grids(int threads, const Broadcast<operands>& b, bool accumulate, const Fn& fn) {
  Grid whole = b.grid();
  whole.accumulate = accumulate;
  for (int64_t g = 0, count = b.grids(); g < count; ++g) {
    int64_t y = g * whole.rows * whole.cols;
    std::array<int64_t, operands> begins;
    for (int k = 0; k < operands; ++k) begins[k] = b.begin(k, g);
    auto rows = [&](int64_t from, int64_t to) {
      Grid part = whole;
      part.rows = to - from;
      auto at = begins;
      for (int k = 0; k < operands; ++k) at[k] += from * whole.row[k];
      fn(part, y + from * whole.cols, at);
    };
    auto columns = [&](int64_t from, int64_t to) {
      Grid part = whole;
      part.cols = to - from;
      auto at = begins;
      for (int k = 0; k < operands; ++k) at[k] += whole.fixed[k] ? 0 : from;
      fn(part, y + from, at);
    };
    if (whole.rows > 1)
      parallel_for(threads, whole.rows, grain_for(whole.cols), rows);
    else
      parallel_elements(threads, whole.cols, columns);
  }
}

}  // namespace shardgrad::cpu
