#pragma once
// Elementary functions on vectors. f32: polynomials without branches, within about 2 ulp. f64: the C library's, lane by
// lane. The coefficients interpolate the function at Chebyshev nodes of the stated interval.

#include <shardgrad/kernels/cpu/isa/simd.h>

namespace shardgrad::cpu {
namespace {

template <class... Cs> SG_INLINE F32 horner(F32 x, float first, Cs... rest) {
  if constexpr (sizeof...(rest) == 0)
    return splat<F32>(first);
  else
    return fma(horner(x, rest...), x, splat<F32>(first));
}

// Below the smallest normal number the result is 0: a subnormal costs a hundred cycles where it is made, and again
// where it is read.
SG_INLINE F32 exp(F32 x) {
  constexpr float smallest = -87.3365f, largest = 89.0f;
#if defined(__AVX512F__)
  __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, (__m512)splat<F32>(smallest), _CMP_NLT_UQ);  // also of NaN
  x = (F32)_mm512_maskz_min_ps(0xffff, (__m512)splat<F32>(largest), (__m512)x);
#else
  I32 tiny = x < smallest;
  x = tiny ? splat<F32>(smallest) : x;
  x = x > largest ? splat<F32>(largest) : x;
#endif
  // x = n ln 2 + r; adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float magic = 12582912.0f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  F32 t = fma(x, splat<F32>(1.44269504f), splat<F32>(magic)), n = t - magic;
  F32 r = fma(n, splat<F32>(-ln2_high), x);
  r = fma(n, splat<F32>(-ln2_low), r);
  // (exp(r) - 1 - r) / r^2 on [-ln2/2, ln2/2]
  F32 q = horner(r, 0.5000000013f, 0.1666666668f, 0.04166646501f, 0.008333310934f, 0.001393364103f, 0.0001989098087f);
  F32 p = fma(q * r, r, r) + 1.0f;
#if defined(__AVX512F__)  // the same bits, for a power of 2 rounds nothing
  return (F32)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
#else
  I32 k = (I32)t - 0x4b400000, half = k >> 1;  // 2^k in two factors: k may be 128
  F32 y = p * (F32)((U32)(half + 127) << 23) * (F32)((U32)(k - half + 127) << 23);
  return tiny ? F32{} : y;
#endif
}

SG_INLINE F32 log(F32 x) {
  I32 tiny = x < 0x1p-126f;
  F32 scaled = tiny ? x * 0x1p23f : x;
  // scaled = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2))
  U32 bits = (U32)scaled - 0x3f3504f3u;
  I32 e = (I32)bits >> 23;
  F32 f = (F32)((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  F32 exponent = __builtin_convertvector(e, F32) - (tiny ? splat<F32>(23.0f) : F32{});
  // (log(1 + f) - f + f^2 / 2) / f^3
  F32 p = horner(f, 0.3333333118f, -0.2499999696f, 0.2000071575f, -0.1666780232f, 0.1424905765f, -0.1242568733f,
                 0.1168541992f, -0.1147973385f, 0.06971611471f);
  F32 square = f * f;
  F32 low = fma(exponent, splat<F32>(-2.12194440e-4f), p * square * f);
  F32 y = fma(square, splat<F32>(-0.5f), low) + f;
  y = fma(exponent, splat<F32>(0.693359375f), y);
  y = x == __builtin_inff() ? x : y;
  y = x == 0.0f ? splat<F32>(-__builtin_inff()) : y;
  return x >= 0.0f ? y : splat<F32>(__builtin_nanf(""));
}

SG_INLINE F32 tanh(F32 x) {
  F32 magnitude = abs(x), s = x * x;
  F32 p = horner(s, -0.3333333317f, 0.1333330356f, -0.05395925958f, 0.02176891865f, -0.008343945516f, 0.002292744816f);
  F32 small = fma(p * s, x, x);
  F32 large = 1.0f - 2.0f / (exp(magnitude + magnitude) + 1.0f);
  return copysign(magnitude < 0.625f ? small : large, x);  // of -0 too, of which fma makes 0
}

SG_INLINE F32 erf(F32 x) {
  F32 t = abs(x), s = x * x;
  F32 p = horner(s, 0.1283791667f, -0.3761263414f, 0.1128370117f, -0.02685969065f, 0.005201714569f, -0.0008150050488f,
                 8.399777795e-5f);
  F32 small = fma(p, x, x);
  t = t > 4.0f ? splat<F32>(4.0f) : t;
  // log(erfc(t)) / t on [0.92, 4]
  F32 q = horner(t, -1.128734241f, -0.6348386282f, -0.1066690219f, 0.02402030304f, -0.003668697231f, 0.0002762448312f,
                 1.279368213e-5f, -4.499955174e-6f, 2.774853129e-7f);
  F32 large = copysign(1.0f - exp(q * t), x);
  return t < 0.92f ? small : large;
}

// sin and cos of 2 pi turns, turns = k / 2^24.
SG_INLINE void sincos_turns(U32 k, F32& sine, F32& cosine) {
  U32 quadrant = (k + (1u << 21)) >> 22;
  F32 x = __builtin_convertvector((I32)(k - (quadrant << 22)), F32) * 3.7450704e-7f, s = x * x;  // 2 pi / 2^24
  F32 sin_x = fma(horner(s, -0.1666666666f, 0.008333331875f, -0.0001984008674f, 2.72499258e-6f) * s, x, x);
  F32 cos_x = fma(horner(s, 0.04166666466f, -0.001388830304f, 2.454794209e-5f) * s, s,
                  fma(s, splat<F32>(-0.5f), splat<F32>(1.0f)));
  I32 swapped = (quadrant & 1u) != 0u;
  F32 a = swapped ? cos_x : sin_x, b = swapped ? sin_x : cos_x;
  sine = (F32)((U32)a ^ ((quadrant & 2u) << 30));
  cosine = (F32)((U32)b ^ (((quadrant + 1u) & 2u) << 30));
}

// The C library scales subnormals, and gets nonsense where the processor takes them for 0 meanwhile.
SG_INLINE F32 without_subnormals(F32 x) { return abs(x) < 0x1p-126f ? copysign(F32{}, x) : x; }
SG_INLINE F64 without_subnormals(F64 x) { return abs(x) < 0x1p-1022 ? x * 0.0 : x; }

// Whether a bit of a mask is set.
SG_INLINE bool any(I32 lanes) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)lanes, (__m512i)lanes) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256((__m256i)lanes, (__m256i)lanes);
#else
  uint64_t words[kBytes / 8], all = 0;
  memcpy(words, &lanes, kBytes);
  for (uint64_t word : words) all |= word;
  return all != 0;
#endif
}

