#pragma once
// Vectors of the instruction set this file is compiled for. Everything here and in the .cpp files beside it is compiled
// once per instruction set with different options, so nothing may leave the object file but what loops.h declares: no
// std:: templates, no inline functions with external linkage (the linker would keep one copy for the whole program,
// maybe one this machine cannot run). Arithmetic contracts only where fma() says so (-ffp-contract=off).

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define SG_INLINE [[gnu::always_inline]] inline

namespace shardgrad::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

typedef float F32 __attribute__((vector_size(kBytes)));
typedef double F64 __attribute__((vector_size(kBytes)));
typedef int32_t I32 __attribute__((vector_size(kBytes)));
typedef uint32_t U32 __attribute__((vector_size(kBytes)));
typedef int64_t I64 __attribute__((vector_size(kBytes)));
typedef uint64_t U64 __attribute__((vector_size(kBytes)));
typedef uint32_t U32Half __attribute__((vector_size(kBytes / 2)));
typedef uint16_t U16 __attribute__((vector_size(kBytes / 2)));

constexpr int kLanes32 = kBytes / 4, kLanes64 = kBytes / 8;

// Half-precision elements in memory.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

template <class V> struct ElementOf;
template <> struct ElementOf<F32> { using Type = float; };
template <> struct ElementOf<F64> { using Type = double; };
template <> struct ElementOf<U32> { using Type = uint32_t; };
template <class V> SG_INLINE V splat(typename ElementOf<V>::Type value) { return value - V{}; }  // minus keeps -0

