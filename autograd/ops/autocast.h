#pragma once
// What autocast (autograd/autocast.h) does to operands. An operation with a rule asks first, and calls itself with
// converted operands, for which the answer is no:
//
//     if (should_lower(x, weight)) return linear(lowered(x), lowered(weight));

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/ops.h>

namespace shardgrad {

inline bool is_narrow(const Tensor& x) { return x.dtype() == DType::f16 || x.dtype() == DType::bf16; }

/// Whether an operand is to be converted to the autocast dtype.
template <class... Tensors> bool should_lower(const Tensors&... operands) {
  std::optional<DType> to = autocast_dtype();
  auto lowers = [&](const Tensor& x) {
    return x.defined() && x.dtype() != *to && (x.dtype() == DType::f32 || is_narrow(x));
  };
  return to && (lowers(operands) || ...);
}
/// cast(x, dtype), which may be a copy that a scope of Autocast keeps (autograd/converted_copies.h): not to be changed
/// in place.
Tensor cast_shared(const Tensor& x, DType dtype);
inline Tensor lowered(const Tensor& x) { return should_lower(x) ? cast_shared(x, *autocast_dtype()) : x; }

/// Whether autocast is on and an operand is of 16 bits.
template <class... Tensors> bool should_widen(const Tensors&... operands) {
  return autocast_dtype() && ((operands.defined() && is_narrow(operands)) || ...);
}
inline Tensor widened(const Tensor& x) { return should_widen(x) ? cast(x, DType::f32) : x; }

/// Whether autocast is on and the operands are an f32 and one of 16 bits, or an f16 and a bf16. Both are widened then.
inline bool should_promote(const Tensor& a, const Tensor& b) {
  bool floats = (is_narrow(a) || a.dtype() == DType::f32) && (is_narrow(b) || b.dtype() == DType::f32);
  return a.dtype() != b.dtype() && floats && autocast_dtype();
}

}  // namespace shardgrad
