// Functions of one element and their backward. Memory-bound: each moves x (and the saved value in backward) in and y
// out once; a few operations per element, about 20 with an exponential.

#include <shardgrad/kernels/cuda/gelu.h>
#include <shardgrad/kernels/cuda/map.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr double kRootHalf = 0.70710678118654752, kOverRootTwoPi = 0.39894228040143268;

template <class C> __device__ C sigmoid_of(C x) { return 1 / (1 + std::exp(-x)); }
template <class C> __device__ C normal_cdf(C x) { return C(0.5) * std::erfc(-x * C(kRootHalf)); }

#define SG_UNARY(Name, expression)                                               \
  struct Name {                                                                  \
    template <class C> __device__ C operator()(C x) const { return expression; } \
  };
SG_UNARY(Neg, -x)
SG_UNARY(Exp, std::exp(x))
SG_UNARY(Log, std::log(x))
SG_UNARY(Sqrt, std::sqrt(x))
SG_UNARY(Tanh, std::tanh(x))
SG_UNARY(Sigmoid, sigmoid_of(x))
SG_UNARY(Relu, x < 0 ? C(0) : x)
SG_UNARY(Abs, std::abs(x))
SG_UNARY(GeluTanh, gelu_tanh(x))
SG_UNARY(GeluErf, x* normal_cdf(x))

struct Affine {
  double scale, shift;
  template <class C> __device__ C operator()(C x) const { return C(scale) * x + C(shift); }
};
struct Pow {
  double exponent;
  template <class C> __device__ C operator()(C x) const { return std::pow(x, C(exponent)); }
};
struct Clamp {
  double low, high;
  template <class C> __device__ C operator()(C x) const { return x < C(low) ? C(low) : x > C(high) ? C(high) : x; }
};

// The same of integers, modulo 2^64.
struct IntegerAffine {
  static constexpr bool raw = true;
  uint64_t scale, shift;
  template <class T> __device__ T operator()(T x) const { return T(scale * uint64_t(x) + shift); }
};
struct IntegerAbs {
  static constexpr bool raw = true;
  template <class T> __device__ T operator()(T x) const {
    if constexpr (std::is_signed_v<T>)
      return x < 0 ? T(-uint64_t(x)) : x;
    else
      return x;
  }
};
struct IntegerClamp {
  static constexpr bool raw = true;
  double low, high;
  template <class T> __device__ T operator()(T x) const {
    T least = convert<T>(low), most = convert<T>(high), raised = x < least ? least : x;
    return raised > most ? most : raised;
  }
};

#define SG_BACKWARD(Name, slope)                                                         \
  struct Name {                                                                          \
    template <class C> __device__ C operator()(C dy, C v) const { return dy * (slope); } \
  };
SG_BACKWARD(TanhBackward, 1 - v * v)
SG_BACKWARD(SigmoidBackward, v*(1 - v))
SG_BACKWARD(SqrtBackward, C(0.5) / v)
SG_BACKWARD(GeluErfBackward, normal_cdf(v) + v * C(kOverRootTwoPi) * std::exp(C(-0.5) * v * v))

SG_BACKWARD(GeluTanhBackward, gelu_tanh_slope(v))

// At NaN the gradient of relu is dy and that of clamp 0, as in PyTorch.
struct ReluBackward {
  template <class C> __device__ C operator()(C dy, C v) const { return v <= 0 ? C(0) : dy; }
};
struct AbsBackward {
  template <class C> __device__ C operator()(C dy, C v) const { return v > 0 ? dy : v < 0 ? -dy : dy * v; }
};
struct PowBackward {
  double exponent;
  template <class C> __device__ C operator()(C dy, C v) const {
    return exponent == 0 ? C(0) : dy * C(exponent) * std::pow(v, C(exponent - 1));
  }
};
struct ClampBackward {
  double low, high;
  template <class C> __device__ C operator()(C dy, C v) const { return v >= C(low) && v <= C(high) ? dy : C(0); }
};

