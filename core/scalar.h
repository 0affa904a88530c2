#pragma once
// A number beside tensors.

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <shardgrad/core/error.h>

namespace shardgrad {

/// Operations compute with it as a double. One that is an integer which no double holds is rounded beside a floating
/// dtype, as every number is, and refused beside integers.
class Scalar {
 public:
  Scalar(double number) : value_(number) {}
  template <std::integral T>
  Scalar(T number)
      : value_(double(number)),
        negative_(std::is_signed_v<T> && value_ < 0),
        size_(negative_ ? 0 - uint64_t(number) : uint64_t(number)),
        rounded_(!is_held(size_)) {}
  template <class T>
  requires(!std::is_arithmetic_v<T> && std::is_convertible_v<const T&, double>) Scalar(const T& number)
      : value_(number) {}
  operator double() const { return value_; }
  Scalar operator-() const {
    Scalar negative = *this;
    negative.value_ = -value_;
    return negative;
  }
  /// Throws Error(input) where it is to be an integer, and was rounded.
  void check_exact(const char* op) const {
    SG_CHECK(!rounded_, op, ": the number ", negative_ ? "-" : "", size_,
             " is beyond ±2^53, where it would be rounded; make it a tensor of i64");
  }

 private:
  static bool is_held(uint64_t size) { return size == 0 || size >> std::countr_zero(size) <= uint64_t(1) << 53; }
  double value_;
  bool negative_ = false;  // of an integer as it was given
  uint64_t size_ = 0;
  bool rounded_ = false;
};

}  // namespace shardgrad
