#pragma once
// Element access for the reference kernels: one element at a time, in double; integers exactly, wrapping as the
// kernels do.

#include <cmath>
#include <cstdint>
#include <limits>

#include <shardgrad/core/view.h>

namespace shardgrad::reference {

template <class T> double to_double(T value) {
  if constexpr (sizeof(T) == 2)
    return double(float(value));
  else
    return double(value);
}

/// Element i as a number.
inline double get(const View& x, int64_t i) {
  return dispatch(x.dtype, [&]<class T>() { return to_double(x.as<T>()[i]); });
}

/// Element i of an integer tensor.
inline int64_t get_integer(const View& x, int64_t i) {
  return dispatch(x.dtype, [&]<class T>() -> int64_t {
    if constexpr (std::is_integral_v<T>) return int64_t(x.as<T>()[i]);
    fail("get_integer of dtype ", x.dtype);
  });
}

/// The element type nearest to value. Floats to integers truncate, stop at the ends of the range, NaN gives 0.
template <class T> T from_double(double value) {
  if constexpr (sizeof(T) == 2) {
    return T(float(value));
  } else if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    if (value <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (value >= double(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return T(value);
  } else {
    return T(value);
  }
}

/// y[i] = beta * y[i] + value for floats.
inline void put(const OutView& y, int64_t i, double value) {
  dispatch(y.dtype, [&]<class T>() {
    T& element = y.as<T>()[i];
    element = from_double<T>(y.beta == 0 ? value : to_double(element) + value);
  });
}

/// y[i] = beta * y[i] + value for integers, modulo 2^bits.
inline void put_integer(const OutView& y, int64_t i, int64_t value) {
  dispatch(y.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      y.as<T>()[i] = T((y.beta == 0 ? uint64_t(0) : uint64_t(y.as<T>()[i])) + uint64_t(value));
  });
}

/// y[i] = beta * y[i] + x[j] for equal dtypes.
inline void put_element(const OutView& y, int64_t i, const View& x, int64_t j) {
  if (is_floating(y.dtype))
    put(y, i, get(x, j));
  else
    put_integer(y, i, get_integer(x, j));
}

/// The element of `x` that element i of `y` meets when x is broadcast to y's shape.
inline int64_t broadcast_index(const Shape& y, const Shape& x, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int d = 1; d <= y.ndim(); ++d) {
    int64_t position = i % y[-d];
    i /= y[-d];
    if (d > x.ndim()) continue;
    if (x[-d] != 1) index += position * stride;
    stride *= x[-d];
  }
  return index;
}

/// A tensor seen as (outer, extent, inner) around one dimension.
struct Around {
  int64_t outer = 1, extent = 1, inner = 1;
  Around(const Shape& shape, int dim) : extent(shape[dim]) {
    for (int d = 0; d < shape.ndim(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : shape[d];
  }
  int64_t at(int64_t o, int64_t e, int64_t i) const { return (o * extent + e) * inner + i; }
};

}  // namespace shardgrad::reference
