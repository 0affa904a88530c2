// Functions of one element and their backward. Memory-bound: each moves x (and the saved value in backward) in and y
// out once; a few operations per element, about 20 with an exponential.

#include <shardgrad/kernels/cuda/gelu.h>
#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/silu.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr double kRootHalf = 0.70710678118654752, kOverRootTwoPi = 0.39894228040143268;

template <class C> __device__ C sigmoid_of(C x) { return 1 / (1 + std::exp(-x)); }
template <class C> __device__ C normal_cdf(C x) { return C(0.5) * std::erfc(-x * C(kRootHalf)); }

// Each is a struct with its row's name in kernels/elementwise.h; a kernel's parameters are its members, in their order.
#define SG_UNARY(name, expression)                                               \
  struct name##_op {                                                             \
    template <class C> __device__ C operator()(C x) const { return expression; } \
  };
SG_UNARY(neg, -x)
SG_UNARY(exp, std::exp(x))
SG_UNARY(log, std::log(x))
SG_UNARY(sqrt, std::sqrt(x))
SG_UNARY(tanh, std::tanh(x))
SG_UNARY(sigmoid, sigmoid_of(x))
SG_UNARY(relu, x < 0 ? C(0) : x)
SG_UNARY(abs, std::abs(x))
SG_UNARY(gelu_tanh, gelu_tanh(x))
SG_UNARY(gelu, x* normal_cdf(x))
SG_UNARY(silu, silu(x))
SG_UNARY(sin, std::sin(x))
SG_UNARY(cos, std::cos(x))
SG_UNARY(rsqrt, 1 / std::sqrt(x))
SG_UNARY(log1p, std::log1p(x))
SG_UNARY(expm1, std::expm1(x))
SG_UNARY(erf, std::erf(x))
SG_UNARY(softplus, (x < 0 ? C(0) : x) + std::log1p(std::exp(-std::abs(x))))
SG_UNARY(floor, std::floor(x))
SG_UNARY(ceil, std::ceil(x))
SG_UNARY(trunc, std::trunc(x))
SG_UNARY(round, std::nearbyint(x))
SG_UNARY(sign, C(x > 0) - C(x < 0))

struct affine_op {
  double scale, shift;
  template <class C> __device__ C operator()(C x) const { return C(scale) * x + C(shift); }
};
struct pow_op {
  double exponent;
  template <class C> __device__ C operator()(C x) const { return std::pow(x, C(exponent)); }
};
struct clamp_op {
  double low, high;
  template <class C> __device__ C operator()(C x) const { return x < C(low) ? C(low) : x > C(high) ? C(high) : x; }
};

struct leaky_relu_op {
  double slope;
  template <class C> __device__ C operator()(C x) const { return x > 0 ? x : C(slope) * x; }
};
struct elu_op {
  double alpha;
  template <class C> __device__ C operator()(C x) const { return x > 0 ? x : C(alpha) * std::expm1(x); }
};
struct huber_op {
  double delta;
  template <class C> __device__ C operator()(C x) const {
    C size = std::abs(x);
    return size <= C(delta) ? x * x * C(0.5) : C(delta) * (size - C(delta) * C(0.5));
  }
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

#define SG_BACKWARD(name, slope)                                                         \
  struct name##_op {                                                                     \
    template <class C> __device__ C operator()(C dy, C v) const { return dy * (slope); } \
  };
SG_BACKWARD(tanh_backward, 1 - v * v)
SG_BACKWARD(sigmoid_backward, v*(1 - v))
SG_BACKWARD(sqrt_backward, C(0.5) / v)
SG_BACKWARD(gelu_backward, normal_cdf(v) + v * C(kOverRootTwoPi) * std::exp(C(-0.5) * v * v))

SG_BACKWARD(gelu_tanh_backward, gelu_tanh_slope(v))
SG_BACKWARD(silu_backward, silu_slope(v))

// At NaN the gradient of relu is dy and that of clamp 0, as in PyTorch.
struct relu_backward_op {
  template <class C> __device__ C operator()(C dy, C v) const { return v <= 0 ? C(0) : dy; }
};
struct abs_backward_op {
  template <class C> __device__ C operator()(C dy, C v) const { return v > 0 ? dy : v < 0 ? -dy : dy * v; }
};
struct pow_backward_op {
  double exponent;
  template <class C> __device__ C operator()(C dy, C v) const {
    return exponent == 0 ? C(0) : dy * C(exponent) * std::pow(v, C(exponent - 1));
  }
};
struct clamp_backward_op {
  double low, high;
  template <class C> __device__ C operator()(C dy, C v) const { return v >= C(low) && v <= C(high) ? dy : C(0); }
};

struct leaky_relu_backward_op {
  double slope;
  template <class C> __device__ C operator()(C dy, C v) const { return v > 0 ? dy : C(slope) * dy; }
};
struct elu_backward_op {
  double alpha;
  template <class C> __device__ C operator()(C dy, C v) const { return v > 0 ? dy : dy * C(alpha) * std::exp(v); }
};

struct huber_backward_op {
  double delta;
  template <class C> __device__ C operator()(C dy, C v) const {
    return dy * (v > C(delta) ? C(delta) : v < -C(delta) ? -C(delta) : v);
  }
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
template <class Op, class... N> void unary(const Launch& how, OutView y, View x, N... numbers) {
  run(how, y, x, Op{numbers...});
}
template <class Op, class... N> void backward(const Launch& how, OutView dx, View dy, View v, N... numbers) {
  run(how, dx, dy, v, Op{numbers...});
}
template <class Op, class... N> Registered add_unary(Slot<OutView, View, N...>& slot) {
  return add_kernel<unary<Op, N...>>(slot, kFloats);
}
template <class Op, class... N> Registered add_backward(Slot<OutView, View, View, N...>& slot) {
  return add_kernel<backward<Op, N...>>(slot, kFloats);
}

void integer_affine(const Launch& how, OutView y, View x, double scale, double shift) {
  run_integers(how, y, x, IntegerAffine{uint64_t(convert<int64_t>(scale)), uint64_t(convert<int64_t>(shift))});
}
void integer_neg(const Launch& how, OutView y, View x) { integer_affine(how, y, x, -1, 0); }
void integer_abs(const Launch& how, OutView y, View x) { run_integers(how, y, x, IntegerAbs()); }
void integer_clamp(const Launch& how, OutView y, View x, double low, double high) {
  run_integers(how, y, x, IntegerClamp{low, high});
}

#define SG_ADD_UNARY(name, ...) add_unary<name##_op>(kernels::name),
#define SG_ADD_BACKWARD(name, ...) add_backward<name##_op>(kernels::name),
const Registered registered[] = {
    add_kernel<integer_affine>(kernels::affine, kIntegers), add_kernel<integer_neg>(kernels::neg, kIntegers),
    add_kernel<integer_abs>(kernels::abs, kIntegers), add_kernel<integer_clamp>(kernels::clamp, kIntegers),
    SG_UNARIES(SG_ADD_UNARY, SG_ADD_UNARY, SG_ADD_BACKWARD)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
