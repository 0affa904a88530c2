#pragma once
// Functions of elements (autograd/ops.h). Operands broadcast like NumPy's and share dtype and device. They are of
// floating dtypes unless said, and differentiable where they have a derivative.

#include <shardgrad/autograd/ops/truth.h>
#include <shardgrad/kernels/elementwise.h>

namespace shardgrad {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// Floating dtypes only: floor_divide is for integers.
Tensor div(const Tensor& a, const Tensor& b);
/// scale * x + shift. Numbers beside integers (here and in clamp) must be integers themselves; results wrap.
Tensor affine(const Tensor& x, Scalar scale, Scalar shift);
Tensor neg(const Tensor& x);
// exp, log, sqrt, tanh, sigmoid, relu, abs, silu (x · σ(x)): each FUNCTION of kernels/elementwise.h.
#define SG_DECLARE(name, ...) Tensor name(const Tensor& x);
SG_UNARIES(SG_DECLARE, SG_NO_ROW, SG_NO_ROW)
#undef SG_DECLARE
/// x · Φ(x); `tanh_form` selects the tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415).
Tensor gelu(const Tensor& x, bool tanh_form = false);
/// Of integers the exponent is one, too, and not negative; results wrap.
Tensor pow(const Tensor& x, Scalar exponent);
Tensor clamp(const Tensor& x, Scalar low, Scalar high);
/// condition: u8.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// eq, ne, lt, le, gt, ge: each RELATION. They give u8 and are not differentiable.
#define SG_DECLARE(name, ...) Truth name(const Tensor& a, const Tensor& b);
SG_RELATIONS(SG_DECLARE)
#undef SG_DECLARE
Tensor cast(const Tensor& x, DType dtype);
/// A copy on another device (the same tensor when it is there already). Differentiable. The copy runs in the order of
/// the devices' compute and has been made when this returns: x may change or go.
Tensor to_device(const Tensor& x, Device device);
/// A copy with its own memory.
Tensor clone(const Tensor& x);

Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
/// 1 / √x
Tensor rsqrt(const Tensor& x);
/// 1 / x
Tensor reciprocal(const Tensor& x);
/// x · x
Tensor square(const Tensor& x);
/// log(1 + x), exact near 0.
Tensor log1p(const Tensor& x);
/// exp(x) - 1, exact near 0.
Tensor expm1(const Tensor& x);
Tensor erf(const Tensor& x);
/// log(1 + exp(x))
Tensor softplus(const Tensor& x);
/// x where x > 0, else slope · x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// x² / 2 where |x| <= delta, and delta (|x| - delta / 2) beyond: what huber_loss and smooth_l1_loss sum.
Tensor huber(const Tensor& x, double delta);
/// x where x > 0, else alpha · (exp(x) - 1).
Tensor elu(const Tensor& x, double alpha = 1);

// Whole numbers. Their gradient is 0. Integers are what they are.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
/// Towards 0.
Tensor trunc(const Tensor& x);
/// To the nearest; halves to the even one.
Tensor round(const Tensor& x);
/// -1, 0 or 1; 0 at NaN.
Tensor sign(const Tensor& x);

/// The larger of each two, NaN where either is; of equal ones each gets half of the gradient. Any dtype.
Tensor maximum(const Tensor& a, const Tensor& b);
/// The smaller of each two, likewise.
Tensor minimum(const Tensor& a, const Tensor& b);
/// a to the power of b, element by element; of integers the host waits for b, to refuse what is negative.
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(Scalar a, const Tensor& b);
/// What is left of a / b rounded down: it has the sign of b. Any dtype; of integers the host waits for b, to refuse 0.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& x, Scalar divisor);
/// a / b rounded down: of floats a / b itself where b is 0; of integers as remainder. Not differentiable.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& x, Scalar divisor);
Tensor floor_divide(Scalar value, const Tensor& divisor);

// Questions; the answers are u8, 1 for yes. Any dtype; a number counts as true unless it is 0.
Truth isnan(const Tensor& x);
Truth isinf(const Tensor& x);
Truth isfinite(const Tensor& x);
Truth logical_and(const Tensor& a, const Tensor& b);
Truth logical_or(const Tensor& a, const Tensor& b);
Truth logical_xor(const Tensor& a, const Tensor& b);
Truth logical_not(const Tensor& x);

/// x, but `value` where mask (u8, broadcast to x) is not 0.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);

}  // namespace shardgrad
