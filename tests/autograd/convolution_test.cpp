// Convolutions and pooling against loops over every place, and their gradients against central differences.

#include <cmath>

#include <shardgrad/certify/gradcheck.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

double at(const std::vector<double>& v, const Shape& s, int64_t a, int64_t b, int64_t c, int64_t d) {
  return v[size_t(((a * s[1] + b) * s[2] + c) * s[3] + d)];
}

// Σ over the window, straight from the definition.
std::vector<double> conv_by_loops(const Tensor& x, const Tensor& w, const ConvOptions& o, const Shape& y) {
  std::vector<double> in = values(x), weight = values(w), out;
  int64_t channels = w.size(1), outs = w.size(0) / o.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t r = 0; r < y[2]; ++r)
        for (int64_t c = 0; c < y[3]; ++c) {
          double sum = 0;
          for (int64_t ch = 0; ch < channels; ++ch)
            for (int64_t i = 0; i < w.size(2); ++i)
              for (int64_t j = 0; j < w.size(3); ++j) {
                int64_t row = r * o.stride.down + i * o.dilation.down - o.padding.down,
                        col = c * o.stride.across + j * o.dilation.across - o.padding.across;
                if (row < 0 || col < 0 || row >= x.size(2) || col >= x.size(3)) continue;
                sum += at(in, x.shape(), n, k / outs * channels + ch, row, col) * at(weight, w.shape(), k, ch, i, j);
              }
          out.push_back(sum);
        }
  return out;
}

struct ConvCase {
  Shape x, weight;
  ConvOptions options;
  int64_t height, width;  // expected
};

TEST(Convolution, IsTheSumOverEachWindow) {
  Context context;
  const ConvCase cases[] = {
      {{2, 3, 5, 6}, {4, 3, 3, 3}, {}, 3, 4},
      {{2, 3, 5, 6}, {4, 3, 3, 2}, {.padding = 1}, 5, 7},
      {{1, 2, 7, 7}, {3, 2, 3, 3}, {.stride = 2, .padding = 1}, 4, 4},
      {{2, 2, 7, 8}, {2, 2, 2, 3}, {.dilation = 2}, 5, 4},
      {{2, 4, 4, 4}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}, 4, 4},
      {{2, 3, 4, 4}, {3, 1, 3, 3}, {.stride = 2, .padding = 2, .groups = 3}, 3, 3},
      {{2, 2, 9, 8}, {3, 2, 3, 2}, {.stride = {2, 3}, .padding = {0, 1}, .dilation = {1, 2}}, 4, 3},
      {{0, 2, 4, 4}, {3, 2, 2, 2}, {}, 3, 3},
      {{2, 5, 1, 1}, {3, 5, 1, 1}, {}, 1, 1}};
  for (const ConvCase& each : cases) {
    SCOPED_TRACE(concat(each.x, " by ", each.weight));
    Tensor x = upstream_like(empty(each.x, DType::f64), 1), w = upstream_like(empty(each.weight, DType::f64), 2);
    Tensor b = upstream_like(empty({each.weight[0]}, DType::f64), 3), y = conv2d(x, w, Tensor(), each.options);
    ASSERT_EQ(y.shape(), (Shape{each.x[0], each.weight[0], each.height, each.width}));
    expect_close(values(y), conv_by_loops(x, w, each.options, y.shape()), 1e-14, "conv2d", 1);
    expect_close(values(conv2d(x, w, b, each.options)), values(y + b.reshape({-1, 1, 1})), 1e-15, "with bias", 1);
  }
}

TEST(Convolution, AlongALineIsThatOfAnImageOneElementHigh) {
  Context context;
  Tensor x = tensor({{{1., 2., 3., 4.}}}), w = tensor({{{1., 10.}}});
  EXPECT_EQ(values(conv1d(x, w, Tensor())), (std::vector<double>{21, 32, 43}));
  EXPECT_EQ(values(conv1d(x, w, tensor({0.5}), {.stride = 2, .padding = 1})), (std::vector<double>{10.5, 32.5, 4.5}));
  EXPECT_EQ(values(conv1d(x, w, Tensor(), {.dilation = 2})), (std::vector<double>{31, 42}));
}

TEST(Convolution, PoolingTakesTheLargestOrTheMeanOfEachWindow) {
  Context context;
  Tensor x = arange(16, DType::f32).view({1, 1, 4, 4});
  EXPECT_EQ(values(max_pool2d(x, 2)), (std::vector<double>{5, 7, 13, 15}));
  EXPECT_EQ(values(avg_pool2d(x, 2)), (std::vector<double>{2.5, 4.5, 10.5, 12.5}));
  EXPECT_EQ(values(max_pool2d(-x - 1, 3, {.stride = 2, .padding = 1})), (std::vector<double>{-1, -2, -5, -6}))
      << "the padding is never the largest";
  EXPECT_EQ(values(avg_pool2d(ones({1, 1, 4, 4}), 3, {.stride = 2, .padding = 1})),
            values(tensor({4. / 9, 6. / 9, 6. / 9, 1.}, DType::f32)))
      << "the padding counts, as in PyTorch";
}

