// What cannot be part of a captured step (core/step_graph.h) is refused by name, and the step is not made: the next one
// has the bits of a step before which nothing was refused.

#include <gtest/gtest.h>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/stream.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/data_parallel.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/optim/sgd.h>

#include "tests/sim/captured_training.h"

namespace shardgrad {
namespace {

using namespace test;

struct Refused {
  std::string name;
  std::string says;
  std::function<void(Training&)> in_step;
  MakeOptimizer make = kAdamW;
  friend std::ostream& operator<<(std::ostream& out, const Refused& r) { return out << r.name; }
};

// In a stream of its own, which goes with it.
void work_beside(Training&) {
  static std::unique_ptr<Stream> stream;
  stream = context().backend(kSim).make_stream("beside");
  auto end = std::shared_ptr<void>(nullptr, [](void*) { stream.reset(); });
  stream->run("work", [] {});
}

std::vector<Refused> of_values() {
  return {
      {"item", "the host's look at", [](Training& t) { sum(t.x).item(); }},
      {"synchronize", "a wait of the host", [](Training&) { context().backend(kSim).compute().synchronize(); }},
      {"from_vector", "of numbers of the host",
       [](Training&) {
         from_vector<float>({1, 2}, {2});
       }},
      {"to_the_cpu", "from sim to cpu", [](Training& t) { t.x.to(kCpu); }},
      {"random_numbers", "a draw of randn", [](Training&) { randn({3}); }},
      {"attention", "dropout within attention",
       [](Training&) {
         attention(zeros({1, 2, 6}), Tensor(), {.dropout = 0.5}, "attention");
       }},
      {"another_stream", "on stream beside, which waits for nothing of the step", work_beside},
      {"notify", "a call of the host", [](Training&) { context().backend(kSim).compute().notify([] {}); }},
      {"16384_numbers", "more than 16384 numbers",
       [](Training&) {
         Tensor y = zeros({1});
         for (int i = 0; i < 8200; ++i) dropout(y, 0.5, concat("mask", i));
       }},
      {"a_step_in_a_step", "a call of a StepGraph",
       [](Training&) {
         StepGraph inner([] { return Tensor(); });
         inner();
       }},
  };
}

// What the host has, and a replay would repeat.
std::vector<Refused> of_the_host() {
  return {
      {"lion", "a step of Lion", [](Training&) {}, optimizer<optim::Lion>({})},
      {"set_lr", "set_lr()", [](Training& t) { t.optimizer->set_lr(0.5); }},
      {"set_lr_of", "set_lr_of()", [](Training& t) { t.optimizer->set_lr_of(0, 0.5); }},
      {"seed", "manual_seed()", [](Training&) { manual_seed(3); }},
      {"progress", "another step of sg::progress()",
       [](Training&) {
         progress() = {77, 0};
       }},
      {"progress_step", "another step of sg::progress()", [](Training&) { ++progress().step; }},
      {"scaled", "GradScaler", [](Training& t) { optim::GradScaler().scale(sum(t.x)); }},
      {"grad_scaler", "GradScaler",
       [](Training& t) {
         sum(t.model->forward(t.x)).backward();
         optim::GradScaler().step(*t.optimizer);
       }},
      {"first_average", "EMA's first update", [](Training& t) { optim::EMA(t.model->named_parameters()).update(); }},
      {"first_state", "state of 'w'",
       [](Training&) {
         Tensor w = zeros({3});
         w.set_requires_grad();
         optim::AdamW other({{"w", w}}, {});
         sum(w * 2.0).backward();
         other.step();
       }},
      {"update_elsewhere", "the update of 'w', which is on cpu",
       [](Training&) {
         Tensor w = zeros({3}, kCpu);
         w.set_requires_grad();
         w.set_grad(ones({3}, kCpu));
         optim::SGD({{"w", w}}, {}).step();
       }},
      {"leaf_elsewhere", "a gradient of f32[3] on cpu",
       [](Training&) {
         Tensor w = zeros({3}, kCpu);
         w.set_requires_grad();
         sum(w).backward();
       }},
  };
}

struct RefusedSteps : ::testing::TestWithParam<Refused> {};

// Wherever in it: with gradients that no kernel has written, or when the optimizer has counted.
TEST_P(RefusedSteps, AreNotMade) {
  const Refused& each = GetParam();
  for (bool at_end : {false, true}) {
    SCOPED_TRACE(at_end);
    Context context({.device = kSim});
    Training plain(each.make), training(each.make);
    bool captured = false;
    auto refused = [&] {
      if (captured) each.in_step(training);
    };
    if (!at_end) training.between = refused;
    StepGraph step([&] {
      Tensor loss = training.step();
      if (at_end) refused();
      return loss;
    });
    training.run(0, 2, [&] { return step(); });
    captured = true;
    auto before = training.numbers();
    auto steps = training.optimizer->steps();
    std::string why = refusal([&] { step(); });
    EXPECT_NE(why.find("a step that is being captured (StepGraph)"), std::string::npos) << why;
    EXPECT_NE(why.find(each.says), std::string::npos) << why;
    EXPECT_EQ(training.numbers(), before);
    EXPECT_EQ(training.optimizer->steps(), steps);
    EXPECT_FALSE(step.is_captured());
    captured = false;
    training.run(2, 3, [&] { return step.plain(); });
    bool can_be_captured = each.name != "lion";
    training.run(3, 6, [&] { return can_be_captured ? step() : step.plain(); });
    plain.run(0, 6, [&] { return plain.step(); });
    EXPECT_EQ(step.is_captured(), can_be_captured);
    EXPECT_EQ(training.numbers(), plain.numbers());
  }
}

std::string name_of_case(const ::testing::TestParamInfo<Refused>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(OfValues, RefusedSteps, ::testing::ValuesIn(of_values()), name_of_case);
INSTANTIATE_TEST_SUITE_P(OfTheHost, RefusedSteps, ::testing::ValuesIn(of_the_host()), name_of_case);

struct RefusedGraphs : TrainingTwice {};

// Nobody says where the run is: the masks of the next step are those that the refused one would have had.
TEST_F(RefusedGraphs, HaveDrawnNothing) {
  auto train = [](Training& training, const std::function<Tensor()>& one_step) {
    progress() = {};
    training.prepare(0);
    for (int i = 0; i < 5; ++i) training.losses.push_back(float(one_step().item()));
  };
  bool refuses = true;
  replayed.between = [&] {
    if (Capture::current() && std::exchange(refuses, false)) sum(replayed.x).item();
  };
  train(plain, [this] { return plain.step(); });
  train(replayed, [this] {
    Tensor loss;
    std::string why = refusal([&] { loss = step(); });
    return why.empty() ? loss : step();
  });
  EXPECT_FALSE(refuses);
  EXPECT_EQ(replayed.losses, plain.losses);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST_F(RefusedGraphs, KeepTheGradientsOfBeforeThem) {
  Tensor w = replayed.model->in->weight;
  StepGraph forgets([&] {
    replayed.optimizer->zero_grad();
    Tensor loss = sum(replayed.model->forward(replayed.x));
    loss.backward();
    if (Capture::current()) loss.item();
    return loss.detach();
  });
  replayed.prepare(0);
  forgets(), forgets();
  std::vector<float> before = w.grad().to_vector<float>();
  EXPECT_NE(refusal([&] { forgets(); }), "");
  EXPECT_EQ(w.grad().to_vector<float>(), before);
}

TEST_F(RefusedGraphs, AddToNoGradientOfBeforeThem) {
  StepGraph adds([&] {
    Tensor loss = sum(replayed.model->forward(replayed.x));
    loss.backward();
    return loss.detach();
  });
  replayed.prepare(0);
  adds(), adds();
  std::string why = refusal([&] { adds(); });
  EXPECT_NE(why.find("adds to a gradient of f32["), std::string::npos) << why;
  EXPECT_NE(why.find("zero_grad()"), std::string::npos) << why;
}

// The copies in the replicas are none while nothing has run.
TEST_F(RefusedGraphs, OfDataParallelCopyAgain) {
  auto train = [](Training& training, bool captures) {
    nn::DataParallel<Net> parallel(training.model, {kSim, kSim});
    bool refuses = captures;
    StepGraph step([&] {
      Tensor loss = mse_loss(parallel(training.x), training.y, double(kBatch));
      if (Capture::current() && std::exchange(refuses, false)) loss.item();
      loss.backward();
      training.optimizer->step();
      training.optimizer->zero_grad();
      return loss.detach();
    });
    training.run(0, 2, [&] { return captures ? step() : step.plain(); });
    if (captures) {
      EXPECT_NE(refusal([&] { step(); }), "");
    }
    training.run(2, 5, [&] { return captures ? step() : step.plain(); });
  };
  train(plain, false);
  train(replayed, true);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST(StepGraph, ADeviceThatGainsNothingIsRefused) {
  Context context;
  std::string why = refusal([] { StepGraph step([] { return Tensor(); }); });
  EXPECT_NE(why.find("device cpu"), std::string::npos) << why;
  EXPECT_NE(why.find("run it without StepGraph"), std::string::npos) << why;
}

TEST(StepGraph, CollectivesAreRefused) {
  auto body = [](dist::ProcessGroup& world) {
    Tensor x = zeros({4});
    StepGraph step([&] {
      world.all_reduce(x).wait(context().backend(kSim).compute());
      return x;
    });
    step(), step();
    std::string why = refusal([&] { step(); });
    EXPECT_NE(why.find("collective 'all_reduce'"), std::string::npos) << why;
    EXPECT_NE(why.find("of one rank it does nothing"), std::string::npos) << why;
  };
  dist::run_ranks(1, body, {.device = kSim});
}

// A sharded model on one rank: `refuses` when a gradient is there that no kernel has written.
TEST(StepGraph, AShardedModelMayBeRefusedAtFirst) {
  auto train = [](dist::ProcessGroup& world, bool captures) {
    Training training(kAdamW);
    auto model = nn::make<Net>();
    auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3, .param_dtype = DType::bf16});
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
    bool refuses = captures;
    auto as_written = [&] {
      Tensor loss = mse_loss(cast(model(training.x), DType::f32), training.y, double(kBatch));
      loss.backward();
      if (Capture::current() && std::exchange(refuses, false)) loss.item();
      optimizer.step();
      optimizer.zero_grad();
      return loss.detach();
    };
    StepGraph step(as_written);
    training.run(0, 2, [&] { return captures ? step() : as_written(); });
    if (captures) {
      EXPECT_NE(refusal([&] { step(); }).find("the host's look"), std::string::npos);
    }
    training.run(2, 3, [&] { return as_written(); });
    training.run(3, 7, [&] { return captures ? step() : as_written(); });
    EXPECT_EQ(step.is_captured(), captures);
    return training.losses;
  };
  auto body = [&](dist::ProcessGroup& world) { EXPECT_EQ(train(world, true), train(world, false)); };
  dist::run_ranks(1, body, {.device = kSim});
}

}  // namespace
}  // namespace shardgrad
