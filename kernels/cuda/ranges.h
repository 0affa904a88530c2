#pragma once
// Flat ranges that one launch works off: they travel with the kernel's arguments, and its thread blocks are dealt out
// to them in their order.
//
//     ranges that need 3, 1 and 2 thread blocks:   blocks 0 1 2 | 3 | 4 5

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// At most `most` of them. A Range has its first thread block as `begin`.
template <class Range, size_t most> struct Ranges {
  static_assert(most * sizeof(Range) <= 3900, "a kernel's arguments have 4 KiB");
  Range at[most];
  int count = 0;
  unsigned blocks = 0;

  /// The range must begin with thread block `blocks`.
  void add(const Range& range, unsigned blocks_of_it) {
    SG_ASSERT(count < int(most) && range.begin == blocks, "more than ", most, " ranges");
    at[count++] = range;
    blocks = blocks_for(int64_t(blocks) + blocks_of_it, 1);
  }
  /// Which one this thread block is for: the last that begins with it or before.
  __device__ int mine() const {
    int low = 0, high = count;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      (at[middle].begin <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }
};

/// The calling thread's number in a range that begins with thread block `begin`.
__device__ inline int64_t thread_number_in(unsigned begin) {
  return int64_t(blockIdx.x - begin) * blockDim.x + threadIdx.x;
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
