#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/sgd.h>

#include "tests/optim/torch_fixture.h"

namespace shardgrad {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Tensor parameter(const std::vector<float>& values) {
  return from_vector(values, {int64_t(values.size())}).set_requires_grad();
}

// Autocast keeps the copy of a parameter that is used again, until it changes.
TEST(Optimizer, AStepInAScopeOfAutocastIsSeenByTheNextUse) {
  Context context;
  Tensor w = from_vector<float>({1, 2, 3, 4}, {2, 2}).set_requires_grad(), x = ones({1, 2});
  optim::SGD sgd({{"w", w}}, {.lr = 0.5});
  optim::AdamW adam({{"w", w}}, {.lr = 0.5});
  auto seen = [](const Tensor& y) { return y.detach().to(DType::f32).to_vector<float>(); };
  Autocast scope(DType::bf16);
  for (optim::Optimizer* optimizer : {static_cast<optim::Optimizer*>(&sgd), static_cast<optim::Optimizer*>(&adam)}) {
    Tensor y;
    for (int i = 0; i < 3; ++i) y = linear(x, w, Tensor());
    EXPECT_GT(context.ledger().current(Category::converted_parameter), 0);
    sum(y).backward();
    optimizer->step(), optimizer->zero_grad();
    Tensor expected = linear(x.to(DType::bf16), w.detach().to(DType::bf16), Tensor());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(seen(linear(x, w, Tensor())), seen(expected));
    EXPECT_NE(seen(y), seen(expected));
  }
}

// --- formulas ------------------------------------------------------------------------------------------------------

constexpr int kCount = 9, kSteps = 5;

Tensor numbers(const std::function<double(int)>& formula) {
  std::vector<double> values;
  for (int i = 0; i < kCount; ++i) values.push_back(formula(i));
  return from_vector(values, {kCount});
}

using State = std::map<std::string, std::vector<double>>;

/// Runs the fixture's problem and returns weight "w" and every state tensor.
template <class Optimizer, class Options> State run(Options options) {
  Context context;
  Tensor w = numbers([](int i) { return std::sin(i + 1.0); }).set_requires_grad();
  Optimizer optimizer({{"w", w}}, options);
  for (int t = 0; t < kSteps; ++t) {
    w.set_grad(numbers([&](int i) { return std::cos(0.7 * i + t); }));
    optimizer.step();
  }
  State result{{"w", w.to_vector<double>()}};
  for (auto& [name, tensor] : optimizer.state_dict())
    if (tensor.dtype() == DType::f64 && name != "w.lr") result[name] = tensor.template to_vector<double>();
  return result;
}

void expect_close(const State& ours, const State& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (auto& [name, values] : theirs) {
    double largest = 0;
    for (double v : values) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(ours.at(name)[i], values[i], 1e-12 * largest) << name << i;
  }
}

TEST(Optimizer, SgdEqualsPyTorch) {
  using namespace torch_fixture;
  using optim::SGD;
  using Options = optim::SgdOptions;
  expect_close(run<SGD>(Options{.lr = 0.1}), {{"w", sgd}});
  expect_close(run<SGD>(Options{.lr = 0.1, .weight_decay = 0.03}), {{"w", sgd_decay}});
  expect_close(run<SGD>(Options{.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.03}),
               {{"w", sgd_momentum}, {"w.momentum_buffer", sgd_momentum_momentum_buffer}});
  expect_close(run<SGD>(Options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.03, .nesterov = true}),
               {{"w", sgd_nesterov}, {"w.momentum_buffer", sgd_nesterov_momentum_buffer}});
}

