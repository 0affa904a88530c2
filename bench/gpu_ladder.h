#pragma once
// The lower rungs of the ladder to a fast matrix product: c = a · b of square matrices whose sides are multiples of 16.
// The upper ones are the library's own product (kernels/cuda/matmul.cu).

#include <shardgrad/kernels/table.h>

namespace shardgrad::bench {

using Rung = Slot<OutView, View, View>;  // (c, a, b)
extern Rung naive, tiled;

}  // namespace shardgrad::bench
