#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

#include "tests/autograd/support.h"
#include "tests/nn/gradcheck_module.h"

namespace shardgrad {
namespace {

using Floats = std::vector<float>;
using test::bits;

TEST(Linear, IsAMatrixProductWithBias) {
  Context context;
  auto linear = nn::make<nn::Linear>(2, 3);
  linear->load_state_dict(
      {{"weight", from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2})}, {"bias", from_vector<float>({10, 20, 30}, {3})}});
  EXPECT_EQ(linear(from_vector<float>({1, 1, 2, 0}, {2, 2})).to_vector<float>(), (Floats{13, 27, 41, 12, 26, 40}));
  auto fused = nn::make<nn::Linear>(2, 3, true, Activation::relu);
  fused->load_state_dict(linear->state_dict());
  EXPECT_EQ(fused(from_vector<float>({-9, 1}, {1, 2})).to_vector<float>(), (Floats{3, 0, 0}));
}

TEST(Layers, FlattenAndSoftmaxTakeTheirDimensions) {
  Context context;
  Tensor x = randn({2, 3, 4});
  EXPECT_EQ(nn::make<nn::Flatten>()(x).shape(), (Shape{2, 12}));
  EXPECT_EQ(nn::make<nn::Flatten>(0, 1)(x).shape(), (Shape{6, 4}));
  EXPECT_EQ(nn::make<nn::Softmax>(1)(x).to_vector<float>(), softmax(x, 1).to_vector<float>());
  EXPECT_EQ(nn::make<nn::LogSoftmax>()(x).to_vector<float>(), log_softmax(x).to_vector<float>());
}

TEST(Linear, StartsWithPyTorchsSpread) {
  Context context;
  auto linear = nn::make<nn::Linear>(400, 300);
  linear->materialize();
  for (const NamedParameter& parameter : linear->named_parameters()) {
    float low = 0, high = 0;
    for (float v : parameter.tensor.to_vector<float>()) low = std::min(low, v), high = std::max(high, v);
    EXPECT_NEAR(low, -0.05, 1e-3) << parameter.name;
    EXPECT_NEAR(high, 0.05, 1e-3) << parameter.name;
  }
}

TEST(Layers, GradientsAgreeWithDifferences) {
  Context context;
  EXPECT_EQ(gradcheck_module(nn::make<nn::Linear>(5, 3), {4, 5}), 3u);
  EXPECT_EQ(gradcheck_module(nn::make<nn::Linear>(5, 3, false, Activation::gelu_tanh), {4, 5}), 2u);
  EXPECT_EQ(gradcheck_module(nn::make<nn::GELU>(), {4, 6}), 1u);
  EXPECT_EQ(gradcheck_module(nn::make<nn::Tanh>(), {4, 6}), 1u);
  EXPECT_EQ(gradcheck_module(nn::make<nn::Sigmoid>(), {4, 6}), 1u);
  EXPECT_EQ(gradcheck_module(nn::make<nn::SiLU>(), {4, 6}), 1u);
}

TEST(Sequential, RunsItsModulesInTurn) {
  Context context;
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(3, 4).add<nn::ReLU>().add_named<nn::Linear>("head", 4, 2);
  ASSERT_EQ(model->size(), 3u);
  Tensor x = randn({5, 3}, "x");
  Tensor y = model(x);
  nn::StateDict state = model->state_dict();
  Tensor by_hand =
      linear(relu(linear(x, state.at("0.weight"), state.at("0.bias"))), state.at("head.weight"), state.at("head.bias"));
  EXPECT_EQ(y.to_vector<float>(), by_hand.to_vector<float>());
}

TEST(Sequential, WhatIsAddedAfterMakeIsFilledUnderItsFullName) {
  Context context;
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(4, 4).add<nn::Linear>(4, 4);
  model(ones({1, 4}));
  nn::StateDict state = model->state_dict();
  EXPECT_EQ(state.at("1.weight").name(), "1.weight");
  EXPECT_NE(state.at("0.weight").to_vector<float>(), state.at("1.weight").to_vector<float>());
}

