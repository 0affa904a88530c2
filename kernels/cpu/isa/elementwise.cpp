#include <shardgrad/kernels/cpu/isa/math.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

// Each operation is a function of vectors (x, s) or (a, b, s); s.a and s.b are the same number in every lane.
template <class V> struct Splats {
  V a, b;
  double first;  // s.a as it was given
};

// The common exponents cost one or two instructions; the test is the same for every element.
template <class V> SG_INLINE V power(V x, double exponent) {
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -1) return 1.0f / x;
  return pow(x, exponent);
}

// A quotient that rounding has moved just below a whole number is that.
SG_INLINE double quotient_of(double a, double b) {
  if (b == 0) return a / b;
  double rest = __builtin_fmod(a, b), y = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) y -= 1;
  double whole = __builtin_floor(y);
  if (y == 0) return __builtin_copysign(0.0, a / b);
  return y - whole > 0.5 ? whole + 1 : whole;
}
SG_INLINE F64 quotient_of(F64 a, F64 b) {
  for (int l = 0; l < kLanes64; ++l) a[l] = quotient_of(a[l], b[l]);
  return a;
}
// Below 2^28 a quotient of floats is further from a whole number than rounding in f64 moves it.
SG_INLINE F32 quotient_of(F32 a, F32 b) {
  F32 y = in_f64(a, b, [](F64 x, F64 divisor) { return floor(x / divisor); });
  I32 usual = (abs(a) < 0x1p28f * abs(b)) & (abs(b) < __builtin_inff());
  if (any(~usual))
    for (int l = 0; l < kLanes32; ++l)
      if (!usual[l]) y[l] = float(quotient_of(double(a[l]), double(b[l])));
  return y;
}

// The normal distribution function. Where it is small it is right to 3e-6 of itself as far as -5.6, and still smaller
// beyond.
SG_INLINE F32 normal_cdf(F32 x) {
  F32 u = min(abs(x), splat<F32>(12.0f)), u2 = u * u, u4 = u2 * u2;
  // log(2 cdf(-u)) / u on [0, 5.6], by pairs: one after the other they would take longer than all the rest
  F32 low = fma(horner(u, -0.03636773446f, 0.004844103177f), u2, horner(u, -0.7978851567f, -0.3183022237f));
  F32 high = fma(horner(u, 4.937899372e-5f, -6.981586334e-6f), u2, horner(u, -2.477487084e-5f, -1.815543002e-4f));
  F32 q = fma(fma(horner(u, 5.381531756e-7f, -1.780663094e-8f), u4, high), u4, low);
  F32 twice = exp(q * u);
  return x > 0.0f ? fma(twice, splat<F32>(-0.5f), splat<F32>(1.0f)) : 0.5f * twice;
}

SG_INLINE F64 normal_cdf(F64 x) { return 0.5 + 0.5 * erf(x * splat<F64>(0.70710678118654752)); }

// gelu(x) = x * cdf(x). The tanh form's is sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double kTwoU = 2 * 0.79788456080286536, kTwoUCubic = kTwoU * 0.044715;
template <class V> SG_INLINE V tanh_cdf(V x) { return sigmoid(x * fma(x * x, splat<V>(kTwoUCubic), splat<V>(kTwoU))); }

constexpr auto affine_op = [](auto x, const auto& s) { return fma(x, s.a, s.b); };
constexpr auto neg_op = [](auto x, const auto&) { return -x; };
constexpr auto exp_op = [](auto x, const auto&) { return exp(x); };
constexpr auto log_op = [](auto x, const auto&) { return log(x); };
constexpr auto sqrt_op = [](auto x, const auto&) { return sqrt(x); };
constexpr auto tanh_op = [](auto x, const auto&) { return tanh(x); };
constexpr auto sigmoid_op = [](auto x, const auto&) { return sigmoid(x); };
constexpr auto relu_op = [](auto x, const auto&) { return max(x, decltype(x){}); };
constexpr auto abs_op = [](auto x, const auto&) { return abs(x); };
constexpr auto gelu_tanh_op = [](auto x, const auto&) { return x * tanh_cdf(x); };
constexpr auto gelu_op = [](auto x, const auto&) { return x * normal_cdf(x); };
constexpr auto silu_op = [](auto x, const auto&) { return silu(x); };
constexpr auto pow_op = [](auto x, const auto& s) { return power(x, s.first); };
constexpr auto clamp_op = [](auto x, const auto& s) { return min(max(x, s.a), s.b); };
constexpr auto sin_op = [](auto x, const auto&) { return sin(x); };
constexpr auto cos_op = [](auto x, const auto&) { return cos(x); };
constexpr auto rsqrt_op = [](auto x, const auto&) { return 1.0f / sqrt(x); };
constexpr auto log1p_op = [](auto x, const auto&) { return log1p(x); };
constexpr auto expm1_op = [](auto x, const auto&) { return expm1(x); };
constexpr auto erf_op = [](auto x, const auto&) { return erf(x); };
constexpr auto softplus_op = [](auto x, const auto&) { return max(x, decltype(x){}) + log1p(exp(-abs(x))); };
constexpr auto floor_op = [](auto x, const auto&) { return floor(x); };
constexpr auto ceil_op = [](auto x, const auto&) { return ceil(x); };
constexpr auto trunc_op = [](auto x, const auto&) { return trunc(x); };
constexpr auto round_op = [](auto x, const auto&) { return rint(x); };
constexpr auto sign_op = [](auto x, const auto&) {
  using V = decltype(x);
  return x > 0.0f ? splat<V>(1) : (x < 0.0f ? splat<V>(-1) : V{});
};
constexpr auto huber_op = [](auto x, const auto& s) {
  auto size = abs(x);
  return size <= s.a ? x * x * 0.5f : s.a * (size - s.a * 0.5f);
};
constexpr auto leaky_relu_op = [](auto x, const auto& s) { return x > 0.0f ? x : x * s.a; };
constexpr auto elu_op = [](auto x, const auto& s) { return x > 0.0f ? x : expm1(x) * s.a; };

