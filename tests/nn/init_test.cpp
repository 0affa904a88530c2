#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/nn/init.h>

namespace shardgrad {
namespace {

using nn::Init;
namespace init = nn::init;

std::vector<double> draw(const Init& how, const Shape& shape, const char* name = "w") {
  Tensor whole = empty(shape, DType::f64);
  how.fill(whole, 0, shape, name);
  return whole.to_vector<double>();
}

struct Moments {
  double mean = 0, deviation = 0, low = 1e300, high = -1e300;
  explicit Moments(const std::vector<double>& values) {
    for (double v : values) mean += v, low = std::min(low, v), high = std::max(high, v);
    mean /= double(values.size());
    for (double v : values) deviation += (v - mean) * (v - mean);
    deviation = std::sqrt(deviation / double(values.size()));
  }
};

TEST(Init, WeightsAreAFunctionOfSeedNameAndElementThatDoesNotChange) {
  Context context({.seed = 5});
  std::vector<double> numbers = draw(init::uniform(0, 1), {9}, "layers.0.weight");
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(numbers[i], unit_float(philox(5, stream_of("layers.0.weight"), i / 4)[i % 4]));
  EXPECT_NE(rand({9}, "layers.0.weight", DType::f32).to(DType::f64).to_vector<double>(), numbers)
      << "numbers that the user asks for under the same name are others";
}

// Bounds and deviations are PyTorch's definitions; with 40,000 numbers a sample mean is off by less than 4 % of the
// deviation but once in 10^15.
const Shape kShape{200, 200};

void expect_uniform(const Init& how, double bound) {
  Moments m(draw(how, kShape));
  EXPECT_NEAR(m.mean, 0, 0.04 * bound);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3), 0.02 * bound);
  EXPECT_GE(m.low, -bound);
  EXPECT_LT(m.high, bound);
  EXPECT_LT(m.low, -0.999 * bound);
  EXPECT_GT(m.high, 0.999 * bound);
}

void expect_normal(const Init& how, double deviation) {
  Moments m(draw(how, kShape));
  EXPECT_NEAR(m.mean, 0, 0.04 * deviation);
  EXPECT_NEAR(m.deviation, deviation, 0.02 * deviation);
  EXPECT_GT(m.high, 3 * deviation);
}

TEST(Init, SpreadsAreThoseOfPyTorch) {
  Context context;
  expect_uniform(init::uniform(-2, 2), 2);
  expect_normal(init::normal(0, 3), 3);
  expect_uniform(init::kaiming_uniform(std::sqrt(5.0)), 1 / std::sqrt(200));
  expect_uniform(init::kaiming_uniform(), std::sqrt(6.0 / 200));
  expect_normal(init::kaiming_normal(), std::sqrt(2.0 / 200));
  expect_uniform(init::xavier_uniform(2), 2 * std::sqrt(6.0 / 400));
  expect_normal(init::xavier_normal(), std::sqrt(2.0 / 400));
}

TEST(Init, FansAreCountedFromAnOutInWeight) {
  Context context;
  // (out, in, receptive field) = (4, 100, 9): fan_in 900, fan_out 36.
  EXPECT_NEAR(Moments(draw(init::kaiming_normal(), {4, 100, 3, 3})).deviation, std::sqrt(2.0 / 900), 2e-3);
  EXPECT_NEAR(Moments(draw(init::kaiming_normal(0, Init::Fan::out), {4, 100, 3, 3})).deviation, std::sqrt(2.0 / 36),
              1e-2);
  for (const Init& xavier : {init::xavier_normal(), init::xavier_uniform()})
    EXPECT_NEAR(Moments(draw(xavier, {4, 100, 3, 3})).deviation, std::sqrt(2.0 / 936), 2e-3);
}

TEST(Init, ANormalCutToBoundsHasItsMoments) {
  Context context;
  Moments m(draw(init::trunc_normal(1, 2, -1, 3), kShape));  // one deviation to each side
  EXPECT_GE(m.low, -1);
  EXPECT_LE(m.high, 3);
  EXPECT_NEAR(m.mean, 1, 0.04);
  EXPECT_NEAR(m.deviation, 2 * 0.539560, 0.02);  // sqrt(1 - 2 φ(1) / (2 Φ(1) - 1))
}

