#pragma once
// An operation of a project that is not part of shardgrad: y = x · sigmoid(x), and its gradient.

#include <shardgrad/core/tensor.h>
#include <shardgrad/kernels/table.h>

namespace outside {

extern shardgrad::Slot<shardgrad::OutView, shardgrad::View> swish_slot;                            // y = f(x)
extern shardgrad::Slot<shardgrad::OutView, shardgrad::View, shardgrad::View> swish_backward_slot;  // dx = dy · f'(x)

shardgrad::Tensor swish(const shardgrad::Tensor& x);

}  // namespace outside
