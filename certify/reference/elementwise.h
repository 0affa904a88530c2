#pragma once
// Reference versions of filling, copying and elementwise operations; contracts in kernels/ops.h.

#include <vector>

#include <shardgrad/certify/reference/element.h>

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

inline void add(OutView y, View a, View b) {
  arithmetic(y, a, b, [](auto p, auto q) { return p + q; });
}
inline void sub(OutView y, View a, View b) {
  arithmetic(y, a, b, [](auto p, auto q) { return p - q; });
}
inline void mul(OutView y, View a, View b) {
  arithmetic(y, a, b, [](auto p, auto q) { return p * q; });
}
inline void div(OutView y, View a, View b) {
  binary(y, a, b, [](double p, double q) { return p / q; });
}

template <class Fn> void compare(OutView y, View a, View b, Fn fn) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t p = broadcast_index(y.shape, a.shape, i), q = broadcast_index(y.shape, b.shape, i);
    put_integer(y, i, is_floating(a.dtype) ? fn(get(a, p), get(b, q)) : fn(get_integer(a, p), get_integer(b, q)));
  }
}

inline void eq(OutView y, View a, View b) {
  compare(y, a, b, [](auto p, auto q) { return p == q; });
}
inline void ne(OutView y, View a, View b) {
  compare(y, a, b, [](auto p, auto q) { return p != q; });
}
inline void lt(OutView y, View a, View b) {
  compare(y, a, b, [](auto p, auto q) { return p < q; });
}
inline void le(OutView y, View a, View b) {
  compare(y, a, b, [](auto p, auto q) { return p <= q; });
}
inline void gt(OutView y, View a, View b) {
  compare(y, a, b, [](auto p, auto q) { return p > q; });
}
inline void ge(OutView y, View a, View b) {
  compare(y, a, b, [](auto p, auto q) { return p >= q; });
}

inline void where(OutView y, View condition, View a, View b) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    bool yes = get_integer(condition, broadcast_index(y.shape, condition.shape, i)) != 0;
    const View& from = yes ? a : b;
    put_element(y, i, from, broadcast_index(y.shape, from.shape, i));
  }
}

/// y = fn(x) in double.
template <class Fn> void unary(OutView y, View x, Fn fn) {
  for (int64_t i = 0; i < y.numel(); ++i) put(y, i, fn(get(x, i)));
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
inline double gelu_inner(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
inline double tanh_cdf(double x) { return 0.5 * (1 + std::tanh(gelu_inner(x))); }

inline void affine(OutView y, View x, double scale, double shift) {
  unary(y, x, [=](double v) { return scale * v + shift; });
}
inline void neg(OutView y, View x) {
  unary(y, x, [](double v) { return -v; });
}
inline void exp(OutView y, View x) {
  unary(y, x, [](double v) { return std::exp(v); });
}
inline void log(OutView y, View x) {
  unary(y, x, [](double v) { return std::log(v); });
}
inline void sqrt(OutView y, View x) {
  unary(y, x, [](double v) { return std::sqrt(v); });
}
inline void tanh(OutView y, View x) {
  unary(y, x, [](double v) { return std::tanh(v); });
}
inline void sigmoid(OutView y, View x) {
  unary(y, x, [](double v) { return sigmoid(v); });
}
inline void relu(OutView y, View x) {
  unary(y, x, [](double v) { return v < 0 ? 0 : v; });
}
inline void abs(OutView y, View x) {
  unary(y, x, [](double v) { return std::abs(v); });
}
inline void gelu(OutView y, View x, bool tanh) {
  unary(y, x, [=](double v) { return v * (tanh ? tanh_cdf(v) : normal_cdf(v)); });
}
inline void pow(OutView y, View x, double exponent) {
  unary(y, x, [=](double v) { return std::pow(v, exponent); });
}
inline void clamp(OutView y, View x, double low, double high) {
  unary(y, x, [=](double v) { return v < low ? low : v > high ? high : v; });
}

/// dx = dy * slope(saved), without broadcasting.
template <class Fn> void backward(OutView dx, View dy, View saved, Fn slope) {
  for (int64_t i = 0; i < dx.numel(); ++i) put(dx, i, get(dy, i) * slope(get(saved, i)));
}

/// dx = dy where `keeps` says so, and 0 elsewhere.
template <class Fn> void masked(OutView dx, View dy, View saved, Fn keeps) {
  for (int64_t i = 0; i < dx.numel(); ++i) put(dx, i, keeps(get(saved, i)) ? get(dy, i) : 0);
}

inline void relu_backward(OutView dx, View dy, View y) {
  masked(dx, dy, y, [](double v) { return !(v <= 0); });
}
inline void tanh_backward(OutView dx, View dy, View y) {
  backward(dx, dy, y, [](double v) { return 1 - v * v; });
}
inline void sigmoid_backward(OutView dx, View dy, View y) {
  backward(dx, dy, y, [](double v) { return v * (1 - v); });
}
inline void sqrt_backward(OutView dx, View dy, View y) {
  backward(dx, dy, y, [](double v) { return 0.5 / v; });
}
inline void abs_backward(OutView dx, View dy, View x) {
  backward(dx, dy, x, [](double v) { return v > 0 ? 1 : v < 0 ? -1 : v; });
}
inline void gelu_backward(OutView dx, View dy, View x, bool tanh) {
  backward(dx, dy, x, [=](double v) {
    if (!tanh) return normal_cdf(v) + v * std::exp(-0.5 * v * v) / std::sqrt(2 * M_PI);
    double inner_slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
    return tanh_cdf(v) + v * 0.5 / std::pow(std::cosh(gelu_inner(v)), 2) * inner_slope;
  });
}
inline void pow_backward(OutView dx, View dy, View x, double exponent) {
  backward(dx, dy, x, [=](double v) { return exponent == 0 ? 0 : exponent * std::pow(v, exponent - 1); });
}
inline void clamp_backward(OutView dx, View dy, View x, double low, double high) {
  masked(dx, dy, x, [=](double v) { return v >= low && v <= high; });
}

}  // namespace shardgrad::reference
