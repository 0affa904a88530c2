#pragma once
// The rungs of the ladder: c (m, n) = a (m, k) · b (k, n) in f32, square matrices whose sides are multiples of 64. Each
// counts the elements that it reads from memory.

#include <shardgrad/kernels/table.h>

using Rung = sg::Slot<sg::OutView, sg::OutView, sg::View, sg::View>;  // (c, reads i64[1], a, b)
extern Rung naive, tiled, many_each, without_barrier;