TEST(Convolution, GradientsAgreeWithCentralDifferences) {
  Context context;
  auto check = [](const Shape& shape, const Shape& weight, const auto& call) {
    std::vector<Tensor> inputs{upstream_like(empty(shape, DType::f64), 1), upstream_like(empty(weight, DType::f64), 2)};
    EXPECT_NO_THROW(gradcheck([&](std::span<const Tensor> in) { return call(in[0], in[1]); }, inputs));
  };
  check({2, 4, 4, 3}, {2, 2, 2, 2}, [](const Tensor& x, const Tensor& w) {
    return conv2d(x, w, Tensor(), {.stride = 2, .padding = 1, .groups = 2});
  });
  check({1, 2, 7, 6}, {3, 2, 3, 2}, [](const Tensor& x, const Tensor& w) {
    return conv2d(x, w, Tensor(), {.stride = {3, 1}, .padding = {2, 1}, .dilation = {2, 1}});
  });
  check({2, 2, 6}, {3, 2, 3}, [](const Tensor& x, const Tensor& w) {
    return conv1d(x, w, Tensor(), {.stride = 2, .padding = 2, .dilation = 2});
  });
  check({1, 2, 4, 4}, {1}, [](const Tensor& x, const Tensor& w) { return max_pool2d(x, 2) * w; });
  check({1, 2, 4, 4}, {1}, [](const Tensor& x, const Tensor& w) { return avg_pool2d(x, 3, {.stride = 1}) * w; });
}

// Whichever way they are computed in a batch.
TEST(Convolution, ASampleHasTheBitsThatItHasAlone) {
  Context context;
  Tensor x = upstream_like(empty({35, 40, 4, 4}), 1), w = upstream_like(empty({48, 40, 3, 3}), 2);
  auto both = [&](Tensor image) {
    image = image.detach().set_requires_grad();
    Tensor y = conv2d(image, w, Tensor(), {.padding = 1});
    y.backward(ones_like(y));
    return std::pair(y.detach(), image.grad());
  };
  auto [y, dx] = both(x);
  for (int64_t i : {0, 17, 34}) {
    auto [alone, gradient] = both(slice(x, 0, i, i + 1));
    EXPECT_EQ(bits(alone), bits(slice(y, 0, i, i + 1)));
    EXPECT_EQ(bits(gradient), bits(slice(dx, 0, i, i + 1)));
  }
}

// Kernels go through the remainders of positions by a stride.
TEST(Convolution, AStrideBeyondTheImageIsNotWalkedThrough) {
  Context context;
  Tensor x = upstream_like(empty({1, 2, 4, 5}), 1).set_requires_grad(), w = upstream_like(empty({3, 2, 3, 3}), 2);
  Tensor y = conv2d(x, w, Tensor(), {.stride = {int64_t(1) << 40, 1}, .padding = {1, 0}});
  EXPECT_EQ(bits(y), bits(conv2d(x, w, Tensor(), {.stride = {6, 1}, .padding = {1, 0}})));
  sum(y).backward();
  EXPECT_EQ(x.grad().shape(), x.shape());
}

// Only what backward reads is kept: the image for the weight's gradient, the weight for the image's.
TEST(Convolution, KeepsNoArrayOfWindows) {
  Context context;
  Tensor x = upstream_like(empty({8, 4, 16, 16}), 1), w = upstream_like(empty({4, 4, 3, 3}), 2).set_requires_grad();
  int64_t before = context.ledger().current();
  Tensor y = conv2d(x, w, Tensor(), {.padding = 1});
  EXPECT_EQ(context.ledger().current() - before, y.numel() * 4);
}

TEST(Convolution, RunsOnTheOtherDeviceWithTheSameBits) {
  Context context;
  Tensor x = upstream_like(empty({2, 3, 6, 6}), 1), w = upstream_like(empty({4, 3, 3, 3}), 2);
  EXPECT_EQ(bits(conv2d(x.to(kAcc), w.to(kAcc), Tensor(), {.padding = 1})),
            bits(conv2d(x, w, Tensor(), {.padding = 1})));
}

TEST(Convolution, WhatDoesNotFitIsRefused) {
  Context context;
  Tensor x = zeros({1, 3, 4, 4}), w = zeros({2, 3, 3, 3});
  EXPECT_REFUSED(conv2d(x, zeros({2, 4, 3, 3}), Tensor()), "conv2d", "[2, 4, 3, 3]", "[1, 3, 4, 4]");
  EXPECT_REFUSED(conv2d(x, zeros({2, 3, 5, 5}), Tensor()), "conv2d", "5 x 5", "does not fit");
  EXPECT_REFUSED(conv2d(x, w, zeros({3})), "bias", "[3]");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.stride = 0}), "stride 0");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.padding = {0, -1}}), "conv2d", "padding -1");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.dilation = {0, 1}}), "dilation 0");
  EXPECT_REFUSED(conv2d(x, w, zeros({2}, DType::f64)), "conv2d", "f32", "f64");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.groups = 2}), "2 groups");
  EXPECT_REFUSED(conv2d(x[0], w, Tensor()), "samples, channels");
  EXPECT_REFUSED(conv2d(x, w.to(DType::f64), Tensor()), "conv2d", "f32", "f64");
  EXPECT_REFUSED(max_pool2d(x, 2, {.padding = 2}), "max_pool2d", "padding 2");
  EXPECT_REFUSED(avg_pool2d(x, 5), "avg_pool2d", "does not fit");
  EXPECT_REFUSED(conv2d(empty({1, 3, 65536, 32768}, {DType::f32, kMeta}), w.to(kMeta), Tensor()), "conv2d", "2^31");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.padding = {int64_t(1) << 20, 1 << 20}}), "conv2d", "2^31");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.padding = {1, int64_t(1) << 62}}), "padding 4611686018427387904");
  EXPECT_REFUSED(conv2d(x, w, Tensor(), {.dilation = int64_t(1) << 62}), "dilation 4611686018427387904");
  EXPECT_REFUSED(conv1d(x, w, Tensor()), "conv1d", "length");
  EXPECT_REFUSED(conv1d(zeros({1, 3, 4}), zeros({2, 3, 5}), Tensor()), "conv1d", "1 x 5", "does not fit");
}

}  // namespace
}  // namespace shardgrad::test
