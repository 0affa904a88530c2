#pragma once
// The one order in which ranks are summed: a pairwise tree, bottom-up, neighbours 2i and 2i+1, an odd last one carried
// up. For five ranks:  ((0 + 1) + (2 + 3)) + 4
// f16, bf16 and f32 accumulate in f32, f64 in f64, integers exactly. All transports of the host sum with this function.
// The one exception is NCCL: it adds f32 and f64 in its own order, unless SHARDGRAD_NCCL_SUMS=tree; integers too, but
// those are the same in any order. f16 and bf16 have the tree's order there as well
// (dist/transports/nccl/nccl_transport.cpp).

#include <cstdint>
#include <span>

#include <shardgrad/core/dtype.h>

namespace shardgrad::dist {

/// out[i] = the tree sum of parts[·][i], for i in [0, n). out may be one of the parts.
void tree_sum(void* out, std::span<const void* const> parts, int64_t n, DType dtype);

/// Begin of slice `index` when n elements are cut into `count` nearly equal slices at multiples of 16; slice `count`
/// begins at n.
int64_t slice_begin(int64_t n, int count, int index);

}  // namespace shardgrad::dist