#define SG_OP(name, result) constexpr auto name##_op = [](auto a, auto b, const auto&) { return result; };
SG_BINARIES(SG_OP)
constexpr auto scaled_difference_op = [](auto a, auto b, const auto& s) { return s.a * (a - b); };
constexpr auto scaled_bounded_difference_op = [](auto a, auto b, const auto& s) {
  auto d = a - b;
  return s.a * (d > s.b ? s.b : (d < -s.b ? -s.b : d));
};

constexpr auto relu_backward_op = [](auto dy, auto y, const auto&) { return y <= 0.0f ? decltype(dy){} : dy; };
constexpr auto tanh_backward_op = [](auto dy, auto y, const auto&) { return dy * (1.0f - y * y); };
constexpr auto sigmoid_backward_op = [](auto dy, auto y, const auto&) { return dy * (y * (1.0f - y)); };
constexpr auto sqrt_backward_op = [](auto dy, auto y, const auto&) { return dy * 0.5f / y; };
constexpr auto abs_backward_op = [](auto dy, auto x, const auto&) {
  return x > 0.0f ? dy : (x < 0.0f ? -dy : dy * x);  // 0 at 0, NaN at NaN
};
constexpr auto gelu_tanh_backward_op = [](auto dy, auto x, const auto&) {
  using V = decltype(x);
  // cdf and cdf (1 - cdf) from e = exp(-|2 u|), where nothing cancels
  V two_u = x * fma(x * x, splat<V>(kTwoUCubic), splat<V>(kTwoU)), e = exp(-abs(two_u)), larger = 1.0f / (1.0f + e);
  // e is 0 long before |x| = 32. What it is multiplied by must not overflow there: infinity times 0 is NaN.
  V near = min(max(x, splat<V>(-32)), splat<V>(32)),
    slope = fma(near * near, splat<V>(3 * kTwoUCubic), splat<V>(kTwoU));
  V cdf = two_u > 0.0f ? larger : e * larger;
  return dy * fma(x, slope * (e * larger * larger), cdf);
};
constexpr auto gelu_backward_op = [](auto dy, auto x, const auto&) {
  auto density = exp(x * x * -0.5f) * splat<decltype(x)>(0.39894228040143268);
  return dy * fma(x, density, normal_cdf(x));
};
constexpr auto silu_backward_op = [](auto dy, auto x, const auto&) { return dy * silu_slope(x); };
constexpr auto pow_backward_op = [](auto dy, auto x, const auto& s) {
  return s.first == 0 ? decltype(x){} : dy * (s.a * power(x, s.first - 1));
};
constexpr auto clamp_backward_op = [](auto dy, auto x, const auto& s) {
  using V = decltype(x);
  return x >= s.a ? (x <= s.b ? dy : V{}) : V{};  // 0 at NaN
};

constexpr auto leaky_relu_backward_op = [](auto dy, auto x, const auto& s) { return x > 0.0f ? dy : dy * s.a; };
constexpr auto huber_backward_op = [](auto dy, auto x, const auto& s) {
  return dy * (x > s.a ? s.a : (x < -s.a ? -s.a : x));
};
constexpr auto elu_backward_op = [](auto dy, auto x, const auto& s) { return x > 0.0f ? dy : dy * (s.a * exp(x)); };

template <class T> SG_INLINE Splats<VectorOf<T>> splats(Scalars s) {
  using V = VectorOf<T>;
  return {splat<V>(ScalarOf<T>(s.a)), splat<V>(ScalarOf<T>(s.b)), s.a};
}

