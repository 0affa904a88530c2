#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/workspace.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/sgd.h>

#include "tests/numbers.h"

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

// Joins of a level run at once: they read what earlier ones have made, and no two write the same value.
void expect_levels(const optim::JoinList& list) {
  std::vector<int32_t> joins = list.joins.to_vector<int32_t>(), levels = list.levels.to_vector<int32_t>();
  std::set<int32_t> made, now;
  for (int64_t value = 0; value < list.given; ++value) made.insert(int32_t(value));
  size_t row = 0;
  for (int32_t end : levels) {
    for (; row < size_t(end); ++row) {
      for (size_t from : {3 * row + 1, 3 * row + 2}) EXPECT_TRUE(joins[from] < 0 || made.contains(joins[from]));
      EXPECT_TRUE(!made.contains(joins[3 * row]) && now.insert(joins[3 * row]).second);
    }
    made.merge(now);
  }
  EXPECT_EQ(3 * row, joins.size()) << "all of them";
}

// The values that `joins` makes of `given`.
std::vector<double> joined(const optim::Joins& joins, std::vector<double> given, const std::vector<int64_t>& results,
                           double p = 2) {
  optim::JoinList list = joins.finish(results, kCpu);
  EXPECT_EQ(list.given, int64_t(given.size()));
  given.resize(size_t(list.total), NAN);  // who reads what is not there yet finds that
  Tensor values = from_vector(given, {list.total});
  expect_levels(list);
  list.run(values, p);
  return list.results(values, int64_t(results.size())).to_vector<double>();
}

double tree(const std::vector<double>& values, double p = 2) {
  optim::Joins joins(int64_t(values.size()));
  std::vector<int64_t> all(values.size());
  std::iota(all.begin(), all.end(), 0);
  return joined(joins, values, {joins.tree(all)}, p)[0];
}

TEST(Clip, BlocksAreJoinedAsTreesOfPairs) {
  Context context;
  EXPECT_EQ(tree({}), 0);
  EXPECT_EQ(tree({1, 2, 3}), 6);
  EXPECT_EQ(tree({1, 3, 2}, INFINITY), 3);
  EXPECT_EQ(tree({1e16, 1, 1}), (1e16 + 1) + 1);
  EXPECT_EQ(tree({1e16, 1, 1, 1}), (1e16 + 1) + 2);
}

TEST(Clip, AListOfJoinsPutsResultsSideBySideWhateverTheyAreMadeOf) {
  Context context;
  optim::Joins joins(3);
  int64_t both = joins.join(0, 1), all = joins.join(both, 2), none = joins.nothing();
  EXPECT_EQ(joined(joins, {1, 2, 4}, {all, 2, none, both, both}), (std::vector<double>{7, 4, 0, 3, 3}));
  EXPECT_TRUE(std::isnan(joined(joins, {1, NAN, 4}, {all}, INFINITY)[0]));
  EXPECT_TRUE(std::isnan(joined(joins, {NAN, 1, 4}, {all}, INFINITY)[0]));
}

// However a gradient is cut into parts, on whose edges the kernel gives single blocks, and between them nodes of 1024.
TEST(Clip, PartsOfAGradientGiveTheSubtreesOfTheWhole) {
  Context context;
  Tensor grad = randn({3 * kernels::kNormNode + 1000}, "grad");
  const int64_t count = (grad.numel() + 31) / 32;
  auto values_of = [&](std::vector<optim::Blocks> blocks, double p) {
    std::vector<optim::NormLeaves::PartOf> parts;
    for (optim::Blocks part : blocks) parts.push_back({part, count});
    optim::NormLeaves leaves(parts);
    optim::Joins joins(leaves.count());
    std::vector<int64_t> values;
    std::vector<optim::Blocks> nodes;
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int64_t value : leaves.nodes(i, joins)) values.push_back(value);
      for (optim::Blocks node : optim::subtrees(blocks[i], count)) nodes.push_back(node);
    }
    int64_t root = optim::finish_tree(nodes, values, count, joins);
    optim::JoinList list = joins.finish({&root, 1}, kCpu);
    Tensor all = zeros({list.total}, {DType::f64});
    std::vector<Tensor> grads;
    for (auto [begin, end] : blocks)
      grads.push_back(grad.rows(std::min(begin * 32, grad.numel()), std::min(end * 32, grad.numel())));
    leaves.launch(grads, all, p);
    list.run(all, p);
    return list.results(all, 1).item();
  };
  for (double p : {1., 2., 3., double(INFINITY)}) {
    double whole = values_of({{0, count}}, p), expected = 0;
    for (float value : grad.to_vector<float>())
      expected = std::isinf(p) ? std::max(expected, double(std::abs(value))) : expected + std::pow(std::abs(value), p);
    EXPECT_NEAR(whole, expected, 1e-9 * expected);
    for (auto [a, b] :
         {std::pair<int64_t, int64_t>{0, count}, {1, 2}, {1023, 1025}, {1000, 3000}, {1024, 2048}, {37, 3100}})
      EXPECT_EQ(values_of({{0, a}, {a, b}, {b, count}}, p), whole) << "cut at " << a << ", " << b << ", p = " << p;
  }
}

