#pragma once
// Element types. bf16 and f16 are our own storage types: arithmetic goes through float.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include <shardgrad/core/error.h>

namespace shardgrad {

enum class DType : uint8_t { f32, f64, bf16, f16, i32, i64, u8 };
inline constexpr int kDTypeCount = 7;

/// bfloat16: the upper half of a float. Conversion rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? uint16_t((u >> 16) | 0x40u) : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

/// IEEE binary16. Conversion rounds to nearest even, overflows to infinity, keeps subnormals.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = uint16_t(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more
      bits = uint16_t(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // subnormal: let the float adder round at the right place
      float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    } else {
      uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
      bits = uint16_t(sign | ((rounded - 0x38000000u) >> 13));
    }
  }
  explicit operator float() const {
    uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
      float value = float(mantissa) * 0x1p-24f;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
};

constexpr size_t size_of(DType dtype) {
  constexpr size_t sizes[kDTypeCount] = {4, 8, 2, 2, 4, 8, 1};
  return sizes[int(dtype)];
}
constexpr const char* name_of(DType dtype) {
  constexpr const char* names[kDTypeCount] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
  return names[int(dtype)];
}
constexpr bool is_floating(DType dtype) { return int(dtype) <= int(DType::f16); }
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

/// The DType of a C++ type: dtype_of<float> == DType::f32.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type");
  return DType::f32;
}();
template <> inline constexpr DType dtype_of<float> = DType::f32;
template <> inline constexpr DType dtype_of<double> = DType::f64;
template <> inline constexpr DType dtype_of<bf16> = DType::bf16;
template <> inline constexpr DType dtype_of<f16> = DType::f16;
template <> inline constexpr DType dtype_of<int32_t> = DType::i32;
template <> inline constexpr DType dtype_of<int64_t> = DType::i64;
template <> inline constexpr DType dtype_of<uint8_t> = DType::u8;

/// Calls visit.operator()<T>() with the C++ type of dtype.
template <class Visitor> decltype(auto) dispatch(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::f32:
      return visit.template operator()<float>();
    case DType::f64:
      return visit.template operator()<double>();
    case DType::bf16:
      return visit.template operator()<bf16>();
    case DType::f16:
      return visit.template operator()<f16>();
    case DType::i32:
      return visit.template operator()<int32_t>();
    case DType::i64:
      return visit.template operator()<int64_t>();
    case DType::u8:
      return visit.template operator()<uint8_t>();
  }
  fail_as(ErrorKind::internal, "dispatch: unknown dtype ", int(dtype));
}

}  // namespace shardgrad
