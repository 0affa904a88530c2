// Arithmetic, comparisons and selection of elements; operands broadcast. Memory-bound: each operand in and y out once,
// one operation per element. In f32 that is 12 bytes per element for arithmetic, 9 for a comparison and 13 for `where`
// of equal shapes; an operand that broadcasts costs its own elements, and the rest comes from the caches.

#include <shardgrad/kernels/cuda/map.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class C> __device__ C power_of(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    uint64_t y = 1, x = uint64_t(a);
    for (auto exponent = uint64_t(b); exponent; exponent >>= 1, x *= x)
      if (exponent & 1) y *= x;
    return C(y);
  } else {
    return std::pow(a, b);
  }
}
template <class C> __device__ C remainder_of(C a, C b) {
  if constexpr (std::is_integral_v<C>) {  // signed; the least number divided by -1 overflows
    auto x = int64_t(a), divisor = int64_t(b), rest = divisor == -1 ? 0 : x % divisor;
    return C(rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest);
  } else {
    C rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
}
/// A quotient of floats that rounding has moved just below a whole number is that.
template <class C> __device__ C quotient_of(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    auto x = int64_t(a), divisor = int64_t(b);
    return C(divisor == -1 ? -uint64_t(x) : uint64_t(x / divisor - (x % divisor != 0 && (x < 0) != (divisor < 0))));
  } else if constexpr (std::is_same_v<C, float>) {
    return C(quotient_of(double(a), double(b)));
  } else {
    if (b == 0) return a / b;
    C rest = std::fmod(a, b), y = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) y -= 1;
    if (y == 0) return std::copysign(C(0), a / b);
    C whole = std::floor(y);
    return y - whole > C(0.5) ? whole + 1 : whole;
  }
}

#define SG_OP(name, result)                                                       \
  struct name##_op {                                                              \
    template <class C> __device__ C operator()(C a, C b) const { return result; } \
  };
SG_BINARIES(SG_OP)

/// The element as a number that compares as it should: integers keep their sign.
template <class T> __device__ auto number(T x) {
  if constexpr (std::is_class_v<T>)
    return convert<float>(x);
  else
    return x;
}

#define SG_NAME(name, ...) name,
enum class Relation { SG_RELATIONS(SG_NAME) };

/// One kernel for all relations: it waits for memory, and the choice is the same for every thread.
struct Compare {
  static constexpr bool raw = true;
  Relation relation;
  template <class T> __device__ uint8_t operator()(T x, T y) const {
    auto a = number(x), b = number(y);
    switch (relation) {
#define SG_CASE(name, op) \
  case Relation::name:    \
    return a op b;
      SG_RELATIONS(SG_CASE)
    }
    return 0;
  }
};

struct Where {
  static constexpr bool raw = true;
  template <class T> __device__ T operator()(uint8_t condition, T a, T b) const { return condition ? a : b; }
};

template <class Op, class T> void arithmetic(const Launch& how, const OutView& y, const View& a, const View& b) {
  broadcast<Op, T, T, T>(how, Op(), y, {y.shape, {&a.shape, &b.shape}}, a.as<T>(), b.as<T>());
}

template <class Op> void floats(const Launch& how, OutView y, View a, View b) {
  dispatch_floats(a.dtype, [&]<class T>() { arithmetic<Op, T>(how, y, a, b); });
}
template <class Op> void integers(const Launch& how, OutView y, View a, View b) {
  dispatch(a.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) arithmetic<Op, T>(how, y, a, b);
  });
}
template <Relation relation> void compare(const Launch& how, OutView y, View a, View b) {
  dispatch(a.dtype, [&]<class T>() {
    broadcast<Compare, uint8_t, T, T>(how, {relation}, y, {y.shape, {&a.shape, &b.shape}}, a.as<T>(), b.as<T>());
  });
}
void where(const Launch& how, OutView y, View condition, View a, View b) {
  dispatch(a.dtype, [&]<class T>() {
    broadcast<Where, T, uint8_t, T, T>(how, Where(), y, {y.shape, {&condition.shape, &a.shape, &b.shape}},
                                       condition.as<uint8_t>(), a.as<T>(), b.as<T>());
  });
}

#define SG_ADD_BINARY(name, ...) add_kernel<floats<name##_op>>(kernels::name, kFloats),
#define SG_ADD_RELATION(name, ...) add_kernel<compare<Relation::name>>(kernels::name, kAll),
const Registered registered[] = {add_kernel<integers<add_op>>(kernels::add, kIntegers),
                                 add_kernel<integers<sub_op>>(kernels::sub, kIntegers),
                                 add_kernel<integers<mul_op>>(kernels::mul, kIntegers),
                                 add_kernel<integers<remainder_op>>(kernels::remainder, kIntegers),
                                 add_kernel<integers<floor_divide_op>>(kernels::floor_divide, kIntegers),
                                 add_kernel<integers<power_op>>(kernels::power, kIntegers),
                                 add_kernel<where>(kernels::where, kAll),
                                 SG_BINARIES(SG_ADD_BINARY) SG_RELATIONS(SG_ADD_RELATION)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
