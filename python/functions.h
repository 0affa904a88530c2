#pragma once
// Functions that methods in place are made of, too.

#include <functional>
#include <optional>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {

/// Writes what `made` gives over x, of whose shape and dtype it is. Throws Error(input) naming `op` where it is not,
/// and where `loses`: x, or what it is changed by, has a gradient.
void write_over(const char* op, const Tensor& x, bool loses, const std::function<Tensor()>& made);

/// A number or a tensor, either of which may be left out.
using End = std::optional<Operand>;
Tensor clamped(const Tensor& x, const End& min, const End& max);
/// x, but the value where the mask is not 0.
Tensor filled(const Tensor& x, const Tensor& mask, const Operand& value);
/// A copy of x with src, a number or of index's shape, at index along dim. Throws Error(input) where a place is named
/// twice.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Operand& src);

}  // namespace shardgrad::python