template <class Op> void run(const Launch& how, OutView y, View x, Op op) {
  dispatch_floats(x.dtype, [&]<class T>() { map<Op, T, T>(how, op, y, x.as<T>()); });
}
template <class Op> void run(const Launch& how, OutView dx, View dy, View saved, Op op) {
  dispatch_floats(dy.dtype, [&]<class T>() { map<Op, T, T, T>(how, op, dx, dy.as<T>(), saved.as<T>()); });
}
template <class Op> void run_integers(const Launch& how, OutView y, View x, Op op) {
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) map<Op, T, T>(how, op, y, x.as<T>());
  });
}
template <class Op> void unary(const Launch& how, OutView y, View x) { run(how, y, x, Op()); }
template <class Op> void backward(const Launch& how, OutView dx, View dy, View saved) { run(how, dx, dy, saved, Op()); }

void gelu(const Launch& how, OutView y, View x, bool tanh) {
  tanh ? unary<GeluTanh>(how, y, x) : unary<GeluErf>(how, y, x);
}
void gelu_backward(const Launch& how, OutView dx, View dy, View x, bool tanh) {
  tanh ? backward<GeluTanhBackward>(how, dx, dy, x) : backward<GeluErfBackward>(how, dx, dy, x);
}
void affine(const Launch& how, OutView y, View x, double scale, double shift) { run(how, y, x, Affine{scale, shift}); }
void integer_affine(const Launch& how, OutView y, View x, double scale, double shift) {
  run_integers(how, y, x, IntegerAffine{uint64_t(convert<int64_t>(scale)), uint64_t(convert<int64_t>(shift))});
}
void integer_neg(const Launch& how, OutView y, View x) { integer_affine(how, y, x, -1, 0); }
void integer_abs(const Launch& how, OutView y, View x) { run_integers(how, y, x, IntegerAbs()); }
void integer_clamp(const Launch& how, OutView y, View x, double low, double high) {
  run_integers(how, y, x, IntegerClamp{low, high});
}
void pow(const Launch& how, OutView y, View x, double exponent) { run(how, y, x, Pow{exponent}); }
void pow_backward(const Launch& how, OutView dx, View dy, View x, double exponent) {
  run(how, dx, dy, x, PowBackward{exponent});
}
void clamp(const Launch& how, OutView y, View x, double low, double high) { run(how, y, x, Clamp{low, high}); }
void clamp_backward(const Launch& how, OutView dx, View dy, View x, double low, double high) {
  run(how, dx, dy, x, ClampBackward{low, high});
}

const Registered registered[] = {
    add_kernel<unary<Neg>>(kernels::neg, kFloats),
    add_kernel<unary<Exp>>(kernels::exp, kFloats),
    add_kernel<unary<Log>>(kernels::log, kFloats),
    add_kernel<unary<Sqrt>>(kernels::sqrt, kFloats),
    add_kernel<unary<Tanh>>(kernels::tanh, kFloats),
    add_kernel<unary<Sigmoid>>(kernels::sigmoid, kFloats),
    add_kernel<unary<Relu>>(kernels::relu, kFloats),
    add_kernel<unary<Abs>>(kernels::abs, kFloats),
    add_kernel<affine>(kernels::affine, kFloats),
    add_kernel<gelu>(kernels::gelu, kFloats),
    add_kernel<pow>(kernels::pow, kFloats),
    add_kernel<clamp>(kernels::clamp, kFloats),
    add_kernel<integer_affine>(kernels::affine, kIntegers),
    add_kernel<integer_neg>(kernels::neg, kIntegers),
    add_kernel<integer_abs>(kernels::abs, kIntegers),
    add_kernel<integer_clamp>(kernels::clamp, kIntegers),
    add_kernel<backward<ReluBackward>>(kernels::relu_backward, kFloats),
    add_kernel<backward<TanhBackward>>(kernels::tanh_backward, kFloats),
    add_kernel<backward<SigmoidBackward>>(kernels::sigmoid_backward, kFloats),
    add_kernel<backward<SqrtBackward>>(kernels::sqrt_backward, kFloats),
    add_kernel<backward<AbsBackward>>(kernels::abs_backward, kFloats),
    add_kernel<gelu_backward>(kernels::gelu_backward, kFloats),
    add_kernel<pow_backward>(kernels::pow_backward, kFloats),
    add_kernel<clamp_backward>(kernels::clamp_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
