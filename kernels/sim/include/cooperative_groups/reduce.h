#pragma once
// For kernels that name the CUDA header: what a group passed, as one value, which each of its threads gets.

#include <shardgrad/kernels/sim/groups.h>

namespace cooperative_groups {

template <class T> struct plus {
  T operator()(const T& a, const T& b) const { return a + b; }
};
/// The smaller one.
template <class T> struct less {
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
/// The larger one.
template <class T> struct greater {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <class T> struct bit_and {
  T operator()(const T& a, const T& b) const { return a & b; }
};
template <class T> struct bit_or {
  T operator()(const T& a, const T& b) const { return a | b; }
};
template <class T> struct bit_xor {
  T operator()(const T& a, const T& b) const { return a ^ b; }
};

template <unsigned Size, class Parent, class T, class Op>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, Op op,
         shardgrad::sim::SourceLine here = shardgrad::sim::SourceLine::current()) {
  for (unsigned bits = Size / 2; bits > 0; bits /= 2) value = op(value, tile.shfl_xor(value, int(bits), here));
  return value;
}
template <class T, class Op>
T reduce(const coalesced_group& group, T value, Op op,
         shardgrad::sim::SourceLine here = shardgrad::sim::SourceLine::current()) {
  T all = group.shfl(value, 0, here);
  for (unsigned rank = 1; rank < group.size(); ++rank) all = op(all, group.shfl(value, rank, here));
  return all;
}

}  // namespace cooperative_groups
