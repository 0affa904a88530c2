// What the p-norm of gradients is summed from: |x|^p over blocks of 32 and over the blocks of a subtree, by the tree of
// neighbours in f64.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::kNormBlock;

// Calls f with what is summed of a value.
template <class F> void with_power(double p, const F& f) {
  if (p == 1) return f([](double x) { return std::abs(x); });
  if (p == 2) return f([](double x) { return x * x; });
  if (p == 3) return f([](double x) { return std::abs(x) * x * x; });
  f([p](double x) { return std::pow(std::abs(x), p); });
}

template <class T> double wide(T value) {
  if constexpr (sizeof(T) == 2)
    return float(value);
  else
    return double(value);
}

// The largest |x|. Without their sign, the bits of floating numbers are in the order of the numbers, and those of what
// is none are above infinity's; integers are compared many at a time.
template <class T> double largest(const T* values, int64_t count) {
  using Bits = std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
  constexpr Bits kNoSign = std::numeric_limits<Bits>::max();
  Bits most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, Bits(std::bit_cast<Bits>(values[i]) & kNoSign));
  return wide(std::bit_cast<T>(most));
}

template <size_t count> double tree(const std::array<double, count>& values) {
  if constexpr (count == 1) {
    return values[0];
  } else {
    std::array<double, count / 2> halves;
    for (size_t i = 0; i < count / 2; ++i) halves[i] = values[2 * i] + values[2 * i + 1];
    return tree(halves);
  }
}

template <class T, class Power> double block(const T* values, int64_t count, const Power& power) {
  std::array<double, kNormBlock> powers;
  if (count >= kNormBlock) {
    for (size_t i = 0; i < size_t(kNormBlock); ++i) powers[i] = power(wide(values[i]));
  } else {
    powers.fill(0);
    for (size_t i = 0; i < size_t(count); ++i) powers[i] = power(wide(values[i]));
  }
  return tree(powers);
}

// The tree over blocks. `open` holds one value for each 1 in the binary number of the blocks so far: that of a whole
// subtree, the largest first; a block closes as many as the number has 1s at its end.
template <class T, class Power> double node(const T* values, int64_t count, const Power& power) {
  std::array<double, 64> open;
  size_t size = 0;
  for (int64_t i = 0; i * kNormBlock < count; ++i) {
    double value = block(values + i * kNormBlock, count - i * kNormBlock, power);
    for (int64_t before = i; before % 2 == 1; before /= 2) value = open[--size] + value;
    open[size++] = value;
  }
  double value = open[--size];
  while (size > 0) value = open[--size] + value;
  return value;
}

void powers_of(const Launch& launch, const kernels::NormRange& range, double p) {
  const OutView& y = range.y;
  const View& x = range.x;
  const int64_t width = range.width;
  SG_ASSERT(y.dtype == DType::f64 && y.beta == 0, "norm_powers overwrites f64");
  int64_t n = x.numel();
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      auto each = [&](const auto& joined) {
        parallel_for(launch.threads, y.numel(), grain_for(width), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            y.as<double>()[i] = joined(x.as<T>() + i * width, std::min(width, n - i * width));
        });
      };
      if (std::isinf(p)) return each(largest<T>);
      with_power(p, [&](const auto& power) {
        each([&](const T* values, int64_t count) { return node(values, count, power); });
      });
    }
  });
}

void norm_powers(const Launch& launch, kernels::NormRanges ranges, double p) {
  for (const kernels::NormRange& range : *ranges) powers_of(launch, range, p);
}

const Each registered(kernels::norm_powers, kFloats, norm_powers);

}  // namespace
}  // namespace shardgrad::cpu
