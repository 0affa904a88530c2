#pragma once
// The open end of an interval in a narrow dtype.

#include <cmath>

#include <shardgrad/core/dtype.h>

namespace shardgrad::kernels {

/// The largest value of a floating dtype below b, so that rounding never reaches the open end of [a, b).
inline double largest_below(DType dtype, double b) {
  return dispatch(dtype, [b]<class T>() -> double {
    if constexpr (std::is_same_v<T, float>)
      return double(float(b)) < b ? float(b) : std::nextafterf(float(b), -INFINITY);
    if constexpr (!std::is_class_v<T>) return std::nextafter(b, -INFINITY);
    if constexpr (std::is_class_v<T>) {
      T value(static_cast<float>(b));
      while (!(double(float(value)) < b)) {  // one step down in the ordered bit patterns
        if (float(value) == 0)
          value.bits = 0x8001;
        else
          value.bits = uint16_t(float(value) > 0 ? value.bits - 1 : value.bits + 1);
      }
      return float(value);
    }
  });
}

}  // namespace shardgrad::kernels