TEST(ModuleDict, FindsItsModulesByName) {
  struct Heads : nn::Module {
    nn::Child<nn::ModuleDict<nn::Linear>> heads = child<nn::ModuleDict<nn::Linear>>("heads");
    Heads() { heads->add("wide", 2, 3), heads->add("narrow", 2, 1); }
    Tensor forward(const Tensor& x, const std::string& which) { return heads.module()[which](x); }
  };
  Context context;
  auto model = nn::make<Heads>();
  EXPECT_EQ(model(ones({4, 2}), "narrow").shape(), (Shape{4, 1}));
  EXPECT_EQ(model->state_dict().count("heads.wide.weight"), 1u);
  EXPECT_TRUE(model->heads->contains("wide"));
  EXPECT_FALSE(model->heads->contains("tall"));
  EXPECT_REFUSED(model(ones({4, 2}), "tall"), "'tall'", "'wide', 'narrow'");
  EXPECT_REFUSED(model->heads->add("wide", 1, 1), "wide");
  std::string names;
  for (const auto& [name, head] : model->heads.module()) names += name;
  EXPECT_EQ(names, "widenarrow");
}

TEST(Losses, AsModulesAreTheFunctionsWithTheirOptions) {
  Context context;
  Tensor x = randn({4, 3}), target = rand({4, 3}), labels = randint(0, 3, {4}),
         weight = from_vector<float>({1, 2, 3}, {3});
  const LossOptions sums{.reduction = Reduction::sum};
  const ClassOptions classes{.weight = weight, .label_smoothing = 0.1};
  auto same = [](const Tensor& a, const Tensor& b) { EXPECT_EQ(bits(a), bits(b)); };
  same(nn::make<nn::BCEWithLogitsLoss>(sums, weight)(x, target),
       binary_cross_entropy_with_logits(x, target, sums, weight));
  same(nn::make<nn::MSELoss>(sums)(x, target), sum(square(x - target)));
  same(nn::make<nn::MSELoss>(LossOptions{.reduction = Reduction::none})(x, target), square(x - target));
  same(nn::make<nn::L1Loss>(sums)(x, target), l1_loss(x, target, sums));
  same(nn::make<nn::SmoothL1Loss>(0.5)(x, target), smooth_l1_loss(x, target, 0.5));
  same(nn::make<nn::HuberLoss>(0.5, sums)(x, target), huber_loss(x, target, 0.5, sums));
  same(nn::make<nn::KLDivLoss>()(x, target, 4), kl_div(x, target, {.count = 4}));
  auto of_samples = nn::make<nn::KLDivLoss>(LossOptions(), true);
  EXPECT_NEAR(of_samples(x, target).item(), kl_div(x, target, {.count = 4}).item(), 1e-6);
  same(of_samples(x, target, 8), kl_div(x, target, {.count = 8}));
  same(nn::make<nn::NLLLoss>(ClassOptions{.weight = weight})(x, labels), nll_loss(x, labels, {.weight = weight}));
  same(nn::make<nn::CrossEntropyLoss>(classes)(x, labels), cross_entropy(x, labels, classes));
  same(nn::make<nn::CrossEntropyLoss>()(x, labels, 8), cross_entropy(x, labels, 8));
}

TEST(Sequential, RunsHooksOfItsModules) {
  Context context;
  auto model = nn::make<nn::Sequential>();
  model->add<nn::ReLU>().add<nn::Tanh>();
  int calls = 0;
  for (const auto& child : model->children()) child.object->add_forward_hook([&](auto&, auto) { ++calls; });
  model(ones({2}));
  EXPECT_EQ(calls, 2);
}

TEST(Embedding, LooksUpRowsAndSumsGradientsOfRepeatedIds) {
  Context context;
  auto table = nn::make<nn::Embedding>(3, 2);
  table->load_state_dict({{"weight", from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2})}});
  Tensor y = table(from_vector<int64_t>({2, 0, 2, 2}, {2, 2}));
  EXPECT_EQ(y.shape(), Shape({2, 2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{5, 6, 1, 2, 5, 6, 5, 6}));
  sum(y).backward();
  EXPECT_EQ(table->weight.grad().to_vector<float>(), (Floats{1, 1, 0, 0, 3, 3}));
}