TEST(Optimizer, AdamAndAdamWEqualPyTorch) {
  using namespace torch_fixture;
  expect_close(run<optim::Adam>(optim::AdamOptions{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6}),
               {{"w", adam}, {"w.exp_avg", adam_exp_avg}, {"w.exp_avg_sq", adam_exp_avg_sq}});
  expect_close(run<optim::Adam>(optim::AdamOptions{.lr = 0.05, .weight_decay = 0.1}),
               {{"w", adam_decay}, {"w.exp_avg", adam_decay_exp_avg}, {"w.exp_avg_sq", adam_decay_exp_avg_sq}});
  expect_close(run<optim::AdamW>(optim::AdamOptions{.lr = 0.05, .weight_decay = 0.1}),
               {{"w", adamw}, {"w.exp_avg", adamw_exp_avg}, {"w.exp_avg_sq", adamw_exp_avg_sq}});
}

TEST(Optimizer, RmspropAndAdagradEqualPyTorch) {
  using namespace torch_fixture;
  expect_close(run<optim::RMSprop>(optim::RmspropOptions{.lr = 0.05, .alpha = 0.9, .weight_decay = 0.03}),
               {{"w", rmsprop}, {"w.square_avg", rmsprop_square_avg}});
  expect_close(run<optim::RMSprop>(optim::RmspropOptions{.lr = 0.05, .eps = 1e-6, .momentum = 0.8}),
               {{"w", rmsprop_momentum},
                {"w.square_avg", rmsprop_momentum_square_avg},
                {"w.momentum_buffer", rmsprop_momentum_momentum_buffer}});
  expect_close(run<optim::Adagrad>(optim::AdagradOptions{.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.03}),
               {{"w", adagrad}, {"w.sum", adagrad_sum}});
  State initial = run<optim::Adagrad>(optim::AdagradOptions{.lr = 0.1, .initial_accumulator_value = 0.5});
  for (double& sum : initial.at("w.sum")) sum += 0.5;
  expect_close(initial, {{"w", adagrad_initial}, {"w.sum", adagrad_initial_sum}});
}

TEST(Optimizer, LionStepsByTheSignOfItsAverage) {
  std::vector<double> w(kCount), average(kCount);
  for (int i = 0; i < kCount; ++i) w[size_t(i)] = std::sin(i + 1.0);
  for (int t = 0; t < kSteps; ++t)
    for (int i = 0; i < kCount; ++i) {
      double g = std::cos(0.7 * i + t), &m = average[size_t(i)], step = 0.8 * m + 0.2 * g;
      w[size_t(i)] -= 0.01 * (0.1 * w[size_t(i)] + (step > 0 ? 1 : -1));
      m = 0.95 * m + 0.05 * g;
    }
  expect_close(run<optim::Lion>(optim::LionOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1}),
               {{"w", w}, {"w.exp_avg", average}});
}

TEST(Optimizer, GradScaleMultipliesTheGradient) {
  Context context;
  Tensor a = parameter({1, 2}), b = parameter({1, 2});
  optim::SGD one({{"a", a}}, {.lr = 0.5}), other({{"b", b}}, {.lr = 0.5});
  a.set_grad(from_vector<float>({2, 4}, {2}));
  b.set_grad(from_vector<float>({8, 16}, {2}));
  one.step();
  other.step(0.25);
  EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
  EXPECT_THROW(one.step(NAN), Error);
}

