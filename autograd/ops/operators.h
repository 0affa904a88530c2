#pragma once
// Operators (autograd/ops.h): tensors and numbers on either side.

#include <shardgrad/autograd/ops/functions.h>

namespace shardgrad {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& x, Scalar value) { return affine(x, 1, value); }
inline Tensor operator-(const Tensor& x, Scalar value) { return affine(x, 1, -value); }
inline Tensor operator*(const Tensor& x, Scalar value) { return affine(x, value, 0); }
/// Rounds once: div by the number.
Tensor operator/(const Tensor& x, Scalar value);
inline Tensor operator+(Scalar value, const Tensor& x) { return affine(x, 1, value); }
inline Tensor operator-(Scalar value, const Tensor& x) { return affine(x, -1, value); }
inline Tensor operator*(Scalar value, const Tensor& x) { return affine(x, value, 0); }

/// remainder: of the sign of the divisor.
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& x, Scalar divisor) { return remainder(x, divisor); }
Tensor operator%(Scalar value, const Tensor& divisor);
/// Rounds once.
Tensor operator/(Scalar value, const Tensor& x);

#define SG_COMPARISON(symbol)                              \
  Truth operator symbol(const Tensor& a, const Tensor& b); \
  Truth operator symbol(const Tensor& x, Scalar value);    \
  Truth operator symbol(Scalar value, const Tensor& x);
SG_COMPARISON(==)
SG_COMPARISON(!=)
SG_COMPARISON(<)
SG_COMPARISON(<=)
SG_COMPARISON(>)
SG_COMPARISON(>=)
#undef SG_COMPARISON

// Of answers (u8): both, one of them, the contrary.
Truth operator&(const Tensor& a, const Tensor& b);
Truth operator|(const Tensor& a, const Tensor& b);
Truth operator~(const Tensor& x);

// In place: every tensor on the same memory sees it. Refused where the change would have no gradient: for a computed
// tensor, or by one that has a gradient, while operations are recorded. `x = x + y` is differentiable.
Tensor& operator+=(Tensor& x, const Tensor& y);
Tensor& operator-=(Tensor& x, const Tensor& y);
Tensor& operator*=(Tensor& x, const Tensor& y);
Tensor& operator/=(Tensor& x, const Tensor& y);
Tensor& operator+=(Tensor& x, Scalar value);
Tensor& operator-=(Tensor& x, Scalar value);
Tensor& operator*=(Tensor& x, Scalar value);
Tensor& operator/=(Tensor& x, Scalar value);

}  // namespace shardgrad
