#pragma once
// A number beside tensors.

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <shardgrad/core/error.h>

namespace shardgrad {

/// Operations compute with it as a double. Throws Error(input) for an integer that a double does not hold.
class Scalar {
 public:
  Scalar(double number) : value_(number) {}
  template <std::integral T> Scalar(T number) : value_(double(number)) {
    if constexpr (sizeof(T) > sizeof(int32_t))
      SG_CHECK(is_held(number < 0 ? 0 - uint64_t(number) : uint64_t(number)), "the number ", number,
               " is beyond ±2^53, where it would be rounded; make it a tensor of i64");
  }
  template <class T>
  requires(!std::is_arithmetic_v<T> && std::is_convertible_v<const T&, double>) Scalar(const T& number)
      : value_(number) {}
  operator double() const { return value_; }

 private:
  static bool is_held(uint64_t size) { return size == 0 || size >> std::countr_zero(size) <= uint64_t(1) << 53; }
  double value_;
};

}  // namespace shardgrad
