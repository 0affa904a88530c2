#pragma once
// What several operations share: argument checks and broadcasting backwards.

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// Throws Error(input) naming `op` unless a and b share dtype and device.
void check_same_kind(const char* op, const Tensor& a, const Tensor& b);
/// Throws Error(input) unless x is of a floating dtype.
void check_floating(const char* op, const Tensor& x);
/// The uninitialised result of broadcasting a and b, after check_same_kind.
Tensor broadcast_empty(const char* op, const Tensor& a, const Tensor& b, DType dtype);
/// Sends dy, summed over the dimensions that `shape` was broadcast along, to dx; by alias where nothing is summed.
void reduce_to(GradSlot& dx, const Tensor& dy, const Shape& shape);

}  // namespace shardgrad
