// Comparisons and where for every dtype; arithmetic of integers, which wraps.

#include <bit>
#include <functional>

#include <shardgrad/kernels/cpu/broadcast.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

// y[r, c] = fn(a[r, c], b[r, c]) over a grid, which is a copy: bytes that are written might be those of another's, and
// nothing would be kept in registers. The common strides have loops of their own.
template <class R, class T, class Fn> void map_grid(R* y, const T* a, const T* b, Grid grid, const Fn& fn) {
  for (int64_t r = 0; r < grid.rows; ++r, y += grid.cols, a += grid.row[0], b += grid.row[1]) {
    if (grid.accumulate) {
      for (int64_t c = 0; c < grid.cols; ++c) put(y[c], fn(a[grid.fixed[0] ? 0 : c], b[grid.fixed[1] ? 0 : c]), true);
    } else if (grid.fixed[1]) {
      T right = *b;
      for (int64_t c = 0; c < grid.cols; ++c) y[c] = fn(a[grid.fixed[0] ? 0 : c], right);
    } else if (grid.fixed[0]) {
      T left = *a;
      for (int64_t c = 0; c < grid.cols; ++c) y[c] = fn(left, b[c]);
    } else {
      for (int64_t c = 0; c < grid.cols; ++c) y[c] = fn(a[c], b[c]);
    }
  }
}

using GridLoop = void (*)(void* y, const void* a, const void* b, const Grid&);

void run(const Launch& launch, OutView y, View a, View b, GridLoop loop) {
  if (y.numel() == 0) return;
  size_t size = size_of(a.dtype), out_size = size_of(y.dtype);
  Broadcast<2> shape(y.shape, {&a.shape, &b.shape});
  for_grids(launch.threads, shape, y.beta != 0, [&](const Grid& grid, int64_t at, std::array<int64_t, 2> from) {
    loop(y.as<char>() + at * out_size, a.as<char>() + from[0] * size, b.as<char>() + from[1] * size, grid);
  });
}

template <class Op> void compare(const Launch& launch, OutView y, View a, View b) {
  run(launch, y, a, b, dispatch(a.dtype, []<class T>() -> GridLoop {
        return [](void* y, const void* a, const void* b, const Grid& grid) {
          using C = std::conditional_t<std::is_class_v<T>, float, T>;
          map_grid(static_cast<uint8_t*>(y), static_cast<const T*>(a), static_cast<const T*>(b), grid,
                   [](T x, T z) { return uint8_t(Op()(C(x), C(z))); });
        };
      }));
}

#define SG_OP(name, op)                                                   \
  struct name##_op {                                                      \
    template <class C> bool operator()(C a, C b) const { return a op b; } \
  };
SG_RELATIONS(SG_OP)

/// Of the divisor's sign. It is not 0; -1 has a case of its own, as the least number divided by it overflows.
struct IntegerRemainder {
  uint64_t operator()(uint64_t x, uint64_t divisor) const {
    auto a = int64_t(x), b = int64_t(divisor);
    int64_t rest = b == -1 ? 0 : a % b;
    return uint64_t(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
};

struct IntegerQuotient {
  uint64_t operator()(uint64_t x, uint64_t divisor) const {
    auto a = int64_t(x), b = int64_t(divisor);
    return b == -1 ? -x : uint64_t(a / b - (a % b != 0 && (a < 0) != (b < 0)));
  }
};

struct IntegerPower {
  uint64_t operator()(uint64_t x, uint64_t exponent) const {
    uint64_t y = 1;
    for (; exponent; exponent >>= 1, x *= x)
      if (exponent & 1) y *= x;
    return y;
  }
};

template <class Op, class T> void integer_binary(const Launch& launch, OutView y, View a, View b) {
  run(launch, y, a, b, [](void* y, const void* a, const void* b, const Grid& grid) {
    map_grid(static_cast<T*>(y), static_cast<const T*>(a), static_cast<const T*>(b), grid,
             [](T x, T z) { return T(Op()(uint64_t(x), uint64_t(z))); });
  });
}

// y[i] = fn(x[i]), computed modulo 2^64.
template <class Fn> void integer_unary(const Launch& launch, OutView y, View x, const Fn& fn) {
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) put(y.as<T>()[i], T(fn(x.as<T>()[i])), y.beta != 0);
      });
  });
}