SG_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}
SG_INLINE F64 fma(F64 a, F64 b, F64 c) {
#if defined(__AVX512F__)
  return (F64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
  return (F64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
  return a * b + c;
#endif
}
SG_INLINE F32 sqrt(F32 x) {
#if defined(__AVX512F__)
  return (F32)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__AVX2__)
  return (F32)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (F32)_mm_sqrt_ps((__m128)x);
#else
  for (int l = 0; l < kLanes32; ++l) x[l] = __builtin_sqrtf(x[l]);
  return x;
#endif
}
SG_INLINE F64 sqrt(F64 x) {
#if defined(__AVX512F__)
  return (F64)_mm512_maskz_sqrt_pd(0xff, (__m512d)x);
#elif defined(__AVX2__)
  return (F64)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
  return (F64)_mm_sqrt_pd((__m128d)x);
#else
  for (int l = 0; l < kLanes64; ++l) x[l] = __builtin_sqrt(x[l]);
  return x;
#endif
}

// The products of each lane's lower halves, whatever the upper ones are.
SG_INLINE U64 multiply_halves(U64 a, U64 b) {
#if defined(__AVX512F__)
  return (U64)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (U64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (U64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// NaN of the first operand stays: max(NaN, y) is NaN, as PyTorch's clamp and relu.
template <class V> SG_INLINE V max(V x, V y) { return x < y ? y : x; }
template <class V> SG_INLINE V min(V x, V y) { return x > y ? y : x; }
SG_INLINE F32 abs(F32 x) { return (F32)((U32)x & 0x7fffffffu); }
SG_INLINE F64 abs(F64 x) { return (F64)((I64)x & INT64_MAX); }
SG_INLINE F32 copysign(F32 x, F32 sign) { return (F32)(((U32)x & 0x7fffffffu) | ((U32)sign & 0x80000000u)); }

// Sum and maximum over the lanes, in a fixed order.
SG_INLINE float sum(F32 x) {
  float lanes[kLanes32];
  memcpy(lanes, &x, kBytes);
  for (int half = kLanes32 / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}
SG_INLINE double sum(F64 x) {
  double lanes[kLanes64];
  memcpy(lanes, &x, kBytes);
  for (int half = kLanes64 / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

SG_INLINE float largest(F32 x) {
  float result = x[0];
  for (int l = 1; l < kLanes32; ++l) result = x[l] > result ? x[l] : result;
  return result;
}
SG_INLINE double largest(F64 x) {
  double result = x[0];
  for (int l = 1; l < kLanes64; ++l) result = x[l] > result ? x[l] : result;
  return result;
}

// The first n lanes of v, `other` in the rest.
SG_INLINE F32 keep_first(F32 v, int64_t n, F32 other) {
  I32 lane;
  for (int l = 0; l < kLanes32; ++l) lane[l] = l;
  return lane < int32_t(n) ? v : other;
}
SG_INLINE F64 keep_first(F64 v, int64_t n, F64 other) {
  I64 lane;
  for (int l = 0; l < kLanes64; ++l) lane[l] = l;
  return lane < n ? v : other;
}

SG_INLINE F32 widen(U16 bits, Bf16) { return (F32)(__builtin_convertvector(bits, U32) << 16); }
SG_INLINE F32 widen(U16 bits, F16) {
  U32 u = __builtin_convertvector(bits, U32), sign = (u & 0x8000u) << 16, magnitude = u & 0x7fffu;
  U32 subnormal = (U32)(__builtin_convertvector((I32)magnitude, F32) * 0x1p-24f);
  U32 finite = magnitude < 0x400u ? subnormal : (magnitude << 13) + 0x38000000u;  // moves the exponent's bias
  U32 special = (magnitude << 13) | 0x7f800000u;
  return (F32)(sign | (magnitude >= 0x7c00u ? special : finite));
}
SG_INLINE U16 narrow(F32 x, Bf16) {
  U32 u = (U32)x, nan = (u >> 16) | 0x40u, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded, U16);
}
SG_INLINE U16 narrow(F32 x, F16) {
  U32 u = (U32)x, sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  U32 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  U32 subnormal = (U32)((F32)magnitude + 0.5f) - 0x3f000000u;  // the float adder rounds at the right place
  U32 bits = magnitude < 0x38800000u ? subnormal : normal;
  bits = magnitude >= 0x477ff000u ? splat<U32>(0x7c00u) : bits;
  bits = magnitude > 0x7f800000u ? splat<U32>(0x7e00u) : bits;
  return __builtin_convertvector(bits | sign, U16);
}

// Elements of a and b in turn: of their lower and of their upper halves.
#if defined(__AVX512F__)
SG_INLINE F32 low(F32 a, F32 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
SG_INLINE F32 high(F32 a, F32 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
SG_INLINE F64 low(F64 a, F64 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
SG_INLINE F64 high(F64 a, F64 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#elif defined(__AVX2__)
SG_INLINE F32 low(F32 a, F32 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
SG_INLINE F32 high(F32 a, F32 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
SG_INLINE F64 low(F64 a, F64 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
SG_INLINE F64 high(F64 a, F64 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#else
SG_INLINE F32 low(F32 a, F32 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
SG_INLINE F32 high(F32 a, F32 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
SG_INLINE F64 low(F64 a, F64 b) { return __builtin_shufflevector(a, b, 0, 2); }
SG_INLINE F64 high(F64 a, F64 b) { return __builtin_shufflevector(a, b, 1, 3); }
#endif

// Pack<T>: how elements of type T in memory become a vector V of `width` lanes to compute with, and back.
template <class T> struct Pack;

template <> struct Pack<float> {
  using V = F32;
  using Scalar = float;
  static constexpr int width = kLanes32;
  SG_INLINE static V load(const float* p) {
    V v;
    memcpy(&v, p, sizeof(v));
    return v;
  }
  SG_INLINE static void store(float* p, V v) { memcpy(p, &v, sizeof(v)); }
};

template <> struct Pack<double> {
  using V = F64;
  using Scalar = double;
  static constexpr int width = kLanes64;
  SG_INLINE static V load(const double* p) {
    V v;
    memcpy(&v, p, sizeof(v));
    return v;
  }
  SG_INLINE static void store(double* p, V v) { memcpy(p, &v, sizeof(v)); }
};

template <class T> struct PackHalf {
  using V = F32;
  using Scalar = float;
  static constexpr int width = kLanes32;
  SG_INLINE static V load(const T* p) {
    U16 bits;
    memcpy(&bits, p, sizeof(bits));
    return widen(bits, T());
  }
  SG_INLINE static void store(T* p, V v) {
    U16 bits = narrow(v, T());
    memcpy(p, &bits, sizeof(bits));
  }
};
template <> struct Pack<Bf16> : PackHalf<Bf16> {};
template <> struct Pack<F16> : PackHalf<F16> {};

template <class T> using VectorOf = typename Pack<T>::V;
template <class T> using ScalarOf = typename Pack<T>::Scalar;

template <class T> SG_INLINE VectorOf<T> load(const T* p) { return Pack<T>::load(p); }
template <class T> SG_INLINE void store(T* p, VectorOf<T> v) { Pack<T>::store(p, v); }

// The first n < width elements; the other lanes are 0. The same vector arithmetic as for whole vectors then gives the
// same bits wherever a range is cut.
template <class T> SG_INLINE VectorOf<T> load_part(const T* p, int64_t n) {
  T lanes[Pack<T>::width] = {};
  memcpy(lanes, p, size_t(n) * sizeof(T));
  return load(lanes);
}
template <class T> SG_INLINE void store_part(T* p, VectorOf<T> v, int64_t n) {
  T lanes[Pack<T>::width];
  store(lanes, v);
  memcpy(p, lanes, size_t(n) * sizeof(T));
}
template <class T> SG_INLINE VectorOf<T> splat_load(const T* p) {
  T lanes[Pack<T>::width];
  for (T& lane : lanes) lane = *p;
  return load(lanes);
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
SG_INLINE F32 load_part(const float* p, int64_t n) { return (F32)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p); }
SG_INLINE void store_part(float* p, F32 v, int64_t n) { _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v); }
SG_INLINE F64 load_part(const double* p, int64_t n) { return (F64)_mm512_maskz_loadu_pd(__mmask8((1u << n) - 1), p); }
SG_INLINE void store_part(double* p, F64 v, int64_t n) {
  _mm512_mask_storeu_pd(p, __mmask8((1u << n) - 1), (__m512d)v);
}
template <class T> SG_INLINE F32 load_half_part(const T* p, int64_t n) {
  return widen((U16)_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p), T());
}
SG_INLINE F32 load_part(const Bf16* p, int64_t n) { return load_half_part(p, n); }
SG_INLINE F32 load_part(const F16* p, int64_t n) { return load_half_part(p, n); }
SG_INLINE void store_part(Bf16* p, F32 v, int64_t n) {
  _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1), (__m256i)narrow(v, Bf16()));
}
SG_INLINE void store_part(F16* p, F32 v, int64_t n) {
  _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1), (__m256i)narrow(v, F16()));
}
#endif

// Runs body(i, load, store) over [0, n): whole vectors first, then the rest as one part.
template <class T, class Body> SG_INLINE void for_vectors(int64_t n, const Body& body) {
  constexpr int64_t width = Pack<T>::width;
  int64_t i = 0;
  for (; i + width <= n; i += width)
    body(
        i, [](const auto* p) { return load(p); }, [](auto* p, auto v) { store(p, v); });
  if (int64_t rest = n - i)
    body(
        i, [rest](const auto* p) { return load_part(p, rest); }, [rest](auto* p, auto v) { store_part(p, v, rest); });
}

}  // namespace
}  // namespace shardgrad::cpu
