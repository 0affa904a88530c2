#pragma once
// CUDA's __half and __nv_bfloat16, alone and in twos. They are computed in f32 and then rounded, as on a
// GPU.

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>

#include <shardgrad/core/dtype.h>
#include <shardgrad/kernels/sim/numbers.h>
#include <shardgrad/kernels/sim/vector_types.h>

namespace shardgrad::sim {

/// 16 bits of Format: f16 or bf16.
template <class Format> struct Half {
  uint16_t bits;
  Half() = default;
  Half(float value) : bits(Format(value).bits) {}
  Half(double value) : Half(to_odd(value)) {}
  template <std::integral Integer> Half(Integer value) : Half(double(value)) {}
  operator float() const {
    Format value;
    value.bits = bits;
    return float(value);
  }
  static Half of(uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }
  Half& operator+=(Half other) { return *this = *this + other; }
  Half& operator-=(Half other) { return *this = *this - other; }
  Half& operator*=(Half other) { return *this = *this * other; }
  Half& operator/=(Half other) { return *this = *this / other; }
  friend Half operator+(Half a, Half b) { return float(a) + float(b); }
  friend Half operator-(Half a, Half b) { return float(a) - float(b); }
  friend Half operator*(Half a, Half b) { return float(a) * float(b); }
  friend Half operator/(Half a, Half b) { return float(a) / float(b); }
  friend Half operator-(Half a) { return of(uint16_t(a.bits ^ 0x8000)); }
  friend bool operator==(Half a, Half b) { return float(a) == float(b); }
  friend bool operator!=(Half a, Half b) { return float(a) != float(b); }
  friend bool operator<(Half a, Half b) { return float(a) < float(b); }
  friend bool operator<=(Half a, Half b) { return float(a) <= float(b); }
  friend bool operator>(Half a, Half b) { return float(a) > float(b); }
  friend bool operator>=(Half a, Half b) { return float(a) >= float(b); }

 private:
  // The next float towards 0, with its last bit set where that is not the value itself: it rounds as the value does.
  static float to_odd(double value) {
    float near = float(value);
    if (double(near) == value || near != near) return near;
    if (std::fabs(double(near)) > std::fabs(value)) near = std::nextafter(near, 0.0f);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(near) | 1u);
  }
};

/// Two of them, which move and are computed together.
template <class Format> struct alignas(4) Half2 {
  Half<Format> x, y;
  friend Half2 operator+(Half2 a, Half2 b) { return {a.x + b.x, a.y + b.y}; }
  friend Half2 operator-(Half2 a, Half2 b) { return {a.x - b.x, a.y - b.y}; }
  friend Half2 operator*(Half2 a, Half2 b) { return {a.x * b.x, a.y * b.y}; }
  friend Half2 operator/(Half2 a, Half2 b) { return {a.x / b.x, a.y / b.y}; }
  friend Half2 operator-(Half2 a) { return {-a.x, -a.y}; }
  Half2& operator+=(Half2 other) { return *this = *this + other; }
  Half2& operator-=(Half2 other) { return *this = *this - other; }
  Half2& operator*=(Half2 other) { return *this = *this * other; }
};

}  // namespace shardgrad::sim

using __half = shardgrad::sim::Half<shardgrad::f16>;
using half = __half;
using __half2 = shardgrad::sim::Half2<shardgrad::f16>;
using half2 = __half2;
using __nv_bfloat16 = shardgrad::sim::Half<shardgrad::bf16>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = shardgrad::sim::Half2<shardgrad::bf16>;
using nv_bfloat162 = __nv_bfloat162;

// The names of conversions say the type; one: __half or __nv_bfloat16, two: the pair, and what they are called in
// names.
#define SG_CONVERSIONS(one, two, name, name2)                                  \
  inline one __float2##name(float x) { return x; }                             \
  inline one __float2##name##_rn(float x) { return x; }                        \
  inline one __double2##name(double x) { return x; }                           \
  inline one __int2##name##_rn(int x) { return x; }                            \
  inline float __##name##2float(one x) { return x; }                           \
  inline int __##name##2int_rn(one x) { return __float2int_rn(float(x)); }     \
  inline int __##name##2int_rz(one x) { return __float2int_rz(float(x)); }     \
  inline two __float2##name2##_rn(float x) { return {x, x}; }                  \
  inline two __floats2##name2##_rn(float x, float y) { return {x, y}; }        \
  inline two __float22##name2##_rn(float2 x) { return {x.x, x.y}; }            \
  inline float2 __##name2##2float2(two x) { return {x.x, x.y}; }               \
  inline two __halves2##name2(one x, one y) { return {x, y}; }                 \
  inline two __##name##2##name2(one x) { return {x, x}; }                      \
  inline two make_##name2(one x, one y) { return {x, y}; }                     \
  inline one __low2##name(two x) { return x.x; }                               \
  inline one __high2##name(two x) { return x.y; }                              \
  inline unsigned short __##name##_as_ushort(one x) { return x.bits; }         \
  inline short __##name##_as_short(one x) { return short(x.bits); }            \
  inline one __ushort_as_##name(unsigned short bits) { return one::of(bits); } \
  inline one __short_as_##name(short bits) { return one::of(uint16_t(bits)); }
