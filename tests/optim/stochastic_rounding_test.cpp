// Parameters in bf16, whose steps are rounded up or down by chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/sgd.h>

#include "tests/devices.h"
#include "tests/numbers.h"

namespace shardgrad {
namespace {

constexpr double kStep = 0x1p-12;  // a sixteenth of bf16's last place just below 1

Tensor narrow_ones(int64_t count) { return full({count}, 1, {DType::bf16, kCpu}).set_requires_grad(); }

std::vector<float> floats_of(const Tensor& tensor) { return tensor.detach().to(DType::f32).to_vector<float>(); }

double mean_of(const Tensor& tensor) {
  double sum = 0;
  for (float value : floats_of(tensor)) sum += double(value);
  return sum / double(tensor.numel());
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool has_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// --- the mean ------------------------------------------------------------------------------------------------------

TEST(StochasticRounding, StepsFarBelowTheLastPlaceMoveTheMeanAsInF32) {
  Context context;
  EXPECT_EQ(float(bf16(float(1 - kStep))), 1) << "rounded to nearest, no number would ever move";
  Tensor w = narrow_ones(65536);
  optim::SGD optimizer({{"w", w}}, {.lr = kStep, .stochastic_rounding = true});
  w.set_grad(full({65536}, 1, {DType::bf16, kCpu}));
  for (int step = 1; step <= 16; ++step) {
    optimizer.step();
    // Of one number the steps so far deviate by √(steps · 15/16 · 1/16) last places, the mean of 2^16 by a 256th of it.
    double deviation = std::sqrt(step * 15.0) / 16 * 0x1p-8 / 256;
    EXPECT_NEAR(mean_of(w), 1 - step * kStep, 5 * deviation) << step;
  }
}

TEST(StochasticRounding, AdamAndAdamWMoveTheMeanAsInF32) {
  Context context;
  auto expect_moved = [](auto make) {
    Tensor narrow = narrow_ones(65536), wide = full({1}, 1).set_requires_grad();
    auto optimizer = make({{"w", narrow}}, true), other = make({{"w", wide}}, false);
    narrow.set_grad(full({65536}, 1, {DType::bf16, kCpu}));
    wide.set_grad(ones({1}));
    for (int step = 0; step < 8; ++step) optimizer->step(), other->step();
    EXPECT_LT(wide.item(), 1 - 7e-4);
    EXPECT_NEAR(mean_of(narrow), wide.item(), 1e-4);
  };
  using Parameters = std::vector<NamedParameter>;
  expect_moved([](Parameters parameters, bool rounds) {
    optim::AdamOptions options{.lr = 1e-4, .weight_decay = 0.1, .stochastic_rounding = rounds};
    return std::make_unique<optim::Adam>(std::move(parameters), options);
  });
  expect_moved([](Parameters parameters, bool rounds) {
    optim::AdamOptions options{.lr = 1e-4, .weight_decay = 0.1, .stochastic_rounding = rounds};
    return std::make_unique<optim::AdamW>(std::move(parameters), options);
  });
}

// --- which bits are drawn ------------------------------------------------------------------------------------------

TEST(StochasticRounding, EachStepParameterAndPlaceHasBitsOfItsOwn) {
  auto moved = [](const std::string& name, int steps, uint64_t seed) {
    Context context({.seed = seed});
    Tensor w = narrow_ones(256);
    optim::SGD optimizer({{name, w}}, {.lr = 0, .stochastic_rounding = true});
    w.set_grad(full({256}, 1, {DType::bf16, kCpu}));
    for (int step = 1; step < steps; ++step) optimizer.step();  // which change nothing
    optimizer.set_lr(0x1p-9);
    optimizer.step();
    return floats_of(w);
  };
  std::vector<float> first = moved("a", 1, 0);
  auto ups = std::ranges::count(first, 1.0f);
  EXPECT_TRUE(ups > 80 && ups < 176) << ups << " of 256 numbers, which go up or down with the same chance";
  EXPECT_EQ(moved("a", 1, 0), first);
  EXPECT_NE(moved("a", 2, 0), first);
  EXPECT_NE(moved("b", 1, 0), first);
  EXPECT_EQ(moved("a", 1, 1), first) << "of another seed: ranks may have one each, and replicas stay replicas";
}

// Neighbours in memory, which would be updated together.
TEST(StochasticRounding, WhatLiesBesideAParameterChangesNoBitOfIt) {
  Context context;
  auto updated = [](const Tensor& w, const Tensor& grad) {
    w.set_grad(grad);
    return w;
  };
  Tensor both = full({600}, 1, {DType::bf16, kCpu}), grads = full({600}, 1, {DType::bf16, kCpu});
  Tensor a = updated(both.rows(0, 300).detach().set_requires_grad(), grads.rows(0, 300));
  Tensor b = updated(both.rows(300, 600).detach().set_requires_grad(), grads.rows(300, 600));
  Tensor alone = updated(narrow_ones(300), full({300}, 1, {DType::bf16, kCpu}));
  optim::AdamOptions options{.lr = 1e-3, .stochastic_rounding = true};
  optim::AdamW together({{"a", a}, {"b", b}}, options), other({{"b", alone}}, options);
  for (int step = 0; step < 3; ++step) together.step(), other.step();
  EXPECT_EQ(floats_of(b), floats_of(alone));
  EXPECT_NE(floats_of(a), floats_of(b));
}

TEST(StochasticRounding, APartOfALargerParameterHasBitsOfItsOwn) {
  Context context;
  auto moved = [](int64_t begin) {
    Tensor w = narrow_ones(256);
    optim::SGD optimizer({{"w", w, {0, begin, 512}}}, {.lr = 0x1p-9, .stochastic_rounding = true});
    w.set_grad(full({256}, 1, {DType::bf16, kCpu}));
    optimizer.step();
    return floats_of(w);
  };
  EXPECT_NE(moved(0), moved(256));
}

// Each step is exact in f32: what remains is how it is rounded.
std::vector<float> rounded_on(Device device, int threads) {
  Context context({.threads = threads, .device = device});
  Tensor w = test::uniform({100'001}, "w", {DType::bf16, kCpu}).to(device).set_requires_grad();
  optim::SGD optimizer({{"w", w}}, {.lr = 0x1p-10, .stochastic_rounding = true});
  Tensor grad = full({100'001}, 1, {DType::bf16, device});
  for (int step = 0; step < 3; ++step) {
    w.set_grad(grad);
    optimizer.step();
  }
  return floats_of(w);
}

TEST(StochasticRounding, EveryNumberOfThreadsGivesTheSameBits) {
  std::vector<float> expected = rounded_on(kCpu, 1);
  for (int threads : {2, 3}) EXPECT_EQ(rounded_on(kCpu, threads), expected) << threads;
}

// --- going on ------------------------------------------------------------------------------------------------------

TEST(StochasticRounding, AStateThatIsLoadedGoesOnWithTheSameBits) {
  Context context;
  auto grad = [](int step) { return test::normal({500}, concat("g", step), {DType::bf16, kCpu}); };
  auto train = [&](const Tensor& w, optim::Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      w.set_grad(grad(step));
      optimizer.step();
    }
  };
  optim::AdamOptions options{.lr = 1e-3, .stochastic_rounding = true};
  Tensor whole = narrow_ones(500), first = narrow_ones(500);
  optim::AdamW all({{"w", whole}}, options), begun({{"w", first}}, options);
  train(whole, all, 0, 6);
  train(first, begun, 0, 3);
  auto state = begun.state_dict();
  EXPECT_EQ(state.at("w.exp_avg").dtype(), DType::f32);
  Tensor second = clone(first.detach()).set_requires_grad();
  optim::AdamW resumed({{"w", second}}, options);
  resumed.load_state_dict(state);
  train(second, resumed, 3, 6);
  EXPECT_EQ(floats_of(second), floats_of(whole));
}

// --- beside others, and refused ------------------------------------------------------------------------------------

TEST(StochasticRounding, ChangesNothingOfParametersInF32BesideThoseInBf16) {
  Context context;
  Tensor narrow = narrow_ones(5), beside = ones({5}).set_requires_grad(), alone = ones({5}).set_requires_grad();
  optim::AdamW both({{"narrow", narrow}, {"wide", beside}}, {.lr = 1e-3, .stochastic_rounding = true});
  optim::AdamW other({{"wide", alone}}, {.lr = 1e-3});
  narrow.set_grad(full({5}, 1, {DType::bf16, kCpu}));
  beside.set_grad(ones({5})), alone.set_grad(ones({5}));
  both.step(), other.step();
  EXPECT_EQ(floats_of(beside), floats_of(alone));
  EXPECT_EQ(both.steps(), (std::map<std::string, int64_t>{{"narrow", 1}, {"wide", 1}}));
}

TEST(StochasticRounding, F16AndOtherOptimizersAreRefusedByName) {
  Context context;
  Tensor w = ones({2}), narrow = w.to(DType::bf16).set_requires_grad(), half = w.to(DType::f16).set_requires_grad();
  optim::AdamOptions adam{.stochastic_rounding = true};
  optim::SgdOptions sgd{.stochastic_rounding = true};
  for (const std::string& refusal : {refusal_of([&] {
                                       optim::AdamW({{"w", half}}, adam);
                                     }),
                                     refusal_of([&] {
                                       optim::Adam({{"w", half}}, adam);
                                     }),
                                     refusal_of([&] {
                                       optim::SGD({{"w", half}}, sgd);
                                     })})
    EXPECT_TRUE(has_text(refusal, "'w' is f16") && has_text(refusal, "stochastic_rounding is for bf16")) << refusal;
  for (const std::string& refusal : {refusal_of([&] {
                                       optim::AdamW({{"w", narrow}}, {});
                                     }),
                                     refusal_of([&] {
                                       optim::SGD({{"w", narrow}}, {});
                                     }),
                                     refusal_of([&] {
                                       optim::Lion({{"w", narrow}}, {});
                                     })})
    EXPECT_TRUE(has_text(refusal, "'w' is bf16") && has_text(refusal, "take bf16 with stochastic_rounding")) << refusal;
  std::vector<NamedParameter> parameters{{"w", narrow}};
  EXPECT_TRUE(has_text(refusal_of([&] { optim::EMA average(parameters); }), "'w' is bf16"));
  EXPECT_EQ(refusal_of([&] { optim::AdamW({{"w", narrow}}, adam); }), "");
}

TEST(StochasticRounding, AGradScaleCountsAsInF32) {
  Context context;
  auto moved = [](const std::function<void(optim::Optimizer&)>& step, float grad) {
    Tensor w = narrow_ones(300);
    optim::SGD optimizer({{"w", w}}, {.lr = kStep, .momentum = 0.5, .stochastic_rounding = true});
    w.set_grad(full({300}, grad, {DType::bf16, kCpu}));
    step(optimizer);
    return floats_of(w);
  };
  auto plain = moved([](optim::Optimizer& optimizer) { optimizer.step(); }, 4);
  EXPECT_EQ(moved([](optim::Optimizer& optimizer) { optimizer.step(0.25); }, 16), plain);
  auto scale = [](optim::Optimizer& optimizer) { optimizer.step(full({1}, 0.25, {DType::f64, kCpu})); };
  EXPECT_EQ(moved(scale, 16), plain);
}

// --- devices -------------------------------------------------------------------------------------------------------

class RoundingDevices : public ::testing::TestWithParam<Device> {};

TEST_P(RoundingDevices, HaveTheBitsOfTheCpu) { EXPECT_EQ(rounded_on(GetParam(), 1), rounded_on(kCpu, 1)); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RoundingDevices);
INSTANTIATE_TEST_SUITE_P(All, RoundingDevices, ::testing::ValuesIn(test::kernel_devices()), test::device_name);

}  // namespace
}  // namespace shardgrad
