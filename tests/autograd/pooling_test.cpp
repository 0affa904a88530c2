// Pooling (autograd/ops/convolution.h) as PyTorch has it: what is taken, who has the gradient, what is kept, what is
// refused.

#include <cmath>

#include <shardgrad/certify/gradcheck.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

using Doubles = std::vector<double>;

Doubles gradient_of_pooled(Tensor x, const std::function<Tensor(const Tensor&)>& pool, const Doubles& dy) {
  x.set_requires_grad();
  Tensor y = pool(x);
  y.backward(from_vector(std::vector<float>(dy.begin(), dy.end()), y.shape()));
  return values(x.grad());
}

TEST(Pooling, TheFirstOfEqualElementsHasTheGradient) {
  Context context;
  Tensor x = tensor({{{{1., 3., 2.}, {3., 0., 2.}}}}, DType::f32);
  auto largest = [](const Tensor& t) { return max_pool2d(t, 2, {.stride = 1}); };
  EXPECT_EQ(values(largest(x)), (Doubles{3, 3}));
  EXPECT_EQ(gradient_of_pooled(x, largest, {10, 1}), (Doubles{0, 11, 0, 0, 0, 0}));
}

TEST(Pooling, NaNIsTheLargestAndMinusInfinityLargerThanPadding) {
  Context context;
  double inf = INFINITY;
  Tensor x = tensor({{{{1., NAN, 5.}, {-inf, -inf, -inf}, {-inf, -inf, -inf}}}}, DType::f32);
  auto largest = [](const Tensor& t) { return max_pool2d(t, 3, {.stride = 2, .padding = 1}); };
  Doubles y = values(largest(x));
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ((Doubles{y[2], y[3]}), (Doubles{-inf, -inf}));
  EXPECT_EQ(gradient_of_pooled(x, largest, {1, 2, 3, 4}), (Doubles{0, 3, 0, 3, 4, 0, 0, 0, 0}));
}

TEST(Pooling, OfAverageGivesEachElementItsShareOfTheWindowsThatHoldIt) {
  Context context;
  Tensor x = zeros({1, 1, 2, 3});
  auto middle = [](const Tensor& t) { return avg_pool2d(t, 2, {.stride = 1}); };
  EXPECT_EQ(gradient_of_pooled(x, middle, {4, 8}), (Doubles{1, 3, 2, 1, 3, 2}));
}

TEST(Pooling, KeepsAnIndexAndNotItsInput) {
  Context context;
  Tensor x = upstream_like(empty({2, 4, 16, 16}), 1).set_requires_grad();
  int64_t before = context.ledger().current();
  Tensor y = max_pool2d(x * 2, 2);
  EXPECT_EQ(context.ledger().current() - before, 2 * 4 * 8 * 8 * (4 + 4)) << "y, and where it was";
  y = Tensor();
  y = avg_pool2d(x * 2, 2);
  EXPECT_EQ(context.ledger().current() - before, 2 * 4 * 8 * 8 * 4);
  NoGrad no_grad;
  y = Tensor();
  int64_t held = context.ledger().current(Category::activation);
  context.ledger().reset_peaks();
  y = max_pool2d(x, 2);
  EXPECT_EQ(context.ledger().peak(Category::activation) - held, 2 * 4 * 8 * 8 * 4)
      << "without backward there is no index";
}

TEST(Pooling, ToASizeTakesMeansOfPartsThatMayOverlap) {
  Context context;
  Tensor x = arange(30, DType::f32).view({1, 1, 5, 6});
  EXPECT_NEAR(adaptive_avg_pool2d(x, 1).item(), 14.5, 1e-5);
  EXPECT_EQ(values(adaptive_avg_pool2d(x, 2)), (Doubles{7, 10, 19, 22})) << "rows 0 to 2 and 2 to 4";
  Tensor wide = arange(8, DType::f32).view({1, 1, 2, 4});
  EXPECT_EQ(values(adaptive_avg_pool2d(wide, 2)), (Doubles{0.5, 2.5, 4.5, 6.5}));
  EXPECT_EQ(adaptive_avg_pool2d(x.to(DType::bf16), 1).dtype(), DType::bf16);
  EXPECT_EQ(gradient_of_pooled(wide, [](const Tensor& t) { return adaptive_avg_pool2d(t, 1); }, {16}), Doubles(8, 2));
}