template <class T, class Op>
[[gnu::flatten]] void unary(void* y_, const void* x_, int64_t n, Scalars scalars, bool accumulate) {
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  auto s = splats<T>(scalars);
  for_vectors<T>(n, [&](int64_t i, auto load, auto store) {
    auto r = Op()(load(x + i), s);
    store(y + i, accumulate ? load(y + i) + r : r);
  });
}

template <class T, class Op, bool a_fixed, bool b_fixed>
SG_INLINE void binary_row(T* y, const T* a, const T* b, int64_t n, const Splats<VectorOf<T>>& s, bool accumulate) {
  VectorOf<T> va{}, vb{};
  if constexpr (a_fixed) va = splat_load(a);
  if constexpr (b_fixed) vb = splat_load(b);
  for_vectors<T>(n, [&](int64_t i, auto load, auto store) {
    auto r = Op()(a_fixed ? va : load(a + i), b_fixed ? vb : load(b + i), s);
    store(y + i, accumulate ? load(y + i) + r : r);
  });
}

template <class T, class Op>
[[gnu::flatten]] void binary(void* y_, const void* a_, const void* b_, const Grid& grid, Scalars scalars) {
  auto s = splats<T>(scalars);
  for (int64_t r = 0; r < grid.rows; ++r) {
    T* y = static_cast<T*>(y_) + r * grid.cols;
    const T* a = static_cast<const T*>(a_) + r * grid.row[0];
    const T* b = static_cast<const T*>(b_) + r * grid.row[1];
    if (grid.fixed[1])
      binary_row<T, Op, false, true>(y, a, b, grid.cols, s, grid.accumulate);
    else if (grid.fixed[0])
      binary_row<T, Op, true, false>(y, a, b, grid.cols, s, grid.accumulate);
    else
      binary_row<T, Op, false, false>(y, a, b, grid.cols, s, grid.accumulate);
  }
}

// For operations whose operands never broadcast: one flat row.
template <class T, class Op>
[[gnu::flatten]] void backward(void* y, const void* a, const void* b, const Grid& grid, Scalars scalars) {
  binary_row<T, Op, false, false>(static_cast<T*>(y), static_cast<const T*>(a), static_cast<const T*>(b), grid.cols,
                                  splats<T>(scalars), grid.accumulate);
}

template <class To, class From> void cast(void* y_, const void* x_, int64_t n, bool accumulate) {
  To* y = static_cast<To*>(y_);
  const From* x = static_cast<const From*>(x_);
  if constexpr (Pack<To>::width == Pack<From>::width) {
    for_vectors<To>(n, [&](int64_t i, auto load, auto store) {
      auto r = load(x + i);
      store(y + i, accumulate ? load(y + i) + r : r);
    });
  } else if constexpr (sizeof(To) == 8) {
    constexpr int64_t block = 64;
    float values[block];
    for (int64_t i = 0; i < n; i += block) {
      int64_t count = n - i < block ? n - i : block;
      cast<float, From>(values, x + i, count, false);
      for (int64_t k = 0; k < count; ++k) y[i + k] = accumulate ? y[i + k] + values[k] : values[k];
    }
  } else {
    constexpr int64_t block = 64;
    float values[block];
    for (int64_t i = 0; i < n; i += block) {
      int64_t count = n - i < block ? n - i : block;
      for (int64_t k = 0; k < count; ++k) values[k] = float(x[i + k]);
      cast<To, float>(y + i, values, count, accumulate);
    }
  }
}

#define SG_FLOATS(loop, ...) \
  { loop<float, __VA_ARGS__>, loop<double, __VA_ARGS__>, loop<Bf16, __VA_ARGS__>, loop<F16, __VA_ARGS__> }
#define SG_CASTS(to) \
  { cast<to, float>, cast<to, double>, cast<to, Bf16>, cast<to, F16> }
#define SG_UNARY(name, ...) SG_FLOATS(unary, decltype(name##_op)),
#define SG_BINARY(name, ...) SG_FLOATS(binary, decltype(name##_op)),
#define SG_BACKWARD(name, ...) SG_FLOATS(backward, decltype(name##_op)),

}  // namespace

namespace SG_ISA {

constinit const ElementwiseLoops elementwise_loops = {
    .unary = {SG_UNARIES(SG_UNARY, SG_UNARY, SG_NO_ROW)},
    .binary = {SG_BINARIES(SG_BINARY) SG_UNARIES(SG_NO_ROW, SG_NO_ROW, SG_BACKWARD)},
    .scaled_difference = SG_FLOATS(backward, decltype(scaled_difference_op)),
    .scaled_bounded_difference = SG_FLOATS(backward, decltype(scaled_bounded_difference_op)),
    .cast = {SG_CASTS(float), SG_CASTS(double), SG_CASTS(Bf16), SG_CASTS(F16)},
};

}  // namespace SG_ISA
}  // namespace shardgrad::cpu