TEST(Init, ANormalCutFarFromItsMeanIsTheSameOnBothSides) {
  Context context;
  std::vector<double> above = draw(init::trunc_normal(0, 1, 9, 10), {64}),
                      below = draw(init::trunc_normal(0, 1, -10, -9), {64});
  for (size_t i = 0; i < above.size(); ++i) EXPECT_EQ(above[i], -below[i]);
  EXPECT_NE(above[0], above[1]);
}

TEST(Init, ConstantsAreConstant) {
  Context context;
  EXPECT_EQ(draw(init::constant(2.5), {3}), std::vector<double>(3, 2.5));
  EXPECT_EQ(draw(init::zeros(), {3}), std::vector<double>(3, 0));
  EXPECT_EQ(draw(init::ones(), {3}), std::vector<double>(3, 1));
}

void expect_orthonormal(const Shape& shape, bool rows) {
  std::vector<double> w = draw(init::orthogonal(2), shape);
  int64_t count = rows ? shape[0] : shape[1], length = rows ? shape[1] : shape[0];
  auto at = [&](int64_t vector, int64_t i) { return w[size_t(rows ? vector * shape[1] + i : i * shape[1] + vector)]; };
  for (int64_t a = 0; a < count; ++a)
    for (int64_t b = 0; b < count; ++b) {
      double dot = 0;
      for (int64_t i = 0; i < length; ++i) dot += at(a, i) * at(b, i);
      EXPECT_NEAR(dot, a == b ? 4 : 0, 1e-12);
    }
}

TEST(Init, OrthogonalRowsOrColumnsWhicheverAreFewer) {
  Context context;
  expect_orthonormal({5, 9}, true);
  expect_orthonormal({9, 5}, false);
  expect_orthonormal({6, 6}, true);
  expect_orthonormal({40, 70}, true);  // in blocks
}

TEST(Init, AnyRangeEqualsTheSamePartOfTheWhole) {
  Context context;
  const Shape shape{7, 11};
  for (const Init& how : {init::uniform(), init::normal(), init::trunc_normal(), init::orthogonal(), init::ones(),
                          init::kaiming_uniform(), init::xavier_normal()}) {
    Tensor whole = empty(shape);
    how.fill(whole, 0, shape, "layer.weight");
    std::vector<float> all = whole.to_vector<float>();
    for (int64_t begin = 0; begin <= shape.numel(); ++begin)
      for (int64_t length : {0, 1, 3, 17}) {
        if (begin + length > shape.numel()) continue;
        Tensor part = empty({length});
        how.fill(part, begin, shape, "layer.weight");
        EXPECT_EQ(part.to_vector<float>(), std::vector<float>(all.begin() + begin, all.begin() + begin + length))
            << "[" << begin << ", +" << length << ")";
      }
  }
}

TEST(Init, WorksOnAnAsynchronousDevice) {
  Context context;
  for (const Init& how : {init::normal(), init::trunc_normal(), init::orthogonal()}) {
    Tensor here = empty({6, 5}, kCpu), there = empty({6, 5}, kAcc);
    how.fill(here, 0, {6, 5}, "w");
    how.fill(there, 0, {6, 5}, "w");
    EXPECT_EQ(here.to_vector<float>(), there.to_vector<float>());
  }
}

TEST(Init, RefusesShapesThatDoNotSuit) {
  Context context;
  auto refused = [](const Init& how, const char* message) {
    try {
      Tensor bias = empty({4});
      how.fill(bias, 0, {4}, "bias");
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), message);
    }
  };
  refused(init::kaiming_uniform(),
          "initialiser of 'bias': kaiming and xavier need a weight of shape (out, in, …), not [4]");
  refused(init::orthogonal(), "initialiser of 'bias': orthogonal needs at least two dimensions, not [4]");
  EXPECT_THROW(init::trunc_normal(0, 0), Error);
  EXPECT_THROW(init::trunc_normal(0, 1, 2, 1), Error);
  EXPECT_THROW(init::uniform(1, -1), Error);
  EXPECT_THROW(init::uniform(0, std::numeric_limits<double>::infinity()), Error);
  EXPECT_THROW(init::normal(0, std::nan("")), Error);
  EXPECT_THROW(init::normal(0, -1), Error);
}

}  // namespace
}  // namespace shardgrad
