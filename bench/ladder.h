#pragma once
// The kernels of the ladder's rungs K3 to K5 without what counts them: c = a · b of square matrices whose sides are
// multiples of 64; c in f32, a and b in f32, for tensor_cores in bf16.

#include <shardgrad/kernels/table.h>

using Rung = sg::Slot<sg::OutView, sg::View, sg::View>;  // (c, a, b)
extern Rung naive, tiled, many_each, tensor_cores;
