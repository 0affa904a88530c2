#pragma once
// For kernels that name the CUDA header: what the threads of a tile passed, up to each of them.

#include <shardgrad/kernels/sim/include/cooperative_groups/reduce.h>

namespace cooperative_groups {

/// Of this thread and those before it.
template <unsigned Size, class Parent, class T, class Op = plus<T>>
T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Op op = {},
                 shardgrad::sim::SourceLine here = shardgrad::sim::SourceLine::current()) {
  for (unsigned by = 1; by < Size; by *= 2) {
    T before = tile.shfl_up(value, by, here);
    if (tile.thread_rank() >= by) value = op(before, value);
  }
  return value;
}
/// Of those before this thread; the first one gets T().
template <unsigned Size, class Parent, class T, class Op = plus<T>>
T exclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Op op = {},
                 shardgrad::sim::SourceLine here = shardgrad::sim::SourceLine::current()) {
  T before = tile.shfl_up(inclusive_scan(tile, value, op, here), 1, here);
  return tile.thread_rank() == 0 ? T() : before;
}

}  // namespace cooperative_groups
