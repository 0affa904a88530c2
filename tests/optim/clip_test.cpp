#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/workspace.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/sgd.h>

namespace shardgrad {
namespace {

NamedParameter with_gradient(const std::string& name, const std::vector<float>& gradient) {
  Tensor tensor = zeros({int64_t(gradient.size())}).set_requires_grad();
  tensor.set_grad(from_vector(gradient, tensor.shape()));
  return {name, tensor};
}

TEST(Clip, I14_TheNormIsThatOfAllGradientsJoined) {
  Context context;
  std::vector<float> a(100), b(7);
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) a[i] = float(std::sin(double(i)));
  for (size_t i = 0; i < b.size(); ++i) b[i] = float(3 * std::cos(double(i)));
  for (float v : a) square += double(v) * v;
  for (float v : b) square += double(v) * v;
  NamedParameter none{"c", zeros({3}).set_requires_grad()};
  EXPECT_NEAR(optim::grad_norm(std::vector{with_gradient("a", a), with_gradient("b", b), none}), std::sqrt(square),
              1e-12);
}

TEST(Clip, TheTreeFollowsNamesNotTheOrderGiven) {
  Context context;
  // In f64, (1e16 + 1) + 1 is 1e16, 1e16 + (1 + 1) is not.
  auto big = with_gradient("a", {1e8f}), one = with_gradient("b", {1}), two = with_gradient("c", {1}),
       three = with_gradient("d", {1});
  double norm = optim::grad_norm(std::vector{big, one, two, three});
  EXPECT_EQ(norm, optim::grad_norm(std::vector{two, big, three, one}));
  EXPECT_EQ(norm, std::sqrt((1e16 + 1) + 2));
}

TEST(Clip, BlocksAreJoinedAsTreesOfPairs) {
  EXPECT_EQ(optim::tree_join({}, 2), 0);
  EXPECT_EQ(optim::tree_join({1, 2, 3}, 2), 6);
  EXPECT_EQ(optim::tree_join({1, 3, 2}, INFINITY), 3);
  EXPECT_EQ(optim::tree_join({1e16, 1, 1}, 2), (1e16 + 1) + 1);
  EXPECT_EQ(optim::tree_join({1e16, 1, 1, 1}, 2), (1e16 + 1) + 2);
}

// However a gradient is cut into parts, on whose edges the kernel gives single blocks, and between them nodes of 1024.
TEST(Clip, PartsOfAGradientGiveTheSubtreesOfTheWhole) {
  Context context;
  Tensor grad = randn({3 * kernels::kNormNode + 1000}, "grad");
  const int64_t count = (grad.numel() + 31) / 32;
  for (double p : {1., 2., 3., double(INFINITY)}) {
    double whole = optim::subtree_powers(std::vector<optim::GradPart>{{grad, {0, count}, count}}, p)[0].at(0);
    double expected = 0;
    for (float value : grad.to_vector<float>())
      expected = std::isinf(p) ? std::max(expected, double(std::abs(value))) : expected + std::pow(std::abs(value), p);
    EXPECT_NEAR(whole, expected, 1e-9 * expected);
    for (auto [a, b] :
         {std::pair<int64_t, int64_t>{0, count}, {1, 2}, {1023, 1025}, {1000, 3000}, {1024, 2048}, {37, 3100}}) {
      std::vector<optim::GradPart> parts;
      std::vector<optim::Blocks> nodes;
      for (optim::Blocks part : {optim::Blocks{0, a}, optim::Blocks{a, b}, optim::Blocks{b, count}}) {
        parts.push_back(
            {grad.rows(std::min(part.begin * 32, grad.numel()), std::min(part.end * 32, grad.numel())), part, count});
        for (optim::Blocks node : optim::subtrees(part, count)) nodes.push_back(node);
      }
      std::vector<double> values;
      for (const auto& of_part : optim::subtree_powers(parts, p))
        values.insert(values.end(), of_part.begin(), of_part.end());
      EXPECT_EQ(optim::finish_tree(nodes, values, count, p), whole) << "cut at " << a << ", " << b << ", p = " << p;
    }
  }
}

// The values of 32 elements each would be a thirtieth of the gradients, and wait on the host's one core.
TEST(Clip, ANormBringsToTheHostAFewNumbersForEachParameter) {
  Context context;
  std::vector<NamedParameter> w{with_gradient("a", std::vector<float>(1 << 20, 1)), with_gradient("b", {1})};
  context.ledger().reset_peaks();
  int64_t before = context.ledger().current(Category::workspace);
  EXPECT_EQ(optim::grad_norm(w), std::sqrt((1 << 20) + 1));
  EXPECT_LE(context.ledger().peak(Category::workspace) - before, 1024);
}

TEST(Clip, EveryCutOfATreeFinishesWithTheSameBits) {
  for (int64_t count = 1; count <= 40; ++count) {
    std::vector<double> blocks;
    for (int64_t i = 0; i < count; ++i) blocks.push_back(std::exp(double(i * 37 % 23) - 11));
    double whole = optim::tree_join(blocks, 2);
    for (int64_t a = 0; a <= count; ++a)
      for (int64_t b = a; b <= count; ++b) {
        std::vector<optim::Blocks> nodes;
        std::vector<double> values;
        for (optim::Blocks part : {optim::Blocks{0, a}, optim::Blocks{a, b}, optim::Blocks{b, count}})
          for (optim::Blocks node : optim::subtrees(part, count)) {
            nodes.push_back(node);
            values.push_back(optim::tree_join({blocks.begin() + node.begin, blocks.begin() + node.end}, 2));
          }
        ASSERT_EQ(optim::finish_tree(nodes, values, count, 2), whole) << count << " blocks cut at " << a << ", " << b;
        EXPECT_LE(nodes.size(), 3 * 12u);
      }
  }
}

TEST(Clip, I14_NormsOfSeveralPAreThoseOfAllGradientsJoined) {
  Context context;
  std::vector<NamedParameter> w{with_gradient("a", {3, -4}), with_gradient("b", {-12})};
  EXPECT_DOUBLE_EQ(optim::grad_norm(w, 1), 19);
  EXPECT_DOUBLE_EQ(optim::grad_norm(w, 2), 13);
  EXPECT_DOUBLE_EQ(optim::grad_norm(w, 3), std::cbrt(27. + 64 + 1728));
  EXPECT_DOUBLE_EQ(optim::grad_norm(w, INFINITY), 12);
  EXPECT_THROW(optim::grad_norm(w, 0.5), Error);
  w.push_back(with_gradient("c", {NAN}));
  for (double p : {1., 2., 3., double(INFINITY)}) EXPECT_TRUE(std::isnan(optim::grad_norm(w, p))) << "p = " << p;
}

TEST(Clip, I14_ClippingBoundsTheNormAndReturnsTheOldOne) {
  Context context;
  std::vector<NamedParameter> w{with_gradient("a", {3, 4})};
  EXPECT_EQ(optim::clip_grad_norm(w, 10), 5);
  EXPECT_EQ(w[0].tensor.grad().to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_EQ(optim::clip_grad_norm(w, 1), 5);
  EXPECT_NEAR(w[0].tensor.grad().to_vector<float>()[0], 0.6, 1e-6);
}

TEST(Clip, GradientsThatAreAllZeroStayZero) {
  Context context;
  std::vector<NamedParameter> w{with_gradient("a", {0, 0}), with_gradient("b", {-0.0f})};
  EXPECT_EQ(optim::clip_factor(0, 1), 1);
  EXPECT_EQ(optim::clip_grad_norm(w, 1e-30), 0);
  for (const NamedParameter& each : w)
    for (float g : each.tensor.grad().to_vector<float>()) EXPECT_EQ(g, 0);
}

TEST(Clip, I14_B06_ManyLargeValuesOf16BitsStayFinite) {
  Context context;
  Tensor w = zeros({64}, DType::f16).set_requires_grad();
  w.set_grad(full({64}, 1000, DType::f16));
  EXPECT_EQ(optim::grad_norm(std::vector{NamedParameter{"w", w}}), 8000);
}

TEST(Clip, TheFactorBoundsTheNormAndLeavesSmallOnesAlone) {
  Context context;
  EXPECT_EQ(optim::clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(optim::clip_factor(4, 2), 2 / (4 + 1e-6));
  EXPECT_THROW(optim::clip_factor(NAN, 1), Error);
  EXPECT_THROW(optim::clip_factor(INFINITY, 1), Error);
  EXPECT_THROW(optim::clip_factor(1, 0), Error);
  auto w = with_gradient("w", {3, 4});
  optim::SGD optimizer({w}, {.lr = 1});
  optimizer.step(optim::clip_factor(optim::grad_norm(std::vector{w}), 1));
  EXPECT_NEAR(w.tensor.to_vector<float>()[0], -0.6, 1e-6);
}

TEST(Clip, I44_AShardedGradientIsRefusedNamingTheRightCall) {
  struct Elsewhere final : GradSink {
    Out open() override { return {}; }
    void ready() override {}
    Tensor grad() const override { return {}; }
    void clear() override {}
    DType dtype() const override { return DType::f32; }
    std::span<const LocalRange> local_ranges() override { return {}; }
    void written() override {}
  };
  Context context;
  Tensor w = zeros({2}).set_requires_grad();
  leaf_of(w).set_sink(std::make_shared<Elsewhere>());
  try {
    optim::clip_grad_norm(std::vector{NamedParameter{"w", w}}, 1);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fsdp::clip_grad_norm"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace shardgrad
