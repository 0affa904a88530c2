// Arithmetic, comparisons and selection of elements; operands broadcast. Memory-bound: each operand in and y out once,
// one operation per element. In f32 that is 12 bytes per element for arithmetic, 9 for a comparison and 13 for `where`
// of equal shapes; an operand that broadcasts costs its own elements, and the rest comes from the caches.

#include <shardgrad/kernels/cuda/map.h>

namespace shardgrad::SG_DEVICE {
namespace {

#define SG_BINARY(Name, expression)                                                   \
  struct Name {                                                                       \
    template <class C> __device__ C operator()(C a, C b) const { return expression; } \
  };
SG_BINARY(Add, a + b)
SG_BINARY(Sub, a - b)
SG_BINARY(Mul, a* b)
SG_BINARY(Div, a / b)

/// The element as a number that compares as it should: integers keep their sign.
template <class T> __device__ auto number(T x) {
  if constexpr (std::is_class_v<T>)
    return convert<float>(x);
  else
    return x;
}

enum class Relation { equal, not_equal, less, less_equal, greater, greater_equal };

/// One kernel for all relations: it waits for memory, and the choice is the same for every thread.
struct Compare {
  static constexpr bool raw = true;
  Relation relation;
  template <class T> __device__ uint8_t operator()(T x, T y) const {
    auto a = number(x), b = number(y);
    switch (relation) {
      case Relation::equal:
        return a == b;
      case Relation::not_equal:
        return a != b;
      case Relation::less:
        return a < b;
      case Relation::less_equal:
        return a <= b;
      case Relation::greater:
        return a > b;
      default:
        return a >= b;
    }
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

const Registered registered[] = {
    add_kernel<floats<Add>>(kernels::add, kFloats),
    add_kernel<floats<Sub>>(kernels::sub, kFloats),
    add_kernel<floats<Mul>>(kernels::mul, kFloats),
    add_kernel<floats<Div>>(kernels::div, kFloats),
    add_kernel<integers<Add>>(kernels::add, kIntegers),
    add_kernel<integers<Sub>>(kernels::sub, kIntegers),
    add_kernel<integers<Mul>>(kernels::mul, kIntegers),
    add_kernel<compare<Relation::equal>>(kernels::eq, kAll),
    add_kernel<compare<Relation::not_equal>>(kernels::ne, kAll),
    add_kernel<compare<Relation::less>>(kernels::lt, kAll),
    add_kernel<compare<Relation::less_equal>>(kernels::le, kAll),
    add_kernel<compare<Relation::greater>>(kernels::gt, kAll),
    add_kernel<compare<Relation::greater_equal>>(kernels::ge, kAll),
    add_kernel<where>(kernels::where, kAll),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