SG_CONVERSIONS(__half, __half2, half, half2)
SG_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
#undef SG_CONVERSIONS

// Functions of one or several numbers, and the same of pairs. Not templates, so that a plain number may stand beside a
// half.
#define SG_BOTH(macro, ...) macro(__half, __half2, __VA_ARGS__) macro(__nv_bfloat16, __nv_bfloat162, __VA_ARGS__)
#define SG_ONE(one, two, name, name2, result) \
  inline one name(one x) { return result; }   \
  inline two name2(two x) { return {name(x.x), name(x.y)}; }
#define SG_TWO(one, two, name, name2, result)      \
  inline one name(one x, one y) { return result; } \
  inline two name2(two x, two y) { return {name(x.x, y.x), name(x.y, y.y)}; }
#define SG_COMPARE(one, two, name, result) \
  inline bool name(one x, one y) { return result; }
#define SG_OTHERS(one, two, rest)                                                           \
  inline float __low2float(two x) { return x.x; }                                           \
  inline float __high2float(two x) { return x.y; }                                          \
  inline two __lowhigh2highlow(two x) { return {x.y, x.x}; }                                \
  inline bool __hisnan(one x) { return float(x) != float(x); }                              \
  inline int __hisinf(one x) { return std::isinf(float(x)) ? (float(x) < 0 ? -1 : 1) : 0; } \
  inline one __hfma(one x, one y, one z) { return double(x) * double(y) + double(z); }      \
  inline two __hfma2(two x, two y, two z) { return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)}; }
SG_BOTH(SG_ONE, __hneg, __hneg2, -x)
SG_BOTH(SG_ONE, __habs, __habs2, decltype(x)::of(x.bits & 0x7fff))
SG_BOTH(SG_ONE, hexp, h2exp, std::exp(float(x)))
SG_BOTH(SG_ONE, hexp2, h2exp2, std::exp2(float(x)))
SG_BOTH(SG_ONE, hlog, h2log, std::log(float(x)))
SG_BOTH(SG_ONE, hlog2, h2log2, std::log2(float(x)))
SG_BOTH(SG_ONE, hsqrt, h2sqrt, std::sqrt(float(x)))
SG_BOTH(SG_ONE, hrsqrt, h2rsqrt, 1 / std::sqrt(double(x)))
SG_BOTH(SG_ONE, hrcp, h2rcp, 1 / float(x))
SG_BOTH(SG_ONE, hsin, h2sin, std::sin(float(x)))
SG_BOTH(SG_ONE, hcos, h2cos, std::cos(float(x)))
SG_BOTH(SG_ONE, hfloor, h2floor, std::floor(float(x)))
SG_BOTH(SG_ONE, hceil, h2ceil, std::ceil(float(x)))
SG_BOTH(SG_ONE, htanh, h2tanh, std::tanh(float(x)))
SG_BOTH(SG_TWO, __hadd, __hadd2, x + y)
SG_BOTH(SG_TWO, __hsub, __hsub2, x - y)
SG_BOTH(SG_TWO, __hmul, __hmul2, x* y)
SG_BOTH(SG_TWO, __hdiv, __h2div, x / y)
SG_BOTH(SG_TWO, __hmax, __hmax2, max(float(x), float(y)))
SG_BOTH(SG_TWO, __hmin, __hmin2, min(float(x), float(y)))
SG_BOTH(SG_COMPARE, __heq, x == y)
SG_BOTH(SG_COMPARE, __hne, x<y || x> y)
SG_BOTH(SG_COMPARE, __hneu, x != y)
SG_BOTH(SG_COMPARE, __hlt, x < y)
SG_BOTH(SG_COMPARE, __hle, x <= y)
SG_BOTH(SG_COMPARE, __hgt, x > y)
SG_BOTH(SG_COMPARE, __hge, x >= y)
// __hfma is rounded to a double first, which only a sum of very unequal bf16 can tell from rounding once.
SG_BOTH(SG_OTHERS, )
#undef SG_OTHERS
#undef SG_COMPARE
#undef SG_TWO
#undef SG_ONE
#undef SG_BOTH
