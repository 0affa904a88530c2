#pragma once
// Sums of parts of the tree, made on different machines, put together in the tree's own order: the same bits as when
// one machine sums all ranks' values. What travels of f16 and bf16 is f32, or else the one value as it is.

#include <span>

#include <shardgrad/core/dtype.h>
#include <shardgrad/dist/transports/two_level/machines.h>

namespace shardgrad::dist::two_level {

/// In what dtype a part of the tree travels.
inline DType sum_dtype(const Subtree& part, DType dtype) {
  bool rounded = dtype == DType::f16 || dtype == DType::bf16;
  return rounded && part.end - part.begin > 1 ? DType::f32 : dtype;
}
/// Bytes of one element of it.
inline size_t sum_bytes(const Subtree& part, DType dtype) { return size_of(sum_dtype(part, dtype)); }

/// out = the sum of the values of a part's ranks, in sum_dtype.
void sum_subtree(void* out, const Subtree& part, std::span<const void* const> values, int64_t n, DType dtype);

/// A part of the tree and its sum, in sum_dtype.
struct Summed {
  Subtree part;
  const void* sum;
};
/// out = the whole sum, in dtype, of parts that are all ranks together, in ascending order. out is none of them.
void join_subtrees(void* out, std::span<const Summed> parts, int64_t n, DType dtype);

}  // namespace shardgrad::dist::two_level