// The values of 32 elements each would be a thirtieth of the gradients, and wait on the host's one core.
TEST(Clip, ANormBringsToTheHostAFewNumbersForEachParameter) {
  Context context;
  std::vector<NamedParameter> w{with_gradient("a", std::vector<float>(1 << 20, 1)), with_gradient("b", {1})};
  context.ledger().reset_peaks();
  int64_t before = context.ledger().current(Category::workspace);
  EXPECT_EQ(optim::grad_norm(w), std::sqrt((1 << 20) + 1));
  EXPECT_LE(context.ledger().peak(Category::workspace) - before, 2048);
}

TEST(Clip, EveryCutOfATreeFinishesWithTheSameBits) {
  Context context;
  for (int64_t count = 1; count <= 40; ++count) {
    std::vector<double> blocks;
    for (int64_t i = 0; i < count; ++i) blocks.push_back(std::exp(double(i * 37 % 23) - 11));
    double whole = tree(blocks);
    for (int64_t a = 0; a <= count; ++a)
      for (int64_t b = a; b <= count; ++b) {
        std::vector<optim::Blocks> nodes;
        std::vector<int64_t> values;
        optim::Joins joins(count);
        for (optim::Blocks part : {optim::Blocks{0, a}, optim::Blocks{a, b}, optim::Blocks{b, count}})
          for (optim::Blocks node : optim::subtrees(part, count)) {
            nodes.push_back(node);
            std::vector<int64_t> of_node(size_t(node.end - node.begin));
            std::iota(of_node.begin(), of_node.end(), node.begin);
            values.push_back(joins.tree(of_node));
          }
        ASSERT_EQ(joined(joins, blocks, {optim::finish_tree(nodes, values, count, joins)})[0], whole)
            << count << " blocks cut at " << a << ", " << b;
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

// A kernel leaves what the host would have computed.
TEST(Clip, AScaleThatAKernelLeavesUpdatesAsTheHostsDoes) {
  auto trained = [](Device device, auto make, bool by_kernel) {
    Context context({.device = device});
    Tensor w = zeros({40}).set_requires_grad();
    w.set_grad(test::normal({40}, "g"));
    std::vector<NamedParameter> all{{"w", w}};
    auto optimizer = make(all);
    Tensor power = sum(w.grad().to(DType::f64) * w.grad().to(DType::f64));
    if (by_kernel)
      optimizer->step(optim::clip_scale(power, 0.5));
    else
      optimizer->step(optim::clip_factor(std::sqrt(power.item()), 0.5));
    return w.detach().to_vector<float>();
  };
  auto expect_same = [&](auto make) {
    for (Device device : {kCpu, kAcc}) EXPECT_EQ(trained(device, make, true), trained(device, make, false));
  };
  using Parameters = std::vector<NamedParameter>;
  expect_same([](Parameters w) { return std::make_unique<optim::SGD>(w, optim::SgdOptions{.lr = 0.1}); });
  expect_same([](Parameters w) { return std::make_unique<optim::AdamW>(w, optim::AdamOptions{.eps = 0.1}); });
  expect_same([](Parameters w) { return std::make_unique<optim::RMSprop>(w, optim::RmspropOptions{.eps = 0.1}); });
}

TEST(Clip, AScaleIsOneNumberOfF64) {
  Context context;
  auto w = with_gradient("w", {3, 4});
  optim::SGD optimizer({w}, {.lr = 1});
  EXPECT_THROW(optimizer.step(full({2}, 1, DType::f64)), Error);
  EXPECT_THROW(optimizer.step(full({1}, 1)), Error);
  EXPECT_THROW(optim::clip_scale(full({1}, 1, DType::f64), 0), Error);
  EXPECT_THROW(optim::clip_scale(full({1}, 1), 1), Error);
  EXPECT_THROW(optim::clip_scale(full({2}, 1, DType::f64), 1), Error);
}

TEST(Clip, GradPowerIsTheSquareOfTheNormWhereverTheGradientsAre) {
  for (Device device : {kCpu, kAcc, kMeta}) {
    Context context({.device = device});
    std::vector<NamedParameter> none{{"w", zeros({3}).set_requires_grad()}};
    EXPECT_EQ(optim::grad_norm(none), 0);
    EXPECT_EQ(optim::grad_power(none).device(), device);
    std::vector<NamedParameter> some{with_gradient("w", {3, 4})};
    EXPECT_EQ(optim::grad_power(some).device(), device);
    EXPECT_EQ(optim::number_of(optim::grad_power(some)), device == kMeta ? 0 : 25);
  }
}

// Of offloaded gradients the values meet on the host, in a context on a device.
TEST(Clip, ListsOfJoinsAreWhereTheValuesAre) {
  Context context({.device = kAcc});
  optim::Joins joins(2);
  int64_t root = joins.join(0, 1);
  for (Device device : {kCpu, kAcc}) {
    optim::JoinList list = joins.finish({&root, 1}, device);
    EXPECT_EQ(list.joins.device(), device);
    EXPECT_EQ(list.levels.device(), device);
  }
}

// As a user's own might, made before there was a scale.
TEST(Clip, AnOptimizerThatForgetsTheScaleIsRefused) {
  struct Plain : optim::Adam {
    using Adam::Adam;
    void update(Run& run) override { copy_into(run.values, run.values - run.grad * (run.lr * run.grad_scale)); }
  };
  Context context;
  auto w = with_gradient("w", {3, 4});
  Plain optimizer({w}, {.lr = 1});
  optimizer.step(0.5);
  try {
    optimizer.step(full({1}, 0.5, DType::f64));
    ADD_FAILURE() << "took an unclipped step";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("its update() did not multiply the gradient by Run::scale"),
              std::string::npos)
        << error.what();
  }
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