TEST(Pooling, GradientsOfAdaptivePoolingAgreeWithCentralDifferences) {
  Context context;
  for (int64_t size : {1, 2, 3}) {
    std::vector<Tensor> inputs{upstream_like(empty({2, 2, 4, 5}, DType::f64), 1)};
    EXPECT_NO_THROW(gradcheck([&](std::span<const Tensor> in) { return adaptive_avg_pool2d(in[0], size); }, inputs));
    EXPECT_NO_THROW(gradcheck(
        [&](std::span<const Tensor> in) {
          return adaptive_avg_pool2d(in[0], {6, size});
        },
        inputs));
  }
}

// What PyTorch has for these.
TEST(Pooling, WindowsDifferDownAndAcross) {
  Context context;
  Tensor x = arange(24, DType::f32).view({1, 1, 4, 6});
  EXPECT_EQ(values(max_pool2d(x, {2, 3})), (Doubles{8, 11, 20, 23}));
  EXPECT_EQ(values(avg_pool2d(x, {1, 3}, {.stride = {3, 1}})), (Doubles{1, 2, 3, 4, 19, 20, 21, 22}));
  EXPECT_EQ(values(max_pool2d(x, {2, 4}, {.stride = {0, 5}, .padding = {0, 2}})), (Doubles{7, 11, 19, 23}));
}

TEST(Pooling, RoundedUpAWindowMayEndBeyondTheImageButBeginsInIt) {
  Context context;
  Tensor x = arange(1, 6, 1, DType::f32).view({1, 1, 1, 5});
  auto widths = [&](int64_t kernel, PoolOptions o) {
    o.stride.down = 1, o.padding.down = 0;
    return values(max_pool2d(x, {1, kernel}, o));
  };
  EXPECT_EQ(widths(2, {.ceil_mode = true}), (Doubles{2, 4, 5}));
  EXPECT_EQ(widths(2, {.stride = 3, .ceil_mode = true}), (Doubles{2, 5}));
  EXPECT_EQ(widths(2, {.stride = 4, .ceil_mode = true}), (Doubles{2, 5}));
  EXPECT_EQ(widths(1, {.stride = 5, .ceil_mode = true}), (Doubles{1})) << "it would begin after the image";
  EXPECT_EQ(widths(2, {.stride = 3, .padding = 1, .ceil_mode = true}), (Doubles{1, 4})) << "in the padding after it";
  EXPECT_EQ(widths(7, {.stride = 3, .ceil_mode = true}), (Doubles{5}));
  EXPECT_REFUSED(widths(7, {.stride = 2, .ceil_mode = true}), "does not fit");
  EXPECT_EQ(widths(10, {.stride = 1000, .ceil_mode = true}), (Doubles{5}));
}

// The padding after the image is of the mean, what lies beyond it is not.
TEST(Pooling, AMeanIsOfWhatCounts) {
  Context context;
  Tensor x = full({1, 1, 1, 5}, 12);
  auto means = [&](PoolOptions o) {
    o.stride.down = 1, o.padding.down = 0;
    return values(avg_pool2d(x, {1, 4}, o));
  };
  EXPECT_EQ(means({.stride = 3, .padding = 1}), (Doubles{9, 9}));
  EXPECT_EQ(means({.stride = 3, .padding = 1, .count_include_pad = false}), (Doubles{12, 12}));
  EXPECT_EQ(means({.stride = 2, .padding = 2, .ceil_mode = true}), (Doubles{6, 12, 9, 4}));
  EXPECT_EQ(means({.stride = 2, .padding = 2, .ceil_mode = true, .count_include_pad = false}), Doubles(4, 12));
  for (PoolOptions o : {PoolOptions{.stride = 2, .padding = 1, .count_include_pad = false},
                        PoolOptions{.stride = 2, .padding = 1, .ceil_mode = true}}) {
    std::vector<Tensor> inputs{upstream_like(empty({2, 2, 4, 6}, DType::f64), 1)};
    EXPECT_NO_THROW(gradcheck([&](std::span<const Tensor> in) { return avg_pool2d(in[0], {3, 2}, o); }, inputs));
  }
}

