#pragma once
// Broadcasting for loops on the CPU.

#include <shardgrad/kernels/broadcast.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>

namespace shardgrad::cpu {

/// With loops over grids of the last two dimensions.
template <int operands> struct Broadcast : kernels::Broadcast<operands> {
  using kernels::Broadcast<operands>::Broadcast, kernels::Broadcast<operands>::ndim;
  using kernels::Broadcast<operands>::extent, kernels::Broadcast<operands>::stride;

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
  int64_t count = b.grids(), each = whole.rows * whole.cols;
  auto begins_of = [&](int64_t g) {
    std::array<int64_t, operands> begins;
    for (int k = 0; k < operands; ++k) begins[k] = b.begin(k, g);
    return begins;
  };
  if (each < kSerialElements)  // too small to be divided
    return parallel_for(threads, count, grain_for(each), [&](int64_t from, int64_t to) {
      for (int64_t g = from; g < to; ++g) fn(whole, g * each, begins_of(g));
    });
  for (int64_t g = 0; g < count; ++g) {
    int64_t y = g * each;
    std::array<int64_t, operands> begins = begins_of(g);
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