TEST(Embedding, APaddingRowCountsAsZerosAndIsNotTrained) {
  Context context;
  auto table = nn::make<nn::Embedding>(3, 2, nn::init::ones(), -2);
  Tensor y = table(tensor({0, 1, 2, 1}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 1, 0, 0, 1, 1, 0, 0}));
  sum(y).backward();
  EXPECT_EQ(table->weight.grad().to_vector<float>(), (Floats{1, 1, 0, 0, 1, 1}));
  EXPECT_REFUSED(nn::make<nn::Embedding>(3, 2, nn::init::ones(), 3), "no row 3 of 3");
}

// --- dropout -------------------------------------------------------------------------------------------------------

struct TwoDropouts : nn::Module {
  nn::Child<nn::Dropout> a = child<nn::Dropout>("a", 0.5), b = child<nn::Dropout>("b", 0.5);
  std::pair<Tensor, Tensor> forward(const Tensor& x) { return {a(x), b(x)}; }
};

TEST(Dropout, KeepsTheExpectedPartAndTheMean) {
  Context context;
  auto drop = nn::make<nn::Dropout>(0.3);
  Floats y = drop(ones({100, 400})).to_vector<float>();
  double kept = 0;
  for (float v : y) {
    EXPECT_TRUE(v == 0 || v == 1 / 0.7f);
    kept += v != 0;
  }
  EXPECT_NEAR(kept / 40000, 0.7, 0.01);  // more than four standard deviations
}

TEST(Dropout, EvaluationAndZeroProbabilityPassTheInputOn) {
  Context context;
  auto drop = nn::make<nn::Dropout>(0.3), none = nn::make<nn::Dropout>(0.0);
  drop->eval();
  Tensor x = ones({2, 2});
  EXPECT_TRUE(drop(x).same_as(x));
  EXPECT_TRUE(none(x).same_as(x));
  EXPECT_THROW(nn::make<nn::Dropout>(1.0), Error);
  EXPECT_THROW(nn::make<nn::Dropout>(-0.1), Error);
}

TEST(Dropout, TheMaskIsAFunctionOfStepModuleAndCall) {
  Context context;
  auto model = nn::make<TwoDropouts>();
  Tensor x = ones({8, 16});
  auto masks = [&](uint64_t step) {
    progress() = {step, 0};
    auto [a, b] = model(x);
    auto [again, unused] = model(x);
    return std::vector<Floats>{a.to_vector<float>(), b.to_vector<float>(), again.to_vector<float>()};
  };
  std::vector<Floats> first = masks(1);
  EXPECT_EQ(first, masks(1));     // the same place draws the same
  EXPECT_NE(first[0], first[1]);  // another module
  EXPECT_NE(first[0], first[2]);  // a second call in the pass
  EXPECT_NE(first, masks(2));     // another step
  EXPECT_NE(masks(2)[0], first[0]);
}

TEST(Dropout, I42_B42_EachRankDrawsItsRowsOfTheGlobalMask) {
  Context context;
  auto model = nn::make<TwoDropouts>();
  Tensor x = ones({8, 5});
  progress() = {3, 0};
  Floats whole = model(x).first.to_vector<float>(), joined;
  for (auto [begin, end] : {std::pair{0, 3}, {3, 4}, {4, 8}}) {
    progress() = {3, begin};
    for (float value : model(x.rows(begin, end)).first.to_vector<float>()) joined.push_back(value);
  }
  EXPECT_EQ(whole, joined);
}

TEST(Dropout, TwoThatAreRootsDrawDifferentMasks) {
  Context context;
  auto one = nn::make<nn::Dropout>(0.5), two = nn::make<nn::Dropout>(0.5);
  Tensor x = ones({64});
  progress() = {3};
  std::vector<Floats> masks;
  for (int i = 0; i < 2; ++i)
    for (const auto& drop : {one, two}) masks.push_back(drop(x).to_vector<float>());
  masks.push_back(dropout(x, 0.5).to_vector<float>());
  for (size_t i = 0; i < masks.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(masks[i], masks[j]) << i << " and " << j;
}

TEST(Dropout, BackwardUsesTheSameMask) {
  Context context;
  auto drop = nn::make<nn::Dropout>(0.5);
  Tensor x = ones({4, 8}).set_requires_grad();
  Tensor y = drop(x);
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());
}

// --- losses --------------------------------------------------------------------------------------------------------