void affine(const Launch& launch, OutView y, View x, double scale, double shift) {
  uint64_t a = uint64_t(convert<int64_t>(scale)), b = uint64_t(convert<int64_t>(shift));
  integer_unary(launch, y, x, [=](auto v) { return a * uint64_t(v) + b; });
}
void neg(const Launch& launch, OutView y, View x) {
  integer_unary(launch, y, x, [](auto v) { return -uint64_t(v); });
}
void abs(const Launch& launch, OutView y, View x) {
  integer_unary(launch, y, x, [](auto v) { return v < 0 ? -uint64_t(v) : uint64_t(v); });
}
void clamp(const Launch& launch, OutView y, View x, double low, double high) {
  integer_unary(launch, y, x, [=]<class T>(T v) { return std::min(std::max(v, convert<T>(low)), convert<T>(high)); });
}

// Both are read, and as bits, so that no branch is guessed.
template <bool a_fixed, bool b_fixed, class T>
void where_row(T* y, const uint8_t* condition, const T* a, const T* b, int64_t n) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  for (int64_t c = 0; c < n; ++c) {
    T left = a[a_fixed ? 0 : c], right = b[b_fixed ? 0 : c];
    if constexpr (sizeof(T) == 1) {
      y[c] = condition[c] ? left : right;
    } else {
      Bits chosen = condition[c] ? std::bit_cast<Bits>(left) : std::bit_cast<Bits>(right);
      y[c] = std::bit_cast<T>(chosen);
    }
  }
}

template <class T> void where_grid(T* y, const uint8_t* condition, const T* a, const T* b, Grid grid) {
  int64_t step[3] = {!grid.fixed[0], !grid.fixed[1], !grid.fixed[2]};
  for (int64_t r = 0; r < grid.rows; ++r) {
    if (grid.fixed[0] || grid.accumulate)
      for (int64_t c = 0; c < grid.cols; ++c)
        put(y[c], condition[c * step[0]] ? a[c * step[1]] : b[c * step[2]], grid.accumulate);
    else if (grid.fixed[1])
      grid.fixed[2] ? where_row<true, true>(y, condition, a, b, grid.cols)
                    : where_row<true, false>(y, condition, a, b, grid.cols);
    else
      grid.fixed[2] ? where_row<false, true>(y, condition, a, b, grid.cols)
                    : where_row<false, false>(y, condition, a, b, grid.cols);
    y += grid.cols, condition += grid.row[0], a += grid.row[1], b += grid.row[2];
  }
}

void where(const Launch& launch, OutView y, View condition, View a, View b) {
  if (y.numel() == 0) return;
  Broadcast<3> shape(y.shape, {&condition.shape, &a.shape, &b.shape});
  dispatch(a.dtype, [&]<class T>() {
    for_grids(launch.threads, shape, y.beta != 0, [&](const Grid& grid, int64_t at, std::array<int64_t, 3> from) {
      where_grid(y.as<T>() + at, condition.as<uint8_t>() + from[0], a.as<T>() + from[1], b.as<T>() + from[2], grid);
    });
  });
}

#define SG_RELATION(name, ...) {kernels::name, kAll, compare<name##_op>},
const Each registered[] = {{kernels::where, kAll, where},      {kernels::affine, kIntegers, affine},
                           {kernels::neg, kIntegers, neg},     {kernels::abs, kIntegers, abs},
                           {kernels::clamp, kIntegers, clamp}, SG_RELATIONS(SG_RELATION)};

template <class Op> void add_integers(decltype(kernels::add)& slot) {
  slot.add(DeviceKind::cpu, DType::i32, integer_binary<Op, int32_t>);
  slot.add(DeviceKind::cpu, DType::i64, integer_binary<Op, int64_t>);
  slot.add(DeviceKind::cpu, DType::u8, integer_binary<Op, uint8_t>);
}
const bool registered_integers = [] {
  add_integers<std::plus<>>(kernels::add);
  add_integers<std::minus<>>(kernels::sub);
  add_integers<std::multiplies<>>(kernels::mul);
  add_integers<IntegerRemainder>(kernels::remainder);
  add_integers<IntegerQuotient>(kernels::floor_divide);
  add_integers<IntegerPower>(kernels::power);
  return true;
}();

}  // namespace
}  // namespace shardgrad::cpu