TEST(Optimizer, AStepIsTheEndOfTheRecordersStep) {
  Context context;
  Recorder& recorder = context.recorder();
  auto pass = [&] {
    uint64_t first = recorder.begin({.op = "all_gather", .phase = "forward"});
    for (int i = 0; i < 10'000; ++i) recorder.instant({.op = "reduce_scatter", .phase = "backward"});
    return first;
  };
  Tensor p = parameter({1});
  optim::SGD optimizer({{"p", p}}, {.lr = 1});
  uint64_t before = pass(), first = pass();
  EXPECT_TRUE(recorder.record(before)) << "a second micro-batch";
  p.set_grad(from_vector<float>({1}, {1}));
  optimizer.step();
  pass();
  EXPECT_FALSE(recorder.record(first));
}

TEST(Optimizer, AParameterWithoutGradientStaysAsItIsAndKeepsItsOwnStepCount) {
  Context context;
  Tensor a = parameter({1}), b = parameter({1});
  optim::AdamW optimizer({{"a", a}, {"b", b}}, {.lr = 0.1});
  a.set_grad(ones({1}));
  optimizer.step();
  EXPECT_EQ(b.item(), 1);
  b.set_grad(ones({1}));
  optimizer.step();
  EXPECT_EQ(optimizer.steps(), (std::map<std::string, int64_t>{{"a", 2}, {"b", 1}}));
  EXPECT_NEAR(b.item(), 1 - 0.1 * 0.01 - 0.1, 1e-6);  // the first step of Adam has size lr
}

TEST(Optimizer, TwoParametersOfOneNameAreRefusedWhoseStateWouldBeOne) {
  Context context;
  Tensor a = ones({2}).set_requires_grad(), b = ones({2}).set_requires_grad();
  try {
    optim::AdamW optimizer({{"weight", a}, {"weight", b}}, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("two parameters have the name 'weight'"), std::string::npos);
  }
}

TEST(Optimizer, AFrozenParameterIsLeftAlone) {
  Context context;
  Tensor a = parameter({1}), frozen = ones({1});
  optim::AdamW optimizer({{"a", a}, {"frozen", frozen}}, {});
  a.set_grad(ones({1}));
  optimizer.step();
  EXPECT_EQ(frozen.item(), 1);
  EXPECT_EQ(context.ledger().current(Category::optimizer_state), 8);
}

TEST(Optimizer, SetLrActsFromTheNextStep) {
  Context context;
  Tensor a = parameter({0});
  optim::SGD optimizer({{"a", a}}, {.lr = 1});
  a.set_grad(ones({1}));
  optimizer.step();
  optimizer.set_lr(0.25);
  optimizer.step();
  EXPECT_EQ(a.item(), -1.25);
  EXPECT_THROW(optimizer.set_lr(-1), Error);
}

TEST(Optimizer, AParameterHasALearningRateOfItsOwnOnceItIsSet) {
  Context context;
  Tensor a = parameter({0}), b = parameter({0});
  optim::SGD optimizer({{"a", a}, {"b", b}}, {.lr = 1, .weight_decay = 0}, {{"b", {.lr_scale = 0.5}}});
  for (Tensor each : {a, b}) each.set_grad(ones({1}));
  EXPECT_EQ(optimizer.lr_of(0), 1);
  EXPECT_EQ(optimizer.lr_of(1), 0.5);
  optimizer.set_lr_of(1, 4);
  optimizer.step();
  EXPECT_EQ(a.item(), -1);
  EXPECT_EQ(b.item(), -4);
  optimizer.set_lr(0.5);  // the ratio stays
  optimizer.step();
  EXPECT_EQ(a.item(), -1.5);
  EXPECT_EQ(b.item(), -6);
  optimizer.set_lr(0);  // where a schedule begins, which may set each rate
  optimizer.set_lr_of(1, 1);
  optimizer.step();
  EXPECT_EQ(a.item(), -1.5);
  EXPECT_EQ(b.item(), -7);
  EXPECT_THROW(optimizer.set_lr_of(0, -1), Error);
  EXPECT_EQ(optimizer.weight_decay_of(0), 0);
}

TEST(Optimizer, ANumberThatNoParameterHasIsRefused) {
  Context context;
  optim::SGD optimizer({{"a", parameter({0})}, {"b", parameter({0})}}, {.lr = 1});
  const std::function<void()> asks[] = {[&] { optimizer.lr_of(2); }, [&] { optimizer.set_lr_of(2, 1); },
                                        [&] { optimizer.weight_decay_of(2); }, [&] { optimizer.has_state(2); }};
  for (const auto& ask : asks)
    EXPECT_EQ(error_of(ask), "SGD: there is no parameter number 2; parameters() are 2, which count from 0");
}

// Neighbours in memory, which one kernel would update.
TEST(Optimizer, NeighboursWithOneLearningRateEachAreUpdatedApart) {
  Context context;
  Tensor both = zeros({2}), a = both.rows(0, 1).detach(), b = both.rows(1, 2).detach(), grad = ones({2});
  a.set_requires_grad(), b.set_requires_grad();
  optim::SGD optimizer({{"a", a}, {"b", b}}, {.lr = 1});
  a.set_grad(grad.rows(0, 1)), b.set_grad(grad.rows(1, 2));
  optimizer.set_lr_of(1, 3);
  optimizer.step();
  EXPECT_EQ(both.to_vector<float>(), (std::vector<float>{-1, -3}));
}

TEST(Optimizer, ZeroGradFreesTheMemory) {
  Context context;
  Tensor a = parameter({1, 2, 3});
  optim::SGD optimizer({{"a", a}}, {});
  int64_t before = context.ledger().current();
  a.set_grad(ones({3}));
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(context.ledger().current(), before);
}

// --- rules ---------------------------------------------------------------------------------------------------------

TEST(Rules, BiasesMayGoWithoutDecay) {
  Context context;
  Tensor weight = parameter({1}), bias = parameter({1});
  optim::AdamW optimizer({{"fc.weight", weight}, {"fc.bias", bias}}, {.lr = 0.1, .weight_decay = 0.5},
                         {{"*.bias", {.weight_decay = 0}}});
  weight.set_grad(zeros({1}));
  bias.set_grad(zeros({1}));
  optimizer.step();
  EXPECT_FLOAT_EQ(float(weight.item()), 0.95f);
  EXPECT_EQ(bias.item(), 1);
}

TEST(Rules, TheFirstMatchWinsAndScalesTheLearningRate) {
  Context context;
  Tensor head = parameter({0}), body = parameter({0});
  optim::SGD optimizer({{"head.weight", head}, {"body.weight", body}}, {.lr = 1},
                       {{"head.*", {.lr_scale = 0.5}}, {"*.weight", {.lr_scale = 2}}});
  for (Tensor each : {head, body}) each.set_grad(ones({1}));
  optimizer.step();
  EXPECT_EQ(head.item(), -0.5);
  EXPECT_EQ(body.item(), -2);
}

TEST(Rules, ARuleThatMatchesNothingIsRefused) {
  Context context;
  EXPECT_EQ(error_of([] {
              optim::SGD({{"fc.weight", parameter({1})}}, {}, {{"*.bais", {.weight_decay = 0}}});
            }),
            "SGD: the rule '*.bais' applies to no parameter; the first one is named 'fc.weight'");
}

// --- refusals ------------------------------------------------------------------------------------------------------

TEST(Optimizer, OptionsThatMakeNoSenseAreRefusedByName) {
  Context context;
  auto sgd = [](optim::SgdOptions options) { return error_of([&] { optim::SGD({{"w", parameter({1})}}, options); }); };
  auto adam = [](optim::AdamOptions options) {
    return error_of([&] { optim::Adam({{"w", parameter({1})}}, options); });
  };
  double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(sgd({.lr = -0.1}), "SGD: lr = -0.1 is not possible");
  EXPECT_EQ(sgd({.lr = nan}), "SGD: lr = nan is not possible");
  EXPECT_EQ(sgd({.lr = 0}), "no error") << "where a schedule begins";
  EXPECT_EQ(sgd({.momentum = -1}), "SGD: momentum = -1 is not possible");
  EXPECT_EQ(sgd({.weight_decay = -1}), "SGD: weight_decay = -1 is not possible");
  EXPECT_EQ(sgd({.nesterov = true}), "SGD: nesterov needs momentum > 0 and dampening = 0, got 0 and 0");
  EXPECT_EQ(adam({.lr = INFINITY}), "Adam: lr = inf is not possible");
  EXPECT_EQ(adam({.beta1 = 1}), "Adam: beta1 = 1 is not possible");
  EXPECT_EQ(adam({.beta2 = -0.1}), "Adam: beta2 = -0.1 is not possible");
  EXPECT_EQ(adam({.eps = 0}), "Adam: eps = 0 is not possible");
  EXPECT_EQ(adam({}), "no error");
}

TEST(Optimizer, NoParametersTwoOfOneAndNoGradientAreRefused) {
  Context context;
  Tensor a = parameter({1});
  EXPECT_EQ(error_of([] { optim::SGD({}, {}); }), "SGD: there are no parameters to optimize");
  EXPECT_EQ(error_of([&] { optim::SGD({{"a", a}, {"b", a}}, {}); }), "SGD: 'b' is given twice");
  EXPECT_EQ(error_of([&] {
              optim::SGD({{"a", a}}, {}).step();
            }),
            "SGD: no parameter has a gradient; call backward() before step()");
}

TEST(Optimizer, A16BitParameterIsRefusedWhenItIsMadeAndNoStepIsCounted) {
  Context context;
  Tensor w = parameter({1, 2});
  for (DType dtype : {DType::bf16, DType::f16}) {
    Tensor narrow = w.detach().to(dtype).set_requires_grad();
    for (const std::string& message : {error_of([&] {
                                         optim::SGD({{"w", w}, {"fc.weight", narrow}}, {});
                                       }),
                                       error_of([&] {
                                         optim::AdamW({{"fc.weight", narrow}}, {});
                                       })})
      for (const std::string& part :
           {concat("'fc.weight' is ", dtype), std::string("Autocast"), std::string("param_dtype")})
        EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  Tensor thawed = w.detach().to(DType::bf16);
  optim::AdamW optimizer({{"w", w}, {"thawed", thawed}}, {});
  thawed.set_requires_grad();
  sum(w * thawed.to(DType::f32)).backward();
  EXPECT_NE(error_of([&] { optimizer.step(); }).find("'thawed' is bf16"), std::string::npos);
  EXPECT_EQ(optimizer.steps(), (std::map<std::string, int64_t>{{"thawed", 0}, {"w", 0}}));
}

/// Cannot update values that are 13.
class Superstitious : public optim::Optimizer {
 public:
  explicit Superstitious(std::vector<NamedParameter> parameters)
      : Optimizer("Superstitious", std::move(parameters), 1, 0, {}, {}) {}
  std::vector<int64_t> steps_of_runs;

 private:
  void update(Run& run) override {
    SG_CHECK(run.values.item() != 13, "boom");
    launch(kernels::copy, run.values, out(run.values), run.grad);
    steps_of_runs.push_back(run.step);
  }
};

TEST(Optimizer, AStepThatFailsHalfwayCountsWhatItUpdated) {
  Context context;
  Tensor a = parameter({13}), b = parameter({1});
  Superstitious optimizer({{"a", a}, {"b", b}});
  sum(a + b).backward();
  Tensor before = sum(b * b);
  for (int64_t failed : {1, 2, 3}) {
    EXPECT_EQ(error_of([&] { optimizer.step(); }), "boom");
    EXPECT_EQ(optimizer.steps(), (std::map<std::string, int64_t>{{"a", 0}, {"b", failed}})) << "b comes first";
  }
  EXPECT_NE(error_of([&] { before.backward(); }).find("changed in place"), std::string::npos);
  fill_(a.detach(), 0);
  optimizer.step();
  EXPECT_EQ(optimizer.steps_of_runs, (std::vector<int64_t>{1, 2, 3, 4, 1}));
}

TEST(Optimizer, StateOfAnotherDeviceOrDtypeIsRefusedByName) {
  Context context;
  auto model = nn::make<nn::Linear>(2, 1);
  auto step = [&](optim::Optimizer& optimizer, TensorOptions options) {
    sum(model(ones({1, 2}, options))).backward();
    optimizer.step();
  };
  optim::AdamW early(model->named_parameters(), {});
  model->to(DType::f64);
  step(early, DType::f64);  // it had no state yet
  model->to(DType::f32);
  EXPECT_NE(error_of([&] { step(early, DType::f32); }).find("'weight' went to another device or dtype"),
            std::string::npos);
  optim::AdamW late(model->named_parameters(), {});
  step(late, DType::f32);
  model->to(kAcc);
  EXPECT_NE(error_of([&] { step(late, kAcc); }).find("whose state is still f32 on cpu"), std::string::npos);
}

// What 20 steps write to standard error, with every parameter in the loss from step `used_from` on.
std::string said(int used_from, int steps = 20) {
  Tensor used = parameter({1}), spare = parameter({1}), frozen = from_vector<float>({1}, {1});
  optim::SGD optimizer({{"used", used}, {"head.spare", spare}, {"frozen", frozen}}, {.lr = 0.1});
  ::testing::internal::CaptureStderr();
  for (int step = 0; step < steps; ++step) {
    sum(step >= used_from ? used * spare : used * 2).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(Optimizer, AParameterThatNeverHadAGradientIsNamedOnce) {
  {
    Context context;
    EXPECT_EQ(said(100, 60),
              "shardgrad: warning: SGD: no gradient in 20 steps for 'head.spare', so nothing trains there; use it in "
              "forward, freeze it with set_requires_grad(false), or leave it out of the optimizer\n");
    EXPECT_EQ(said(100, 19), "");
    EXPECT_EQ(said(12), "");
  }
  Context other({.rank = 1, .world_size = 2});
  EXPECT_EQ(said(100), "") << "rank 0 says it for all";
}

TEST(Optimizer, ForwardStepBackwardIsRefusedByName) {
  Context context;
  Tensor w = parameter({1, 2});
  w.set_name("fc.weight");
  optim::SGD optimizer({{"fc.weight", w}}, {.lr = 0.1});
  Tensor x = ones({2}).set_requires_grad();
  sum(w * x).backward();
  Tensor loss = sum(w * x);
  optimizer.step();
  EXPECT_NE(error_of([&] { loss.backward(); }).find("'fc.weight' was changed in place after it was saved"),
            std::string::npos);
}

// --- state dict ----------------------------------------------------------------------------------------------------

TEST(Optimizer, AStateDictContinuesARun) {
  Context context;
  auto train = [](optim::Optimizer& optimizer, const Tensor& w, int from, int to) {
    for (int t = from; t < to; ++t) {
      w.set_grad(from_vector<float>({float(t), 1, -2}, {3}));
      optimizer.step();
    }
  };
  Tensor whole = parameter({1, 2, 3}), first = parameter({1, 2, 3});
  optim::AdamW uninterrupted({{"w", whole}}, {}), before({{"w", first}}, {});
  train(uninterrupted, whole, 0, 6);
  train(before, first, 0, 3);
  auto state = before.state_dict();
  EXPECT_EQ(state.size(), 4u);
  EXPECT_EQ(state.at("w.step").to_vector<int64_t>(), std::vector<int64_t>{3});
  Tensor second = parameter(first.to_vector<float>());
  optim::AdamW after({{"w", second}}, {});
  after.load_state_dict(state);
  train(after, second, 3, 6);
  EXPECT_EQ(second.to_vector<float>(), whole.to_vector<float>());
}

// As a schedule goes on with them, too.
TEST(Optimizer, AStateDictHasTheLearningRates) {
  Context context;
  std::vector<NamedParameter> three{{"a", parameter({1})}, {"b", parameter({1})}, {"c", parameter({1})}};
  optim::SGD before(three, {.lr = 0.3}, {{"b", {.lr_scale = 0.1}}}), after(three, {.lr = 7}), other(three, {.lr = 7});
  auto rates = [](const optim::Optimizer& of) { return std::vector{of.lr(), of.lr_of(0), of.lr_of(1), of.lr_of(2)}; };
  before.set_lr_of(0, 0.7);
  before.set_lr(0.11);
  before.set_lr_of(2, 0.013);
  auto state = before.state_dict();
  after.load_state_dict(state);
  EXPECT_EQ(rates(after), rates(before));
  for (double lr : {0.07, 0.0, 1.9}) {
    before.set_lr(lr), after.set_lr(lr);
    EXPECT_EQ(rates(after), rates(before));
  }
  for (const char* name : {"a.lr", "b.lr", "c.lr"}) state.erase(name);  // as they were once saved
  other.load_state_dict(state);
  EXPECT_EQ(rates(other), (std::vector<double>{7, 7, 7, 7}));
}

TEST(Optimizer, LearningRatesThatAreNotPossibleAreNotLoaded) {
  Context context;
  optim::SGD optimizer({{"w", parameter({1, 2})}}, {.lr = 0.5});
  auto state = optimizer.state_dict();
  state["w.step"] = from_vector<int64_t>({9}, {1}, DType::i64);
  for (double wrong : {-1.0, std::numeric_limits<double>::infinity()}) {
    state["w.lr"] = from_vector<double>({0.5, wrong, 1}, {3}, DType::f64);
    EXPECT_EQ(error_of([&] { optimizer.load_state_dict(state); }),
              concat("SGD: this is not a state of this optimizer; nothing was loaded:\n  'w' has ", wrong,
                     " among its learning rates"));
    EXPECT_NE(error_of([&] {
                optimizer.set_rates({{"w", {0.5, wrong, 1}}});
              }).find("that are not possible"),
              std::string::npos);
  }
  EXPECT_EQ(optimizer.lr_of(0), 0.5);
  EXPECT_EQ(optimizer.steps().at("w"), 0);
}

TEST(Optimizer, WhatWasComputedIsRefused) {
  Context context;
  Tensor w = parameter({1, 2}), v = w * 2;
  EXPECT_NE(error_of([&] { optim::SGD({{"w", w}, {"v", v}}, {}); }).find("SGD: 'v' was computed"), std::string::npos);
}

TEST(Optimizer, AFrozenParametersStateIsSavedAndLoaded) {
  Context context;
  Tensor w = parameter({1, 2}), v = parameter({1, 2}), again = parameter({1, 2});
  optim::AdamW before({{"w", w}}, {}), after({{"w", again}}, {}), never({{"w", v}}, {});
  w.set_grad(ones({2}));
  before.step();
  for (Tensor* each : {&w, &again, &v}) each->set_requires_grad(false);
  auto state = before.state_dict();
  EXPECT_EQ(state.size(), 4u);
  EXPECT_EQ(never.state_dict().size(), 2u) << "what was never trained has a count of steps and rates only";
  after.load_state_dict(state);
  again.set_requires_grad();
  EXPECT_EQ(after.state_dict().at("w.exp_avg").to_vector<float>(), state.at("w.exp_avg").to_vector<float>());
  state.erase("w.exp_avg_sq");
  EXPECT_NE(error_of([&] { never.load_state_dict(state); }).find("missing: 'w.exp_avg_sq'"), std::string::npos);
  EXPECT_EQ(never.state_dict().size(), 2u);
}

TEST(Optimizer, AGradientThatIsIncompleteIsNoHindranceToSaving) {
  Context context;
  Tensor w = parameter({1, 2});
  optim::AdamW optimizer({{"w", w}}, {});
  sum(w * w).backward();
  optimizer.step();
  auto expected = optimizer.state_dict().at("w.exp_avg").to_vector<float>();
  leaf_of(w).add_ready_hook([] { fail("boom"); });
  EXPECT_EQ(error_of([&] { sum(w * w).backward(); }), "boom");
  EXPECT_NE(error_of([&] { optimizer.step(); }).find("is incomplete"), std::string::npos);
  EXPECT_EQ(optimizer.state_dict().at("w.exp_avg").to_vector<float>(), expected);
}

TEST(Optimizer, AWrongStateDictIsRefusedWithEveryFault) {
  Context context;
  optim::SGD optimizer({{"w", parameter({1, 2})}}, {.momentum = 0.9});
  EXPECT_EQ(error_of([&] {
              optimizer.load_state_dict({{"w.momentum_buffer", ones({3})}, {"v", ones({1})}});
            }),
            "SGD: this is not a state of this optimizer; nothing was loaded:"
            "\n  'w.momentum_buffer' is f32[2] here, but f32[3] was given"
            "\n  missing: 'w.step', i64[1]"
            "\n  unknown: 'v', f32[1]");
}

}  // namespace
}  // namespace shardgrad