TEST(Loss, UnevenPartsWithTheGlobalCountSumToTheLossOfTheWhole) {
  Context context;
  auto mse = nn::make<nn::MSELoss>();
  Tensor x = randn({5, 3}, "x"), target = randn({5, 3}, "t");
  double parts = 0;
  for (auto [begin, end] : {std::pair{0, 3}, {3, 5}})
    parts += mse(x.rows(begin, end), target.rows(begin, end), 15).item();
  EXPECT_NEAR(parts, mse(x, target).item(), 1e-6);
  auto entropy = nn::make<nn::CrossEntropyLoss>(-1);
  Tensor labels = from_vector<int64_t>({0, -1, 2, 1, 1}, {5});
  parts = 0;
  for (auto [begin, end] : {std::pair{0, 2}, {2, 5}})
    parts += entropy(x.rows(begin, end), labels.rows(begin, end), 4).item();
  EXPECT_NEAR(parts, entropy(x, labels).item(), 1e-6);
}

// Ranks add up their gradients: a mean of each rank's part would give gradients W times too large, without a word.
TEST(Loss, WithoutItsCountIsRefusedOnSeveralRanksWhereItIsRecorded) {
  Context context({.rank = 1, .world_size = 2});
  auto mse = nn::make<nn::MSELoss>();
  auto entropy = nn::make<nn::CrossEntropyLoss>();
  Tensor x = randn({4, 3}, "x").set_requires_grad(), target = zeros({4, 3}), labels = zeros({4}, DType::i64);
  auto expect_refused = [](const std::function<void()>& loss, const char* op) {
    EXPECT_REFUSED(loss(), op, "on 2 ranks a loss needs its count", "of the whole batch", "each rank trains by itself");
  };
  expect_refused([&] { mse(x, target); }, "mse_loss");
  expect_refused([&] { mse(target, x); }, "mse_loss");
  expect_refused([&] { mse(x.to(DType::bf16), target.to(DType::bf16)); }, "mse_loss");
  expect_refused([&] { entropy(x, labels); }, "cross_entropy");
  expect_refused([&] { cross_entropy(x, labels); }, "cross_entropy");
  expect_refused([&] { l1_loss(x, target); }, "l1_loss");
  expect_refused([&] { huber_loss(x, target); }, "huber_loss");
  expect_refused([&] { huber_loss(target, x); }, "huber_loss");
  expect_refused([&] { smooth_l1_loss(x, target); }, "smooth_l1_loss");
  expect_refused([&] { binary_cross_entropy_with_logits(x, target); }, "binary_cross_entropy_with_logits");
  expect_refused([&] { nll_loss(x, labels); }, "nll_loss");
  expect_refused([&] { cross_entropy(x, labels, ClassOptions{.label_smoothing = 0.1}); }, "cross_entropy");
  EXPECT_REFUSED(l1_loss(x, target, {.count = 0}), "l1_loss", "count 0", "over all ranks");
  l1_loss(x, target, {.reduction = Reduction::sum}).backward();
  mse(x, target, 24).backward();
  entropy(x, labels, 8).backward();
  EXPECT_NEAR(mse(x.detach(), target).item(), mse(x, target, 12).item(), 1e-6) << "nothing is recorded";
  NoGrad no_grad;
  EXPECT_NEAR(entropy(x, labels).item(), entropy(x, labels, 4).item(), 1e-6) << "nothing is recorded";
}

TEST(Loss, OfAFrozenModelNeedsNoCountAndInASingleProcessNoneDoes) {
  Context context;
  Tensor x = randn({4, 3}, "x").set_requires_grad();
  mse_loss(x, zeros({4, 3})).backward();
  Context several({.rank = 0, .world_size = 4});
  Tensor frozen = randn({4, 3}, "x");
  EXPECT_GT(mse_loss(frozen, zeros({4, 3})).item(), 0);
}

TEST(Loss, CrossEntropyOfEqualLogitsIsTheLogarithmOfTheClasses) {
  Context context;
  auto entropy = nn::make<nn::CrossEntropyLoss>();
  EXPECT_NEAR(entropy(zeros({4, 10}), from_vector<int64_t>({0, 1, 2, 3}, {4})).item(), std::log(10.0), 1e-6);
}

}  // namespace
}  // namespace shardgrad
