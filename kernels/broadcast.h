#pragma once
// How operands of other shapes meet the elements of an output: the fewest dimensions that describe it.

#include <algorithm>
#include <array>

#include <shardgrad/core/shape.h>

namespace shardgrad::kernels {

/// The output's dimensions, merged where every operand allows, and each operand's stride in elements along them
/// (0 where it is broadcast). There is always at least one dimension.
template <int operands> struct Broadcast {
  int ndim = 0;
  std::array<int64_t, kMaxDims> extent{};
  std::array<std::array<int64_t, kMaxDims>, operands> stride{};

  Broadcast() = default;
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
};

}  // namespace shardgrad::kernels
