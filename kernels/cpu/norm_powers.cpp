// What the p-norm of gradients is summed from: |x|^p over blocks of 32, by the tree of neighbours in f64.

#include <array>
#include <cmath>

#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::kNormBlock;

double power(double value, double p) {
  double x = std::abs(value);
  if (p == 1 || std::isinf(p)) return x;
  if (p == 2) return x * x;
  return p == 3 ? x * x * x : std::pow(x, p);
}

double join(double a, double b, double p) {
  if (!std::isinf(p)) return a + b;
  return b > a || std::isnan(b) ? b : a;
}

template <class T> double block_power(const T* values, int64_t count, double p) {
  std::array<double, kNormBlock> powers{};
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (sizeof(T) == 2)
      powers[size_t(i)] = power(float(values[i]), p);
    else
      powers[size_t(i)] = power(double(values[i]), p);
  }
  for (size_t width = kNormBlock; width > 1; width /= 2)
    for (size_t i = 0; i < width / 2; ++i) powers[i] = join(powers[2 * i], powers[2 * i + 1], p);
  return powers[0];
}

void block_powers(const Launch& launch, OutView y, View x, double p) {
  SG_ASSERT(y.dtype == DType::f64 && y.beta == 0, "block_powers overwrites f64");
  int64_t n = x.numel();
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>))
      parallel_for(launch.threads, y.numel(), grain_for(kNormBlock), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          y.as<double>()[i] = block_power(x.as<T>() + i * kNormBlock, std::min(kNormBlock, n - i * kNormBlock), p);
      });
  });
}

const Each registered(kernels::block_powers, kFloats, block_powers);

}  // namespace
}  // namespace shardgrad::cpu
