#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/grad_scaler.h>

#include <tests/numbers.h>

namespace shardgrad::optim {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Model {
  Tensor w = test::normal({5}, "w").set_requires_grad(), b = test::normal({3}, "b").set_requires_grad();
  AdamW optimizer{{{"w", w}, {"b", b}}, {.lr = 0.1}};
  void give(float value) {
    w.set_grad(full({5}, value));
    b.set_grad(full({3}, 1));
  }
  std::vector<std::vector<float>> all() {
    std::vector<std::vector<float>> values;
    for (auto& [name, tensor] : optimizer.state_dict()) values.push_back(tensor.to(DType::f32).to_vector<float>());
    values.push_back(w.to_vector<float>());
    return values;
  }
};

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GradScaler, AScaleOfAPowerOfTwoChangesNoBit) {
  Context context;
  auto train = [](bool scaled) {
    Model model;
    GradScaler scaler({.init_scale = 1024, .growth_interval = 2, .enabled = scaled});
    for (int step = 0; step < 5; ++step) {
      scaler.scale(sum(mul(model.w, model.w)) + sum(exp(model.b))).backward();
      EXPECT_TRUE(scaler.step(model.optimizer));
      scaler.update();
      model.optimizer.zero_grad();
    }
    EXPECT_EQ(scaler.factor(), scaled ? 4096 : 1);
    return model.all();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(GradScaler, I15_AnOverflowLeavesEverythingUntouchedAndHalvesTheScaleOnce) {
  Context context;
  for (float bad : {kInf, -kInf, std::nanf("")}) {
    Model model;
    GradScaler scaler({.init_scale = 8, .growth_interval = 3});
    model.give(1);
    EXPECT_TRUE(scaler.step(model.optimizer));
    scaler.update();
    auto before = model.all();
    model.give(1);
    model.w.grad().data<float>()[4] = bad;
    EXPECT_FALSE(scaler.step(model.optimizer));
    scaler.update();
    EXPECT_EQ(model.all(), before);
    EXPECT_EQ(scaler.factor(), 4);
    for (int good = 1; good <= 7; ++good) {
      model.give(1);
      EXPECT_TRUE(scaler.step(model.optimizer));
      scaler.update();
      EXPECT_EQ(scaler.factor(), good < 3 ? 4 : good < 6 ? 8 : 16) << "it grows after exactly three good steps";
    }
  }
}

TEST(GradScaler, TheFactorOfTheStepIsDividedByTheScale) {
  Context context;
  Model plain, scaled;
  plain.give(0.5f);
  plain.optimizer.step(0.25);
  GradScaler scaler({.init_scale = 16});
  scaled.give(8);
  scaled.b.set_grad(full({3}, 16));
  EXPECT_TRUE(scaler.finite(scaled.optimizer));
  scaler.step(scaled.optimizer, 0.25);
  EXPECT_EQ(scaled.all(), plain.all());
}

TEST(GradScaler, UnscaledGradientsAreClippedAndSteppedWithAsTheyAre) {
  Context context;
  auto train = [](bool unscaled) {
    Model model;
    GradScaler scaler({.init_scale = 1024});
    model.give(unscaled ? 2048 : 2);
    model.b.set_grad(full({3}, unscaled ? 512 : 0.5));
    if (unscaled) scaler.unscale(model.optimizer);
    EXPECT_EQ(model.w.grad().to_vector<float>(), std::vector<float>(5, 2));
    EXPECT_EQ(model.b.grad().to_vector<float>(), std::vector<float>(3, 0.5F));
    unscaled ? static_cast<void>(scaler.step(model.optimizer)) : model.optimizer.step();
    return model.all();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(GradScaler, UnscalingLooksForAnOverflowAndIsDoneOnce) {
  Context context;
  Model model;
  GradScaler scaler({.init_scale = 8});
  model.give(kInf);
  auto before = model.all();
  scaler.unscale(model.optimizer);
  EXPECT_NE(refusal([&] { scaler.unscale(model.optimizer); }).find("unscale() after another one"), std::string::npos);
  EXPECT_EQ(model.w.grad().to_vector<float>(), std::vector<float>(5, 0)) << "which has a norm";
  EXPECT_FALSE(scaler.step(model.optimizer));
  EXPECT_NE(refusal([&] { scaler.unscale(model.optimizer); }).find("unscale() after step()"), std::string::npos);
  EXPECT_EQ(model.all(), before);
  scaler.update();
  EXPECT_EQ(scaler.factor(), 4);
  model.give(8);
  scaler.unscale(model.optimizer);
  EXPECT_EQ(model.w.grad().to_vector<float>(), std::vector<float>(5, 2));
  GradScaler off({.enabled = false});
  off.unscale(model.optimizer);
  EXPECT_EQ(model.w.grad().to_vector<float>(), std::vector<float>(5, 2));
}

TEST(GradScaler, ItDoesNotGrowPastWhatAnF32LossCanBeMultipliedWith) {
  Context context;
  Model model;
  GradScaler scaler({.init_scale = 0x1p127, .growth_interval = 1});
  model.give(1);
  scaler.step(model.optimizer);
  scaler.update();
  EXPECT_EQ(scaler.factor(), 0x1p127);
}

TEST(GradScaler, B40_OneOverflowInAnyOptimizerOrOnAnyRankCounts) {
  Context context;
  Model good, bad;
  int asked = 0;
  double elsewhere = 0;
  GradScaler scaler({.init_scale = 8, .growth_interval = 100},
                    [&](double mine, const Optimizer&) { return ++asked, mine + elsewhere; });
  good.give(1);
  bad.give(kInf);
  EXPECT_TRUE(scaler.finite(good.optimizer));
  EXPECT_TRUE(scaler.step(good.optimizer));
  EXPECT_FALSE(scaler.step(bad.optimizer));
  EXPECT_EQ(asked, 2) << "once for each optimizer";
  scaler.update();
  EXPECT_EQ(scaler.factor(), 4);
  for (double overflows : {1.0, 2.0, 3.0}) {  // on other ranks
    elsewhere = overflows;
    good.give(1);
    EXPECT_FALSE(scaler.step(good.optimizer));
    scaler.update();
  }
  EXPECT_EQ(scaler.factor(), 0.5);
  elsewhere = 0;
  good.w.zero_grad();
  good.b.zero_grad();
  asked = 0;
  EXPECT_TRUE(scaler.finite(good.optimizer)) << "a rank without gradients joins the decision";
  EXPECT_EQ(asked, 1);
}

TEST(GradScaler, WrongUseIsRefused) {
  Context context;
  Model model;
  GradScaler scaler;
  EXPECT_NE(refusal([&] { scaler.update(); }).find("step(optimizer) first"), std::string::npos);
  model.give(1);
  scaler.step(model.optimizer);
  EXPECT_NE(refusal([&] { scaler.step(model.optimizer); }).find("second time"), std::string::npos);
  EXPECT_NE(refusal([] { GradScaler({.growth_factor = 1}); }).find("growth_factor"), std::string::npos);
  EXPECT_NE(refusal([] { GradScaler({.backoff_factor = 1}); }).find("backoff_factor"), std::string::npos);
  EXPECT_NE(refusal([] { GradScaler({.init_scale = 0}); }).find("init_scale"), std::string::npos);
  EXPECT_NE(refusal([] { GradScaler({.growth_interval = 0}); }).find("growth_interval"), std::string::npos);
}

TEST(GradScaler, ItsStateContinuesARun) {
  Context context;
  Model model;
  GradScaler first({.init_scale = 8, .growth_interval = 3});
  for (int i = 0; i < 2; ++i) {
    model.give(1);
    first.step(model.optimizer);
    first.update();
  }
  GradScaler second({.growth_interval = 3});
  second.load_state(first.state());
  EXPECT_EQ(second.factor(), 8);
  model.give(1);
  second.step(model.optimizer);
  second.update();
  EXPECT_EQ(second.factor(), 16);
  GradScaler shorter({.growth_interval = 1});  // more good steps were counted than it needs
  shorter.load_state(first.state());
  shorter.step(model.optimizer);
  shorter.update();
  EXPECT_EQ(shorter.factor(), 16);
}

TEST(GradScaler, GradientsOnAnAsynchronousDevice) {
  Context context({.device = kAcc});
  Model model;
  GradScaler scaler({.init_scale = 8});
  model.give(1);
  EXPECT_TRUE(scaler.step(model.optimizer));
  scaler.update();
  model.give(kInf);
  EXPECT_FALSE(scaler.step(model.optimizer));
}

}  // namespace
}  // namespace shardgrad::optim
