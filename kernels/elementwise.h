#pragma once
// The elementwise operations. A row here, a function of its name for the CPU's vectors
// (kernels/cpu/isa/elementwise.cpp) and one for GPUs (kernels/cuda/elementwise.cu) are an operation: its slot, its
// entries in every table, its oracle, the function that users call and the inputs it is certified on are made of the
// row, and a missing function does not compile. docs/extending.md shows one being added.
//
//     FUNCTION(name, takes, keeps, backward, low, high, f)
//         Tensor name(const Tensor& x) of autograd/ops.h: y = f(x). It takes x as it was `given`, or `widened`: where
//         Autocast would narrow it, in f32. Backward keeps the `input` or the `output`, and the slot `backward` makes
//         dx of (dy, what was kept). The operation is tried on numbers in [low, high).
//     KERNEL(name, (parameters), f)
//         The slot alone; the operation with its gradient is in autograd/ops/elementwise_unary.cpp or functions.cpp.
//     BACKWARD(name, (parameters), f)
//         A slot whose kernel makes dx = f(dy, v), v being what was kept.
//     BINARY(name, f)      y = f(a, b), for floats and vectors of them; operands broadcast.
//     RELATION(name, op)   y (u8) = a op b, for all dtypes; operands broadcast. The operation is made as for FUNCTION.
//
// f is the reference's word, in double; that of BINARY is the kernels' own. They compute f as they do it best. Where a
// kernel has parameters, its function for the CPU finds them as s.a and s.b, and its struct for GPUs has them as
// members.

// clang-format off
#define SG_UNARIES(FUNCTION, KERNEL, BACKWARD)                                                                        \
  KERNEL(affine, (double scale, double shift), scale * x + shift)                                                     \
  KERNEL(neg, (), -x)                                                                                                 \
  FUNCTION(exp, widened, output, mul, -2, 2, std::exp(x))                                                             \
  FUNCTION(log, widened, input, div, 0.25, 4, std::log(x))                                                            \
  FUNCTION(sqrt, given, output, sqrt_backward, 0.25, 4, std::sqrt(x))                                                 \
  BACKWARD(sqrt_backward, (), dy * (0.5 / v))                                                                         \
  FUNCTION(tanh, given, output, tanh_backward, -2, 2, std::tanh(x))                                                   \
  BACKWARD(tanh_backward, (), dy * (1 - v * v))                                                                       \
  FUNCTION(sigmoid, given, output, sigmoid_backward, -2, 2, 1 / (1 + std::exp(-x)))                                   \
  BACKWARD(sigmoid_backward, (), dy * (v * (1 - v)))                                                                  \
  FUNCTION(relu, given, output, relu_backward, -2, 2, x < 0 ? 0 : x)                                                  \
  BACKWARD(relu_backward, (), v <= 0 ? 0 : dy) /* as PyTorch's: dy at NaN */                                          \
  FUNCTION(abs, given, input, abs_backward, -2, 2, std::abs(x))                                                       \
  BACKWARD(abs_backward, (), dy * (v > 0 ? 1 : v < 0 ? -1 : v))                                                       \
  KERNEL(gelu, (), x * normal_cdf(x))                                                                                 \
  BACKWARD(gelu_backward, (), dy * (normal_cdf(v) + v * normal_density(v)))                                           \
  KERNEL(gelu_tanh, (), x * tanh_cdf(x)) /* Hendrycks and Gimpel's form, arXiv 1606.08415 */                          \
  BACKWARD(gelu_tanh_backward, (), dy * (tanh_cdf(v) + v * tanh_density(v)))                                          \
  FUNCTION(silu, given, input, silu_backward, -2, 2, x / (1 + std::exp(-x)))                                          \
  BACKWARD(silu_backward, (), dy / (1 + std::exp(-v)) * (1 + v / (1 + std::exp(v))))                                  \
  KERNEL(pow, (double exponent), std::pow(x, exponent))                                                               \
  BACKWARD(pow_backward, (double exponent), dy * (exponent == 0 ? 0 : exponent * std::pow(v, exponent - 1)))          \
  KERNEL(clamp, (double low, double high), x < low ? low : x > high ? high : x)                                       \
  BACKWARD(clamp_backward, (double low, double high), v >= low && v <= high ? dy : 0) /* 0 at NaN */                  \
  KERNEL(sin, (), std::sin(x))                                                                                        \
  KERNEL(cos, (), std::cos(x))                                                                                        \
  KERNEL(rsqrt, (), 1 / std::sqrt(x))                                                                                 \
  KERNEL(log1p, (), std::log1p(x))                                                                                    \
  KERNEL(expm1, (), std::expm1(x))                                                                                    \
  KERNEL(erf, (), std::erf(x))                                                                                        \
  KERNEL(softplus, (), (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))))                                          \
  KERNEL(floor, (), std::floor(x))                                                                                    \
  KERNEL(ceil, (), std::ceil(x))                                                                                      \
  KERNEL(trunc, (), std::trunc(x))                                                                                    \
  KERNEL(round, (), std::nearbyint(x)) /* halves to even */                                                           \
  KERNEL(sign, (), x > 0 ? 1 : x < 0 ? -1 : 0) /* as PyTorch's: 0 at NaN */                                           \
  KERNEL(leaky_relu, (double slope), x > 0 ? x : slope * x)                                                           \
  BACKWARD(leaky_relu_backward, (double slope), v > 0 ? dy : slope * dy)                                              \
  KERNEL(elu, (double alpha), x > 0 ? x : alpha * std::expm1(x))                                                      \
  BACKWARD(elu_backward, (double alpha), v > 0 ? dy : dy * alpha * std::exp(v))                                       \
  KERNEL(huber, (double delta), std::abs(x) <= delta ? x * x / 2 : delta * (std::abs(x) - delta / 2))                 \
  BACKWARD(huber_backward, (double delta), dy * (v > delta ? delta : v < -delta ? -delta : v))

#define SG_BINARIES(BINARY)                                                                                           \
  BINARY(add, a + b) BINARY(sub, a - b) BINARY(mul, a * b) BINARY(div, a / b)                                         \
  BINARY(maximum, ((a > b) | (a != a)) ? a : b) /* NaN where either is */                                             \
  BINARY(minimum, ((a < b) | (a != a)) ? a : b)                                                                       \
  BINARY(power, power_of(a, b)) /* of integers, b is not negative */                                                  \
  BINARY(remainder, remainder_of(a, b)) /* exact, of b's sign; of integers, b is not 0 here and below */              \
  BINARY(floor_divide, quotient_of(a, b)) /* a / b rounded down; by 0 it is a / b */

#define SG_RELATIONS(RELATION)                                                                                        \
  RELATION(eq, ==) RELATION(ne, !=) RELATION(lt, <) RELATION(le, <=) RELATION(gt, >) RELATION(ge, >=)
// clang-format on

/// For the rows that a use of a list leaves out.
#define SG_NO_ROW(...)
/// A row's parameters, behind others: `View SG_PARAMETERS (double exponent)`.
#define SG_PARAMETERS(...) __VA_OPT__(, ) __VA_ARGS__