typedef float F32Half __attribute__((vector_size(kBytes / 2)));

// function(a, b) computed in f64, rounded once.
template <class Function> SG_INLINE F32 in_f64(F32 a, F32 b, const Function& function) {
  F32Half x[2], y[2];
  memcpy(x, &a, kBytes), memcpy(y, &b, kBytes);
  for (int h = 0; h < 2; ++h) {
    F64 result = function(__builtin_convertvector(x[h], F64), __builtin_convertvector(y[h], F64));
    x[h] = __builtin_convertvector(result, F32Half);
  }
  memcpy(&a, x, kBytes);
  return a;
}

template <class... Cs> SG_INLINE F64 horner(F64 x, double first, Cs... rest) {
  if constexpr (sizeof...(rest) == 0)
    return splat<F64>(first);
  else
    return fma(horner(x, rest...), x, splat<F64>(first));
}

// a^b = 2^(b log2 a) of a normal number of f32 that is positive, to about 2^-32. The series are Taylor's.
SG_INLINE F64 power_of_normal(F64 a, F64 b) {
  constexpr double magic = 0x1.8p52;  // adding it rounds to an integer, in the low bits
  // a = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh s
  U64 bits = (U64)a - 0x3fe6a09e667f3bcdu, e = (bits + 0x3ff0000000000000u) >> 52;
  F64 m = (F64)((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu), s = (m - 1.0) / (m + 1.0);
  F64 series = horner(s * s, 1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13);
  F64 exponent = (F64)(e | 0x4330000000000000u) - (0x1p52 + 1023);
  F64 log2 = fma(s * series, splat<F64>(2 * 1.4426950408889634), exponent);
  // Beyond 2^±200 lies nothing of f32.
  F64 t = min(max(b * log2, splat<F64>(-200.0)), splat<F64>(200.0)), n = t + magic;
  F64 x = (t - (n - magic)) * 0.6931471805599453;
  F64 y = horner(x, 1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880);
  return (F64)((U64)y + ((U64)n << 52));
}

// Of zero, infinity and NaN, and to the power of what is large, the C library knows.
SG_INLINE F32 power_of(F32 a, F32 b) {
  a = without_subnormals(a);
  I32 k = __builtin_convertvector(b, I32), whole = __builtin_convertvector(k, F32) == b;
  F32 y = in_f64(abs(a), b, [](F64 x, F64 exponent) { return power_of_normal(x, exponent); });
  F32 of_negative = whole ? (F32)((U32)y ^ ((U32)k << 31)) : splat<F32>(__builtin_nanf(""));
  y = a < 0.0f ? of_negative : y;
  I32 usual = (abs(a) >= 0x1p-126f) & (abs(a) < __builtin_inff()) & (abs(b) < 0x1p24f);
  if (any(~usual))
    for (int l = 0; l < kLanes32; ++l)
      if (!usual[l]) y[l] = __builtin_powf(a[l], b[l]);
  return y;
}
SG_INLINE F32 pow(F32 x, double exponent) { return power_of(x, splat<F32>(float(exponent))); }

SG_INLINE F64 exp(F64 x) {
  for (int l = 0; l < kLanes64; ++l) x[l] = __builtin_exp(x[l]);
  return x;
}
SG_INLINE F64 log(F64 x) {
  x = without_subnormals(x);
  for (int l = 0; l < kLanes64; ++l) x[l] = __builtin_log(x[l]);
  return x;
}
SG_INLINE F64 tanh(F64 x) {
  for (int l = 0; l < kLanes64; ++l) x[l] = __builtin_tanh(x[l]);
  return x;
}
SG_INLINE F64 erf(F64 x) {
  for (int l = 0; l < kLanes64; ++l) x[l] = __builtin_erf(x[l]);
  return x;
}
SG_INLINE F64 pow(F64 x, double exponent) {
  x = without_subnormals(x);
  for (int l = 0; l < kLanes64; ++l) x[l] = __builtin_pow(x[l], exponent);
  return x;
}

// The C library's function in each lane.
#define SG_LANES(name, function32, function64)                  \
  SG_INLINE F32 name(F32 x) {                                   \
    for (int l = 0; l < kLanes32; ++l) x[l] = function32(x[l]); \
    return x;                                                   \
  }                                                             \
  SG_INLINE F64 name(F64 x) {                                   \
    for (int l = 0; l < kLanes64; ++l) x[l] = function64(x[l]); \
    return x;                                                   \
  }
SG_LANES(floor, __builtin_floorf, __builtin_floor)
SG_LANES(ceil, __builtin_ceilf, __builtin_ceil)
SG_LANES(trunc, __builtin_truncf, __builtin_trunc)
SG_LANES(rint, __builtin_rintf, __builtin_rint)

#define SG_LANES64(name, function)                            \
  SG_INLINE F64 name(F64 x) {                                 \
    for (int l = 0; l < kLanes64; ++l) x[l] = function(x[l]); \
    return x;                                                 \
  }
SG_LANES64(sin, __builtin_sin)
SG_LANES64(cos, __builtin_cos)
SG_LANES64(log1p, __builtin_log1p)
SG_LANES64(expm1, __builtin_expm1)

// sin of x + `quarters` quarter turns. pi / 2 in three parts, of which n times the first two is exact for |x| < 8192;
// the C library has the larger ones.
SG_INLINE F32 sine(F32 x, uint32_t quarters) {
  constexpr float magic = 12582912.0f, largest = 8192;  // adding 1.5 * 2^23 rounds to an integer, in the low bits
  F32 t = fma(x, splat<F32>(0.636619772f), splat<F32>(magic)), n = t - magic;
  F32 r = fma(n, splat<F32>(-1.5703125f), x);
  r = fma(n, splat<F32>(-4.837512969970703e-4f), r);
  r = fma(n, splat<F32>(-7.54978995489188216e-8f), r);
  F32 s = r * r;
  F32 sin_r = fma(horner(s, -0.1666666666f, 0.008333331875f, -0.0001984008674f, 2.72499258e-6f) * s, r, r);
  F32 cos_r = fma(horner(s, 0.04166666466f, -0.001388830304f, 2.454794209e-5f) * s, s,
                  fma(s, splat<F32>(-0.5f), splat<F32>(1.0f)));
  U32 quadrant = (U32)t + quarters;
  F32 y = (quadrant & 1u) != 0u ? cos_r : sin_r;
  y = (F32)((U32)y ^ ((quadrant & 2u) << 30));
  if (quarters == 0) y = x == 0.0f ? x : y;  // -0 is its own sine
  I32 usual = abs(x) < largest;
  if (any(~usual))
    for (int l = 0; l < kLanes32; ++l)
      if (!usual[l]) y[l] = quarters ? __builtin_cosf(x[l]) : __builtin_sinf(x[l]);
  return y;
}
SG_INLINE F32 sin(F32 x) { return sine(x, 0); }
SG_INLINE F32 cos(F32 x) { return sine(x, 1); }

// log(1 + x) and exp(x) - 1 where u = 1 + x and exp(x) are rounded: what the rounding took is in the quotient (W.
// Kahan).
SG_INLINE F32 log1p(F32 x) {
  F32 u = 1.0f + x, y = log(u) * (x / (u - 1.0f));
  y = u == 1.0f ? x : y;
  return x == __builtin_inff() ? x : y;
}
SG_INLINE F32 expm1(F32 x) {
  F32 u = exp(x), d = u - 1.0f, y = d * (x / log(u));
  y = u == 1.0f ? x : y;
  return d == -1.0f ? d : (u > 1e30f ? u : y);
}

SG_INLINE F64 power_of(F64 a, F64 b) {
  a = without_subnormals(a);
  for (int l = 0; l < kLanes64; ++l) a[l] = __builtin_pow(a[l], b[l]);
  return a;
}

// a - n b is exact for the whole n next to a / b, and so is its conversion back: the C library has quotients too large.
SG_INLINE F32 remainder_of(F32 a, F32 b) {
  F32 y = in_f64(a, b, [](F64 x, F64 divisor) {
    constexpr double magic = 0x1.8p52;
    return x - ((x / divisor + magic) - magic) * divisor;
  });
  y = y == 0.0f ? copysign(F32{}, a) : y;
  I32 other_sign = (y != 0.0f) & ((y < 0.0f) != (b < 0.0f));
  y = other_sign ? y + b : y;
  I32 usual = (abs(a) < 0x1p28f * abs(b)) & (abs(b) < __builtin_inff());
  if (any(~usual))
    for (int l = 0; l < kLanes32; ++l)
      if (!usual[l]) {
        y[l] = __builtin_fmodf(a[l], b[l]);
        if (y[l] != 0 && (y[l] < 0) != (b[l] < 0)) y[l] += b[l];
      }
  return y;
}
SG_INLINE F64 remainder_of(F64 a, F64 b) {
  for (int l = 0; l < kLanes64; ++l) {
    a[l] = __builtin_fmod(a[l], b[l]);
    if (a[l] != 0 && (a[l] < 0) != (b[l] < 0)) a[l] += b[l];
  }
  return a;
}

template <class V> SG_INLINE V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

// x · σ(x), and its slope from e = exp(-|x|), where nothing cancels or overflows.
template <class V> SG_INLINE V silu(V x) { return x / (1.0f + exp(-x)); }
template <class V> SG_INLINE V silu_slope(V x) {
  V e = exp(-abs(x)), larger = 1.0f / (1.0f + e);
  return fma(x, e * larger * larger, x > 0.0f ? larger : e * larger);
}

}  // namespace
}  // namespace shardgrad::cpu
