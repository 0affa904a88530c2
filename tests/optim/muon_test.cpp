// Muon in a process without ranks; tests/fsdp/muon_test.cpp has sharded models.

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/muon.h>

#include "tests/autograd/support.h"
#include "tests/optim/muon_fixture.h"

namespace shardgrad::test {
namespace {

using optim::Muon;
using optim::MuonOptions;
using optim::MuonScale;

Tensor numbers(const Shape& shape, const std::function<double(double)>& formula) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(formula(double(i)));
  return from_vector(values, shape);
}

/// Weight and momentum after the fixture's steps.
struct Trained {
  std::vector<double> weight, momentum;
};
Trained train(const Shape& shape, MuonOptions options, double scale = 1) {
  Context context;
  Tensor w = numbers(shape, [](double i) { return std::sin(i + 1); }).set_requires_grad();
  Muon optimizer({{"w", w}}, options);
  for (int t = 0; t < 4; ++t) {
    w.set_grad(numbers(shape, [&](double i) { return std::cos(0.7 * i * i + t) * scale; }));
    optimizer.step(1 / scale);
  }
  return {values(w), values(optimizer.state_dict().at("w.momentum_buffer"))};
}

void expect_near(const Trained& ours, const std::vector<double>& weight, const std::vector<double>& momentum,
                 double tolerance) {
  expect_close(ours.weight, weight, tolerance, "weight");
  expect_close(ours.momentum, momentum, 1e-12, "momentum");
}

TEST(Muon, IsPyTorchsFormulaForEveryOption) {
  using namespace muon_fixture;
  expect_near(train({3, 5}, {.lr = 0.1}), wide, wide_momentum_buffer, 1e-11);
  expect_near(train({5, 3}, {.lr = 0.1}), tall, tall_momentum_buffer, 1e-11);
  expect_near(train({3, 5}, {.lr = 0.1, .weight_decay = 0, .momentum = 0.8, .nesterov = false}), plain_momentum,
              plain_momentum_momentum_buffer, 1e-11);
  expect_near(train({5, 3}, {.lr = 0.1, .weight_decay = 0.3, .adjust_lr = MuonScale::match_rms_adamw}), like_adamw,
              like_adamw_momentum_buffer, 1e-11);
  expect_near(train({3, 5}, {.lr = 0.1, .adjust_lr = MuonScale::spectral_unclamped}), unclamped,
              unclamped_momentum_buffer, 1e-11);
  expect_near(train({4, 4}, {.lr = 0.1, .ns_coefficients = {1.5, -0.5, 0}, .eps = 3, .ns_steps = 9}), cubic,
              cubic_momentum_buffer, 1e-11);
}

// Steps of size 0.1 whose products have 8 bits there.
TEST(Muon, IsNearPyTorchWhoseProductsAreOf16Bits) {
  expect_near(train({5, 3}, {.lr = 0.1}), muon_fixture::as_it_is, muon_fixture::as_it_is_momentum_buffer, 2e-2);
}

TEST(Muon, TheSingularValuesOfAStepAreNearOneWhateverThoseOfTheGradient) {
  Context context;
  for (auto [rows, columns] : {std::pair{6, 9}, {9, 6}, {7, 7}, {1, 5}}) {
    Tensor u = numbers({rows, columns}, [](double i) { return std::cos(0.7 * i * i) * std::exp(-0.05 * i) * 1e-4; });
    Tensor x = optim::orthogonalized(u, {}), gram = matmul(x, x, rows > columns, rows <= columns);
    std::vector<double> g = values(gram);
    auto n = size_t(std::min(rows, columns));
    for (size_t i = 0; i < n; ++i) {  // squares of what is about 0.7 to 1.2, and less of the smallest
      EXPECT_GT(g[i * n + i], 0.35) << rows << " x " << columns;
      EXPECT_LT(g[i * n + i], 1.5) << rows << " x " << columns;
    }
    // With these coefficients every step comes nearer.
    Tensor cubic = optim::orthogonalized(u, {.ns_coefficients = {1.5, -0.5, 0}, .ns_steps = 40});
    std::vector<double> exact = values(matmul(cubic, cubic, rows > columns, rows <= columns));
    for (size_t i = 0; i < n * n; ++i) EXPECT_NEAR(exact[i], i % (n + 1) == 0, 1e-9) << rows << " x " << columns;
  }
}

TEST(Muon, AGradientOfZeroMakesNoStepAndAnEmptyMatrixNone) {
  Context context;
  Tensor w = ones({3, 2}).set_requires_grad(), nothing = zeros({0, 4}).set_requires_grad();
  Muon optimizer({{"w", w}, {"nothing", nothing}}, {.lr = 0.1, .weight_decay = 0.5});
  w.set_grad(zeros({3, 2}));
  nothing.set_grad(zeros({0, 4}));
  optimizer.step();
  for (double v : values(w)) EXPECT_FLOAT_EQ(float(v), 0.95F) << "the decay alone";
}

TEST(Muon, GradScaleMultipliesTheGradient) {
  Trained expected = train({5, 3}, {.lr = 0.1});
  expect_near(train({5, 3}, {.lr = 0.1}, 1024), expected.weight, expected.momentum, 1e-12);
}

TEST(Muon, RulesScaleTheRateAndTheDecayOfSomeMatrices) {
  Context context;
  Tensor a = ones({2, 2}).set_requires_grad(), b = ones({2, 2}).set_requires_grad();
  Muon optimizer({{"a", a}, {"b", b}}, {.lr = 0.5, .weight_decay = 0.5}, {{"b", {.weight_decay = 1, .lr_scale = 0.5}}});
  for (const Tensor& each : {a, b}) each.set_grad(tensor({{1., 0.}, {0., 1.}}).to(DType::f32));
  optimizer.step();
  double step = (0.75 - values(a)[0]) / 0.5;
  EXPECT_NEAR(values(a)[1], 0.75, 1e-6);
  EXPECT_NEAR(values(b)[1], 0.75, 1e-6);
  EXPECT_NEAR(values(b)[0], 0.75 - 0.25 * step, 1e-6);
}

TEST(Muon, AStepNeedsAMatrixTwiceAndTheProductsOfItsShorterSide) {
  Context context;
  Tensor w = ones({8, 64}).set_requires_grad(), other = ones({8, 64}).set_requires_grad();
  Muon optimizer({{"w", w}, {"other", other}}, {});
  for (const Tensor& each : {w, other}) each.set_grad(randn({8, 64}, "g"));
  optimizer.step();
  EXPECT_GE(context.ledger().peak(Category::whole_tensor), 4 * 2 * 8 * 64);
  EXPECT_LE(context.ledger().peak(Category::whole_tensor), 4 * (2 * 8 * 64 + 3 * 8 * 8));
  EXPECT_EQ(context.ledger().current(Category::whole_tensor), 0);
}

// A scope of Autocast is for forward; a step may lie in one, too.
TEST(Muon, AScopeOfAutocastChangesNoBitOfAStep) {
  Context context;
  Tensor u = randn({9, 6}, "u");
  std::vector<double> expected = values(optim::orthogonalized(u, {}));
  Autocast narrow(DType::bf16);
  EXPECT_EQ(values(optim::orthogonalized(u, {})), expected);
}

TEST(Muon, WhatIsNoMatrixIsRefusedByNameWithTheRemedy) {
  Context context;
  Tensor bias = ones({3}).set_requires_grad(), kernel = ones({2, 2, 3, 3}).set_requires_grad(),
         w = ones({3, 3}).set_requires_grad();
  EXPECT_REFUSED(Muon({{"w", w}, {"fc.bias", bias}}, {}), "Muon: 'fc.bias' is [3] and no matrix");
  EXPECT_REFUSED(Muon({{"conv.weight", kernel}}, {}), "an optimizer of their own, such as AdamW");
  EXPECT_REFUSED(Muon({{"w", w, {0, 3, 6}}}, {}), "'w' is a part of a larger matrix");
}

TEST(Muon, OptionsThatMakeNoSenseAreRefusedByName) {
  Context context;
  auto refused = [](MuonOptions options, const char* says) {
    EXPECT_REFUSED(Muon({{"w", ones({2, 2}).set_requires_grad()}}, options), says);
  };
  refused({.lr = -1}, "Muon: lr = -1 is not possible");
  refused({.weight_decay = -1}, "Muon: weight_decay = -1");
  refused({.momentum = 1}, "Muon: momentum = 1");
  refused({.ns_coefficients = {1, NAN, 0}}, "Muon: ns_coefficients = nan");
  refused({.eps = 0}, "Muon: eps = 0");
  refused({.ns_steps = 100}, "Muon: ns_steps = 100");
  EXPECT_REFUSED(optim::parse_muon_scale("adam"), "none of original, match_rms_adamw, spectral_unclamped");
  for (const char* name : {"original", "match_rms_adamw", "spectral_unclamped"})
    EXPECT_STREQ(optim::name_of(optim::parse_muon_scale(name)), name);
}

TEST(Muon, StepsBesideAdamWForEverythingElse) {
  Context context;
  auto model = nn::make<nn::Linear>(4, 3);
  model->materialize();
  std::vector<NamedParameter> matrices, others;
  for (const NamedParameter& p : model->named_parameters()) (p.tensor.ndim() == 2 ? matrices : others).push_back(p);
  Muon muon(matrices, {.lr = 0.02});
  optim::AdamW adamw(others, {.lr = 0.02});
  Tensor x = randn({16, 4}, "x"), y = randn({16, 3}, "y");
  std::vector<double> losses;
  for (int step = 0; step < 40; ++step) {
    Tensor loss = mse_loss(model(x), y);
    losses.push_back(loss.item());
    loss.backward();
    for (optim::Optimizer* optimizer : std::initializer_list<optim::Optimizer*>{&muon, &adamw}) {
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  EXPECT_LT(losses.back(), 0.8 * losses.front());
}

}  // namespace
}  // namespace shardgrad::test
