#pragma once
// Reference versions of filling, copying and elementwise operations; contracts in kernels/ops.h.

#include <vector>

#include <shardgrad/certify/reference/element.h>
#include <shardgrad/kernels/elementwise.h>

namespace shardgrad::reference {

inline void fill(OutView y, double value) {
  for (int64_t i = 0; i < y.numel(); ++i)
    is_floating(y.dtype) ? put(y, i, value) : put_integer(y, i, from_double<int64_t>(value));
}

inline void copy(OutView y, View x) {
  for (int64_t i = 0; i < y.numel(); ++i) put_element(y, i, x, i);
}

inline void cast(OutView y, View x) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    if (is_floating(y.dtype)) {
      put(y, i, get(x, i));
    } else if (!is_floating(x.dtype)) {
      put_integer(y, i, get_integer(x, i));
    } else {
      dispatch(y.dtype, [&]<class T>() {
        if constexpr (std::is_integral_v<T>) put_integer(y, i, int64_t(from_double<T>(get(x, i))));
      });
    }
  }
}

inline void expand(OutView y, View x) {
  for (int64_t i = 0; i < y.numel(); ++i) put_element(y, i, x, broadcast_index(y.shape, x.shape, i));
}

/// Adds x[i] to y[to[i]] for each i in turn; sums of floats in double, rounded once.
inline void add_elements(OutView y, View x, const std::vector<int64_t>& to) {
  std::vector<double> sums(size_t(y.numel()));
  std::vector<uint64_t> integer_sums(size_t(y.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (is_floating(x.dtype))
      sums[size_t(to[size_t(i)])] += get(x, i);
    else
      integer_sums[size_t(to[size_t(i)])] += uint64_t(get_integer(x, i));
  }
  for (int64_t j = 0; j < y.numel(); ++j)
    is_floating(x.dtype) ? put(y, j, sums[size_t(j)]) : put_integer(y, j, int64_t(integer_sums[size_t(j)]));
}

inline void sum_to(OutView y, View x) {
  std::vector<int64_t> to(size_t(x.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) to[size_t(i)] = broadcast_index(x.shape, y.shape, i);
  add_elements(y, x, to);
}

/// y = fn(a, b) in double, with broadcasting.
template <class Fn> void binary(OutView y, View a, View b, Fn fn) {
  for (int64_t i = 0; i < y.numel(); ++i)
    put(y, i, fn(get(a, broadcast_index(y.shape, a.shape, i)), get(b, broadcast_index(y.shape, b.shape, i))));
}

/// The same for integers, modulo 2^64.
template <class Fn> void integer_binary(OutView y, View a, View b, Fn fn) {
  for (int64_t i = 0; i < y.numel(); ++i)
    put_integer(y, i,
                int64_t(fn(uint64_t(get_integer(a, broadcast_index(y.shape, a.shape, i))),
                           uint64_t(get_integer(b, broadcast_index(y.shape, b.shape, i))))));
}

template <class Fn> void arithmetic(OutView y, View a, View b, Fn fn) {
  if (is_floating(a.dtype))
    binary(y, a, b, fn);
  else
    integer_binary(y, a, b, fn);
}

inline double power_of(double a, double b) { return std::pow(a, b); }
inline uint64_t power_of(uint64_t a, uint64_t b) {
  uint64_t y = b % 2 ? a : 1;
  return b > 1 ? y * power_of(a * a, b / 2) : y;
}
/// Of signed integers, by their magnitudes.
inline uint64_t remainder_of(uint64_t x, uint64_t divisor) {
  bool negative = int64_t(x) < 0, opposite = negative != (int64_t(divisor) < 0);
  uint64_t magnitude = int64_t(divisor) < 0 ? 0 - divisor : divisor, rest = (negative ? 0 - x : x) % magnitude;
  uint64_t distance = rest != 0 && opposite ? magnitude - rest : rest;
  return int64_t(divisor) < 0 ? 0 - distance : distance;
}
inline double remainder_of(double a, double b) {
  double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline uint64_t quotient_of(uint64_t x, uint64_t divisor) {
  bool negative = int64_t(x) < 0, opposite = negative != (int64_t(divisor) < 0);
  uint64_t magnitude = int64_t(divisor) < 0 ? 0 - divisor : divisor, size = negative ? 0 - x : x;
  uint64_t quotient = size / magnitude + uint64_t(opposite && size % magnitude != 0);
  return opposite ? 0 - quotient : quotient;
}
/// As PyTorch's.
inline double quotient_of(double a, double b) {
  if (b == 0) return a / b;
  double rest = std::fmod(a, b), y = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) y -= 1;
  if (y == 0) return std::copysign(0.0, a / b);
  double whole = std::floor(y);
  return y - whole > 0.5 ? whole + 1 : whole;
}

#define SG_BINARY(name, f)                                 \
  inline void name(OutView y, View p, View q) {            \
    arithmetic(y, p, q, [](auto a, auto b) { return f; }); \
  }
SG_BINARIES(SG_BINARY)
#undef SG_BINARY

template <class Fn> void compare(OutView y, View a, View b, Fn fn) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t p = broadcast_index(y.shape, a.shape, i), q = broadcast_index(y.shape, b.shape, i);
    put_integer(y, i, is_floating(a.dtype) ? fn(get(a, p), get(b, q)) : fn(get_integer(a, p), get_integer(b, q)));
  }
}

#define SG_RELATION(name, op)                                \
  inline void name(OutView y, View p, View q) {              \
    compare(y, p, q, [](auto a, auto b) { return a op b; }); \
  }
SG_RELATIONS(SG_RELATION)
#undef SG_RELATION

inline void where(OutView y, View condition, View a, View b) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    bool yes = get_integer(condition, broadcast_index(y.shape, condition.shape, i)) != 0;
    const View& from = yes ? a : b;
    put_element(y, i, from, broadcast_index(y.shape, from.shape, i));
  }
}

// What f of kernels/elementwise.h may use.
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
inline double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
inline double gelu_inner(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
inline double tanh_cdf(double x) { return 0.5 * (1 + std::tanh(gelu_inner(x))); }
inline double tanh_density(double x) {
  double inner_slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  double flatness = 0.5 / std::pow(std::cosh(gelu_inner(x)), 2);
  return flatness == 0 ? 0 : flatness * inner_slope;  // the slope of a large x may be infinite
}

#define SG_KERNEL(name, numbers, ...)                             \
  inline void name(OutView to, View from SG_PARAMETERS numbers) { \
    for (int64_t i = 0; i < to.numel(); ++i) {                    \
      double x = get(from, i);                                    \
      put(to, i, __VA_ARGS__);                                    \
    }                                                             \
  }
#define SG_FUNCTION(name, takes, keeps, backward, low, high, ...) SG_KERNEL(name, (), __VA_ARGS__)
#define SG_BACKWARD(name, numbers, ...)                                      \
  inline void name(OutView to, View from, View kept SG_PARAMETERS numbers) { \
    for (int64_t i = 0; i < to.numel(); ++i) {                               \
      double dy = get(from, i), v = get(kept, i);                            \
      put(to, i, __VA_ARGS__);                                               \
    }                                                                        \
  }
SG_UNARIES(SG_FUNCTION, SG_KERNEL, SG_BACKWARD)
#undef SG_KERNEL
#undef SG_FUNCTION
#undef SG_BACKWARD

}  // namespace shardgrad::reference