TEST(Pooling, WindowsOfAnySizeThatCanBeCountedAreOnes) {
  Context context;
  Tensor x = full({1, 1, 2, 40}, 8).set_requires_grad();
  int64_t large = (int64_t(1) << 31) - 2;
  PoolOptions padded{.stride = {int64_t(1) << 62, 1}, .padding = {large / 2, 0}};
  EXPECT_EQ(values(max_pool2d(x, {large, 1}, padded)), Doubles(40, 8));
  padded.count_include_pad = false;
  Tensor y = avg_pool2d(x, {large, 1}, padded);
  EXPECT_EQ(values(y), Doubles(40, 8));
  y.sum().backward();
  EXPECT_EQ(values(x.grad()), Doubles(80, 0.5));
  padded.count_include_pad = true;
  EXPECT_EQ(values(avg_pool2d(x, {large, 1}, padded)), Doubles(40, float(16. / double(large))));
  int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_REFUSED(max_pool2d(x, huge), "max_pool2d", "kernel 9223372036854775807");
  EXPECT_REFUSED(avg_pool2d(x, huge, {.padding = huge / 2}), "avg_pool2d", "padding 4611686018427387903");
  EXPECT_REFUSED(avg_pool2d(x, int64_t(1) << 31, {.padding = int64_t(1) << 30}), "kernel 2147483648");
}

TEST(Pooling, ToASizeTakesAPairOfWhichOneMayStay) {
  Context context;
  Tensor x = arange(24, DType::f32).view({1, 1, 4, 6});
  EXPECT_EQ(values(adaptive_avg_pool2d(x, {2, 3})), (Doubles{3.5, 5.5, 7.5, 15.5, 17.5, 19.5}));
  EXPECT_EQ(values(adaptive_avg_pool2d(x, {1, kSameExtent})), (Doubles{9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(values(adaptive_avg_pool2d(x, {3, 1})), (Doubles{5.5, 11.5, 17.5})) << "rows 0 and 1, 1 and 2, 2 and 3";
  EXPECT_EQ(adaptive_avg_pool2d(x, {7, 9}).shape(), (Shape{1, 1, 7, 9}));
  x = arange(4, DType::f32).view({1, 1, 1, 4}).clone();
  EXPECT_EQ(values(adaptive_avg_pool2d(x, {1, 6})), (Doubles{0, 0.5, 1, 2, 2.5, 3})) << "more parts than columns";
  x = tensor({{{{1., INFINITY, 3., 4., 5.}}}}, DType::f32);
  EXPECT_EQ(values(adaptive_avg_pool2d(x, {1, 3})), (Doubles{INFINITY, INFINITY, 4.5})) << "others stay finite";
}

TEST(Pooling, HasTheSameBitsOnTheOtherDevice) {
  Context context;
  Tensor x = upstream_like(empty({2, 3, 7, 9}), 1);
  for (PoolOptions options : {PoolOptions{}, PoolOptions{.stride = 1, .padding = 1}}) {
    EXPECT_EQ(bits(max_pool2d(x.to(kAcc), 2, options)), bits(max_pool2d(x, 2, options)));
    EXPECT_EQ(bits(avg_pool2d(x.to(kAcc), 2, options)), bits(avg_pool2d(x, 2, options)));
  }
}

TEST(Pooling, WhatIsNoImageOrHasNoPlaceIsRefused) {
  Context context;
  Tensor x = zeros({1, 3, 4, 4});
  EXPECT_REFUSED(max_pool2d(x[0], 2), "max_pool2d", "samples, channels", "[3, 4, 4]");
  EXPECT_REFUSED(max_pool2d(x.to(DType::i32), 2), "max_pool2d", "i32");
  EXPECT_REFUSED(max_pool2d(x, 0), "max_pool2d", "kernel 0");
  EXPECT_REFUSED(max_pool2d(x, 2, {.stride = -1}), "stride -1");
  EXPECT_REFUSED(avg_pool2d(x, 2, {.padding = -1}), "avg_pool2d", "padding -1");
  EXPECT_REFUSED(avg_pool2d(x, 3, {.padding = 2}), "avg_pool2d", "padding 2", "half");
  EXPECT_REFUSED(max_pool2d(x, 5), "max_pool2d", "5 x 5", "does not fit", "[1, 3, 4, 4]");
  EXPECT_REFUSED(max_pool2d(zeros({1, 3, 0, 4}), 2, {.padding = 1}), "max_pool2d", "no places");
  EXPECT_REFUSED(adaptive_avg_pool2d(x, 0), "adaptive_avg_pool2d", "size of 0 x 0");
  EXPECT_REFUSED(max_pool2d(empty({1, 1, 65536, 32768}, {DType::f32, kMeta}), 2), "max_pool2d", "2^31");
  EXPECT_EQ(max_pool2d(empty({1, 1, 65536, 32767}, {DType::f32, kMeta}), 2).size(2), 32768);
}

}  // namespace
}  // namespace shardgrad::test
