#pragma once
// CUDA's functions of numbers and bits, computed by the host's: a GPU's own fast ones round otherwise.

#include <limits.h>
#include <math.h>  // puts abs, isnan and their kin for every type into the global namespace, where CUDA has them
#include <stdlib.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shardgrad::sim {
/// CUDA compares integers with integers and floats with floats.
template <class A, class B>
concept Comparable = std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && std::is_floating_point_v<A>
== std::is_floating_point_v<B>;
}  // namespace shardgrad::sim

/// The smaller one; of floats the one that is no NaN.
template <class A, class B>
requires shardgrad::sim::Comparable<A, B>
constexpr auto min(A a, B b) {
  using Both = decltype(a + b);
  if (a != a) return Both(b);
  return Both(b) < Both(a) ? Both(b) : Both(a);
}
template <class A, class B>
requires shardgrad::sim::Comparable<A, B>
constexpr auto max(A a, B b) {
  using Both = decltype(a + b);
  if (a != a) return Both(b);
  return Both(a) < Both(b) ? Both(b) : Both(a);
}

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752); }
inline float fdividef(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

// The C library declares these, and has them for itself alone.
inline float __expf(float x) noexcept { return std::exp(x); }
inline float __exp10f(float x) noexcept { return std::pow(10.0f, x); }
inline float __logf(float x) noexcept { return std::log(x); }
inline float __log2f(float x) noexcept { return std::log2(x); }
inline float __log10f(float x) noexcept { return std::log10(x); }
inline float __powf(float x, float y) noexcept { return std::exp2(y * std::log2(x)); }  // NaN of a negative x
inline float __sinf(float x) noexcept { return std::sin(x); }
inline float __cosf(float x) noexcept { return std::cos(x); }
inline float __tanf(float x) noexcept { return std::tan(x); }
inline void __sincosf(float x, float* sine, float* cosine) noexcept { *sine = std::sin(x), *cosine = std::cos(x); }

// With the rounding of a host: to nearest even.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1 / std::sqrt(double(x))); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }

namespace shardgrad::sim {
/// What does not fit becomes the nearest that does. NaN becomes 0, of a double the least.
template <class To> To to_integer(double rounded, To of_nan = 0) {
  if (rounded != rounded) return of_nan;
  constexpr double least = double(std::numeric_limits<To>::min()), most = double(std::numeric_limits<To>::max());
  return rounded <= least ? std::numeric_limits<To>::min()
                          : (rounded >= most ? std::numeric_limits<To>::max() : To(rounded));
}
}  // namespace shardgrad::sim
inline int __float2int_rn(float x) { return shardgrad::sim::to_integer<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return shardgrad::sim::to_integer<int>(std::trunc(x)); }
inline int __float2int_rd(float x) { return shardgrad::sim::to_integer<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return shardgrad::sim::to_integer<int>(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) { return shardgrad::sim::to_integer<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return shardgrad::sim::to_integer<unsigned>(std::trunc(x)); }
inline int __double2int_rn(double x) { return shardgrad::sim::to_integer<int>(std::nearbyint(x), INT_MIN); }
inline int __double2int_rz(double x) { return shardgrad::sim::to_integer<int>(std::trunc(x), INT_MIN); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline double __int2double_rn(int x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

/// The number of the lowest set bit, from 1; 0 where there is none.
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __popcll(unsigned long long bits) { return std::popcount(bits); }
/// Zeros above the highest set bit; of 0 all of them.
inline int __clz(int bits) { return std::countl_zero(unsigned(bits)); }
inline int __clzll(long long bits) { return std::countl_zero(static_cast<unsigned long long>(bits)); }
/// The bits in reverse.
inline unsigned long long __brevll(unsigned long long bits) {
  unsigned long long turned = 0;
  for (int i = 0; i < 64; ++i) turned |= (bits >> i & 1) << (63 - i);
  return turned;
}
inline unsigned __brev(unsigned bits) { return unsigned(__brevll(bits) >> 32); }
/// The upper half of a product.
inline int __mulhi(int x, int y) { return int((static_cast<long long>(x) * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((static_cast<unsigned long long>(x) * y) >> 32); }
inline long long __mul64hi(long long x, long long y) {
  __extension__ using Wide = __int128;
  return static_cast<long long>((Wide(x) * y) >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((Wide(x) * y) >> 64);
}
/// Four of the eight bytes of y and x; a nibble of `which` says which one.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
  unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned chosen = 0;
  for (int i = 0; i < 4; ++i) chosen |= unsigned(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return chosen;
}
/// The upper and the lower word of high:low, shifted left or right by the lower five bits of `by`.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return unsigned((static_cast<unsigned long long>(high) << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned((static_cast<unsigned long long>(high) << 32 | low) >> (by & 31));
}
