// Steps that are captured and replayed (core/step_graph.h), on the simulator with the kernels of device cuda, and on
// `acc` with those of the cpu: what would go wrong on a GPU is a wrong bit here, for freed memory is poisoned.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <shardgrad/core/capture.h>
#include <shardgrad/optim/sgd.h>

#include "tests/sim/captured_training.h"

namespace shardgrad {
namespace {

using namespace test;

struct Case {
  std::string name;
  Device device;
  MakeOptimizer make;
  bool recomputes = false;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Device device : {kSim, kAcc}) {
    std::string where = name_of(device.kind);
    all.push_back({where + "_sgd", device, optimizer<optim::SGD>({.weight_decay = 0.01})});
    all.push_back({where + "_nesterov", device, optimizer<optim::SGD>({.momentum = 0.9, .nesterov = true})});
    all.push_back({where + "_adam", device, optimizer<optim::Adam>({.weight_decay = 0.01})});
    all.push_back({where + "_adamw", device, optimizer<optim::AdamW>({.weight_decay = 0.1})});
    all.push_back({where + "_recomputed", device, optimizer<optim::AdamW>({.weight_decay = 0.1}), true});
  }
  return all;
}

class ReplayedSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ReplayedSteps, HaveTheBitsOfPlainOnes) {
  Context context({.device = GetParam().device});
  constexpr int64_t kSteps = 7;
  Training plain(GetParam().make, 0.05, GetParam().recomputes);
  plain.run(0, kSteps, [&] { return plain.step(); });
  Training replayed(GetParam().make, 0.05, GetParam().recomputes);
  StepGraph step([&] { return replayed.step(); });
  replayed.run(0, kSteps, [&] { return step(); });
  EXPECT_TRUE(step.is_captured());
  EXPECT_EQ(replayed.numbers(), plain.numbers());
  EXPECT_EQ(replayed.optimizer->steps(), plain.optimizer->steps());
}

