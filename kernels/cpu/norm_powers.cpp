// What the p-norm of gradients is summed from: |x|^p over blocks of 32 and over the blocks of a subtree, by the tree of
// neighbours in f64.

#include <array>
#include <cmath>

#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::kNormBlock;

struct Sum {
  double operator()(double a, double b) const { return a + b; }
};
struct Max {
  double operator()(double a, double b) const { return b > a || std::isnan(b) ? b : a; }
};

// Calls f with what is joined of a value, and how.
template <class F> void with_power(double p, const F& f) {
  if (std::isinf(p)) return f([](double x) { return std::abs(x); }, Max());
  if (p == 1) return f([](double x) { return std::abs(x); }, Sum());
  if (p == 2) return f([](double x) { return x * x; }, Sum());
  if (p == 3) return f([](double x) { return std::abs(x) * x * x; }, Sum());
  f([p](double x) { return std::pow(std::abs(x), p); }, Sum());
}

template <class T> double wide(T value) {
  if constexpr (sizeof(T) == 2)
    return float(value);
  else
    return double(value);
}

template <size_t count, class Join> double tree(const std::array<double, count>& values, const Join& join) {
  if constexpr (count == 1) {
    return values[0];
  } else {
    std::array<double, count / 2> halves;
    for (size_t i = 0; i < count / 2; ++i) halves[i] = join(values[2 * i], values[2 * i + 1]);
    return tree(halves, join);
  }
}

template <class T, class Power, class Join>
double block(const T* values, int64_t count, const Power& power, const Join& join) {
  std::array<double, kNormBlock> powers;
  if (count >= kNormBlock) {
    for (size_t i = 0; i < size_t(kNormBlock); ++i) powers[i] = power(wide(values[i]));
  } else {
    powers.fill(0);
    for (size_t i = 0; i < size_t(count); ++i) powers[i] = power(wide(values[i]));
  }
  return tree(powers, join);
}

// The tree over blocks. `open` holds one value for each 1 in the binary number of the blocks so far: that of a whole
// subtree, the largest first; a block closes as many as the number has 1s at its end.
template <class T, class Power, class Join>
double node(const T* values, int64_t count, const Power& power, const Join& join) {
  std::array<double, 64> open;
  size_t size = 0;
  for (int64_t i = 0; i * kNormBlock < count; ++i) {
    double value = block(values + i * kNormBlock, count - i * kNormBlock, power, join);
    for (int64_t before = i; before % 2 == 1; before /= 2) value = join(open[--size], value);
    open[size++] = value;
  }
  double value = open[--size];
  while (size > 0) value = join(open[--size], value);
  return value;
}

void norm_powers(const Launch& launch, OutView y, View x, double p, int64_t width) {
  SG_ASSERT(y.dtype == DType::f64 && y.beta == 0, "norm_powers overwrites f64");
  int64_t n = x.numel();
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>))
      with_power(p, [&](const auto& power, const auto& join) {
        parallel_for(launch.threads, y.numel(), grain_for(width), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            y.as<double>()[i] = node(x.as<T>() + i * width, std::min(width, n - i * width), power, join);
        });
      });
  });
}

const Each registered(kernels::norm_powers, kFloats, norm_powers);

}  // namespace
}  // namespace shardgrad::cpu
