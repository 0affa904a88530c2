#pragma once
// The kernels of an operation that the library has not: y = x² where x > 0, and 0 elsewhere; dx = dy · 2x, and 0.

#include <shardgrad/kernels/table.h>

extern constinit sg::Slot<sg::OutView, sg::View> squared_relu_slot;                     // (y, x)
extern constinit sg::Slot<sg::OutView, sg::View, sg::View> squared_relu_backward_slot;  // (dx, dy, x)
