#pragma once
// The rungs of the ladder: c = a · b of square matrices whose sides are multiples of 64; c in f32, a and b in f32, for
// tensor_cores in bf16. Each counts the elements that it reads from memory, and its instructions that multiply.

#include <shardgrad/kernels/table.h>

using Rung = sg::Slot<sg::OutView, sg::OutView, sg::View, sg::View>;  // (c, counts i64[2] if wanted, a, b)
extern Rung naive, tiled, many_each, tensor_cores, without_barrier;