INSTANTIATE_TEST_SUITE_P(All, ReplayedSteps, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Each step rounds by random bits of its own, which a replay must not repeat.
TEST(StepGraphsInBf16, RoundAsPlainStepsDo) {
  auto train = [](Device device, bool replays) {
    Context context({.device = device});
    Tensor w = full({300}, 1, DType::bf16).set_requires_grad();
    optim::AdamW optimizer({{"w", w}}, {.lr = 1e-3, .stochastic_rounding = true});
    auto one_step = [&] {
      Tensor loss = sum(w * w);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      return loss.detach();
    };
    StepGraph step(one_step);
    for (int i = 0; i < 7; ++i) replays ? step() : one_step();
    EXPECT_EQ(step.is_captured(), replays);
    return w.detach().to(DType::f32).to_vector<float>();
  };
  for (Device device : {kSim, kAcc}) {
    std::vector<float> plain = train(device, false);
    EXPECT_EQ(train(device, true), plain) << device;
    EXPECT_NE(*std::ranges::min_element(plain), *std::ranges::max_element(plain)) << "all began alike";
  }
}

struct StepGraphs : TrainingTwice {};

TEST_F(StepGraphs, TheMaskOfDropoutIsAnotherInEachStep) {
  auto zeros_of = [this](int64_t at) {
    progress() = {uint64_t(at), 0};
    return replayed.model->drop(ones({40})).to_vector<float>();
  };
  EXPECT_NE(zeros_of(5), zeros_of(6));  // else the test below would show nothing
  run(0, 6);
  EXPECT_EQ(replayed.losses, plain.losses);
}

// A program that never says where it is: the numbers that are drawn go on from step to step.
TEST_F(StepGraphs, DrawsAreCountedOnWhereNobodyCountsSteps) {
  auto train = [](Training& training, const std::function<Tensor()>& one_step) {
    progress() = {};
    training.prepare(0);
    for (int i = 0; i < 5; ++i) training.losses.push_back(float(one_step().item()));
  };
  train(plain, [this] { return plain.step(); });
  train(replayed, [this] { return step(); });
  EXPECT_EQ(replayed.losses, plain.losses);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST_F(StepGraphs, ASeedThatIsSetBetweenStepsCounts) {
  for (Training* each : {&plain, &replayed}) {
    manual_seed(0);
    each->run(0, 4, [&] { return each == &plain ? plain.step() : step(); });
    manual_seed(9);
    each->run(4, 6, [&] { return each == &plain ? plain.step() : step(); });
  }
  EXPECT_EQ(replayed.losses, plain.losses);
}

TEST_F(StepGraphs, NobodyElseGetsTheMemoryOfAStep) {
  run(0, 4);
  std::vector<Tensor> others;
  for (int64_t n : {1, 5, 16, 30, 48, 80, 100, 256, 1000})
    for (int i = 0; i < 20; ++i) others.push_back(full({n}, 7));
  run(4, 5);
  for (const Tensor& each : others)
    EXPECT_EQ(each.to_vector<float>(), std::vector<float>(size_t(each.numel()), 7)) << each.numel();
  others.clear();
  run(5, 7);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST_F(StepGraphs, MemoryThatTheStepUsesStaysWhenItsOwnerDropsIt) {
  run(0, 4);
  std::vector<float> before = replayed.x.to_vector<float>();
  Tensor x = std::exchange(replayed.x, Tensor());
  x = {};
  std::vector<Tensor> others;
  for (int i = 0; i < 20; ++i) others.push_back(full({kBatch, kIn}, 1e30));
  float loss = float(step().item());
  plain.prepare(3);
  EXPECT_TRUE(std::isfinite(loss) && loss < 1e6) << loss;
}

TEST_F(StepGraphs, PlainStepsAndOtherWorkMayComeBetween) {
  run(0, 4);
  replayed.run(4, 6, [this] { return step.plain(); });
  plain.run(4, 6, [this] { return plain.step(); });
  for (Training* each : {&plain, &replayed}) {
    each->model->eval();
    EXPECT_GT(each->model->forward(each->x).to_vector<float>().size(), 0u);
    each->model->train();
  }
  run(6, 8);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST_F(StepGraphs, AStateThatIsLoadedGoesOn) {
  run(0, 4);
  auto state = plain.optimizer->state_dict();
  std::map<std::string, Tensor> saved;
  for (auto& [name, tensor] : state) saved[name] = clone(tensor);
  std::map<std::string, Tensor> weights;
  for (auto& [name, tensor] : plain.model->named_parameters()) weights[name] = clone(tensor.detach());
  run(4, 6);
  for (Training* each : {&plain, &replayed}) {
    NoGrad no_grad;
    each->optimizer->load_state_dict(saved);
    for (auto& [name, tensor] : each->model->named_parameters()) copy_into(tensor, weights[name]);
  }
  run(4, 6);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
  EXPECT_EQ(replayed.optimizer->steps(), plain.optimizer->steps());
}

TEST_F(StepGraphs, AValueSavedBeforeAReplayIsRefusedAfterIt) {
  run(0, 4);
  Tensor loss = sum(replayed.model->out(relu(replayed.model->in(replayed.x))));
  step();
  std::string why = refusal([&] { loss.backward(); });
  EXPECT_NE(why.find("out.weight"), std::string::npos) << why;
}

TEST_F(StepGraphs, TheLedgerCountsWhatIsKeptAndNoActivation) {
  Ledger& ledger = context.ledger();
  plain.run(0, 3, [this] { return plain.step(); });
  int64_t between = ledger.current(Category::activation);
  {
    StepGraph other([this] { return plain.step(); });
    plain.run(3, 6, [&] { return other(); });
    EXPECT_GT(ledger.current(Category::step_graph), 0);
    EXPECT_EQ(ledger.current(Category::activation), between + 4) << "the loss";
  }
  EXPECT_EQ(ledger.current(Category::step_graph), 0);
  EXPECT_EQ(ledger.current(Category::activation), between);
}

TEST(StepGraph, MayOutliveItsContextAndGoBefore) {
  auto train = [](std::unique_ptr<StepGraph>& graph, Training& training) {
    graph = std::make_unique<StepGraph>([&training] { return training.step(); });
    training.run(0, 4, [&] { return (*graph)(); });
  };
  std::unique_ptr<StepGraph> later, earlier;
  {
    Context context({.device = kSim});
    Training training(kAdamW);
    train(earlier, training);
    earlier.reset();
    train(later, training);
  }
}

// Another stream's work is part of the step where that stream waits for the step's.
TEST(StepGraph, StreamsThatWaitForTheStepAreCaptured) {
  Context context({.device = kSim});
  Backend& device = context.backend(kSim);
  std::unique_ptr<Stream> beside = device.make_stream("beside");
  Tensor x = zeros({4}), twice = zeros({4}), copy = zeros({4}), sums = zeros({4});
  StepGraph step([&] {
    copy_into(twice, x * 2);
    beside->wait(device.compute().record());
    device.copy(*beside, copy.out().data, twice.in().data, twice.bytes());
    device.compute().wait(beside->record());
    copy_into(sums, sums + copy);
    return sums;
  });
  float expected = 0;
  for (int i = 1; i < 6; ++i) {
    copy_into(x, full({4}, i));
    step();
    expected += 2 * float(i);
    EXPECT_EQ(sums.to_vector<float>(), std::vector<float>(4, expected));
  }
  EXPECT_TRUE(step.is_captured());
}

}  // namespace
}  // namespace shardgrad
