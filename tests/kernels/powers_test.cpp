// Powers and remainders on the edges of what is computed on vectors: every pair of these numbers, in any lane.

#include <cmath>

#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

const std::vector<double> kNumbers{0.0,       -0.0, 1,     -1,       2,         -2,    3,         -3,
                                   0.5,       -0.5, 2.5,   -2.5,     1e-3,      -1e-3, 1.0000001, 0.9,
                                   7,         -7,   1e30,  -1e30,    1e-30,     1e10,  -1e10,     16777215.,
                                   16777217., 3e38, 1e-37, INFINITY, -INFINITY, NAN,   0x1p28,    0x1p29 + 1024,
                                   127,       -126, 149};

// y = slot(a, b) over all pairs, the first ones of a row by way of whole vectors, the last not.
Buffer of_all_pairs(Slot<OutView, View, View>& slot) {
  int64_t n = std::ssize(kNumbers);
  Buffer y({n, n}, DType::f32), a = Buffer::of({n, 1}, DType::f32, kNumbers), b = Buffer::of({n}, DType::f32, kNumbers);
  kernel_of(slot, DType::f32)(1, y.poison().out(), a.in(), b.in());
  return y;
}

template <class Expected> void expect_pairs(Slot<OutView, View, View>& slot, double roundings, Expected expected) {
  Context context;
  Buffer y = of_all_pairs(slot);
  int64_t n = std::ssize(kNumbers);
  for (int64_t i = 0; i < n * n; ++i) {
    auto a = float(kNumbers[size_t(i / n)]), b = float(kNumbers[size_t(i % n)]), want = float(expected(a, b));
    double got = y.get(i);
    if (std::abs(want) < 0x1p-126f) want = std::copysign(0.0f, want);  // as the context has subnormals
    if (std::abs(got) < 0x1p-126) got = std::copysign(0.0, got);
    bool same = std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want);
    EXPECT_TRUE(same || (want != 0 && std::abs(got - want) <= roundings * 0x1p-23 * std::abs(want)))
        << slot.name() << " of " << a << " and " << b << " is " << got << ", expected " << want;
  }
}

TEST(CpuPowers, AreThoseOfTheCLibraryForEveryPair) {
  expect_pairs(kernels::power, 1, [](double a, double b) { return std::pow(a, b); });
}

TEST(CpuPowers, RemaindersAreExactForEveryPair) {
  expect_pairs(kernels::remainder, 0, [](float a, float b) {
    float rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  });
}

// As PyTorch's floor_divide, in double.
TEST(CpuPowers, QuotientsAreRoundedDownForEveryPair) {
  expect_pairs(kernels::floor_divide, 1, [](double a, double b) {
    if (b == 0) return a / b;
    double rest = std::fmod(a, b), y = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) y -= 1;
    return y == 0 ? std::copysign(0.0, a / b) : std::floor(y);
  });
}

TEST(CpuPowers, AreWithinOneRoundingOverTheirWholeRange) {
  Context context;
  Buffer a({40000}, DType::f32), b({40000}, DType::f32), y({40000}, DType::f32);
  for (int64_t i = 0; i < a.numel(); ++i) {
    a.set(i, std::exp2((i % 200) * 1.27 - 126));
    b.set(i, ((i / 200) - 100) * 0.237);
  }
  kernel_of(kernels::power, DType::f32)(1, y.poison().out(), a.in(), b.in());
  for (int64_t i = 0; i < a.numel(); ++i) {
    double exact = std::pow(a.get(i), b.get(i));
    if (exact < 0x1p-126 || exact > 0x1p127) continue;
    EXPECT_LE(std::abs(y.get(i) - exact), 0x1.1p-24 * exact) << a.get(i) << " to " << b.get(i);
  }
}

}  // namespace
}  // namespace shardgrad::test
