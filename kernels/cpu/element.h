#pragma once
// Typed element access for kernels that only move or compare elements, compiled once: their speed is memory's.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <shardgrad/core/dtype.h>
#include <shardgrad/core/shape.h>

namespace shardgrad::cpu {

/// The type in which elements of type T are added: float for f32, bf16, f16; double; unsigned integers wrap.
template <class T>
using Compute =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<std::is_integral_v<T>, uint64_t, float>>;

/// The type of a sum of elements of type T: i64 for integers.
template <class T> using SumOf = std::conditional_t<std::is_integral_v<T>, int64_t, T>;

/// Converts between any two element types. Floats to integers truncate; what does not fit becomes the nearest integer
/// that does, NaN becomes 0.
template <class To, class From> inline To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_class_v<From>) {
    return convert<To>(float(value));
  } else if constexpr (std::is_class_v<To>) {
    return To(float(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (!(value == value)) return 0;
    if (value < From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= From(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return To(value);
  } else {
    return To(value);
  }
}

/// dispatch() over the floating dtypes only.
template <class Visitor> decltype(auto) dispatch_floats(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::f32:
      return visit.template operator()<float>();
    case DType::f64:
      return visit.template operator()<double>();
    case DType::bf16:
      return visit.template operator()<bf16>();
    case DType::f16:
      return visit.template operator()<f16>();
    default:
      fail_as(ErrorKind::internal, "a kernel for floats was called with dtype ", dtype);
  }
}

/// y = value, or y += value, rounding once.
template <class T> inline void put_sum(T& y, Compute<T> value, bool accumulate) {
  y = convert<T>(Compute<T>(accumulate ? convert<Compute<T>>(y) + value : value));
}
template <class T> inline void put(T& y, T value, bool accumulate) {
  if (accumulate)
    put_sum(y, convert<Compute<T>>(value), true);
  else
    y = value;
}

/// y[0, n) = x[0, n), or added to it.
template <class T> inline void put_range(T* y, const T* x, int64_t n, bool accumulate) {
  if (!accumulate)
    std::copy_n(x, n, y);
  else
    for (int64_t i = 0; i < n; ++i) put(y[i], x[i], true);
}

/// A tensor seen as (outer, extent, inner) around one dimension.
struct Around {
  int64_t outer = 1, extent, inner = 1;
  Around(const Shape& shape, int dim) : extent(shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  }
};

}  // namespace shardgrad::cpu
