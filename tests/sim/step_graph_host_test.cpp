// What the host has beside a captured step (core/step_graph.h) and changes between replays: it is as after a plain
// step, or the replay is refused by name.

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/data_parallel.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/sgd.h>

#include "tests/sim/captured_training.h"

namespace shardgrad {
namespace {

using namespace test;

struct HostOfSteps : TrainingTwice {
  // Steps 0 … `steps` of both, each with a step function of its own: plain(i) makes those that are no call of a graph.
  using Step = std::function<Tensor()>;
  void expect_same(
      const std::function<Step(Training&)>& step_of, int64_t steps,
      const std::function<bool(int64_t)>& plainly = [](int64_t) { return false; }) {
    Step as_written = step_of(plain);
    plain.run(0, steps, as_written);
    StepGraph graph(step_of(replayed));
    for (int64_t i = 0; i < steps; ++i) replayed.run(i, i + 1, [&] { return plainly(i) ? graph.plain() : graph(); });
    EXPECT_TRUE(graph.is_captured());
    EXPECT_EQ(replayed.numbers(), plain.numbers());
  }
};

Tensor loss_of(Training& t) { return mse_loss(t.model->forward(t.x), t.y, double(kBatch)); }

// --- gradients -------------------------------------------------------------------------------------------------------

// With an optimizer that cannot be captured, which is called outside.
struct Outside {
  explicit Outside(Training& training) : training(training), lion(training.model->named_parameters(), {.lr = 0.01}) {}
  Tensor backward() {
    lion.zero_grad();
    Tensor loss = loss_of(training);
    loss.backward();
    return loss.detach();
  }
  Training& training;
  optim::Lion lion;
};

TEST_F(HostOfSteps, GradientsThatAStepLeavesAreThoseOfTheLastStep) {
  Outside of_plain(plain), of_replayed(replayed);
  StepGraph one([&] { return of_replayed.backward(); }), other([&] { return of_replayed.backward(); });
  for (int i = 0; i < 10; ++i) {
    plain.run(i, i + 1, [&] { return of_plain.backward(); });
    replayed.run(i, i + 1, [&] { return i == 7 ? one.plain() : i % 2 ? other() : one(); });
    EXPECT_EQ(optim::grad_norm(replayed.model->named_parameters()), optim::grad_norm(plain.model->named_parameters()));
    of_plain.lion.step(), of_replayed.lion.step();
  }
  EXPECT_TRUE(one.is_captured() && other.is_captured());
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST_F(HostOfSteps, AReplayAddsToNoGradient) {
  StepGraph adds([&] {
    Tensor loss = loss_of(replayed);
    loss.backward();
    return loss.detach();
  });
  for (int i = 0; i < 5; ++i) replayed.run(i, i + 1, adds), replayed.optimizer->zero_grad();
  replayed.run(5, 6, adds);
  std::string why = refusal([&] { adds(); });
  EXPECT_NE(why.find("begins without a gradient of f32["), std::string::npos) << why;
  replayed.optimizer->zero_grad();
  EXPECT_NO_THROW(adds());
}

TEST_F(HostOfSteps, AStepMayBeginWithZeroGrad) {
  auto forgets = [&](Training& t) {
    return [&t] {
      t.optimizer->zero_grad();
      Tensor loss = loss_of(t);
      loss.backward();
      t.optimizer->step();
      return loss.detach();
    };
  };
  expect_same(forgets, 6, [](int64_t i) { return i == 4; });
}

TEST_F(HostOfSteps, TwoGraphsAreOfOneModel) {
  StepGraph other([&] { return replayed.step(); });
  plain.run(0, 10, [&] { return plain.step(); });
  for (int i = 0; i < 10; ++i) replayed.run(i, i + 1, [&] { return i % 2 ? other() : step(); });
  EXPECT_EQ(replayed.numbers(), plain.numbers());
  EXPECT_EQ(replayed.optimizer->steps(), plain.optimizer->steps());
}

// --- averages --------------------------------------------------------------------------------------------------------

TEST_F(HostOfSteps, AveragesGoOnAfterASwap) {
  auto train = [](Training& t, bool captures) {
    optim::EMA average(t.model->named_parameters(), 0.5);
    StepGraph step([&] {
      Tensor loss = t.step();
      average.update();
      return loss;
    });
    std::vector<float> seen;
    for (int i = 0; i < 8; ++i) {
      t.run(i, i + 1, [&] { return captures ? step() : step.plain(); });
      average.swap();
      for (float each : t.model->in->weight.to_vector<float>()) seen.push_back(each);
      std::string why = refusal([&] { captures&& i > 2 ? step() : Tensor(); });
      if (captures && i > 2) {
        EXPECT_NE(why.find("the averages are in the model"), std::string::npos) << why;
      }
      average.swap();
    }
    return seen;
  };
  EXPECT_EQ(train(replayed, true), train(plain, false));
  EXPECT_EQ(replayed.numbers(), plain.numbers());
  EXPECT_EQ(replayed.optimizer->steps(), plain.optimizer->steps());
}

// --- the place in the run --------------------------------------------------------------------------------------------

TEST_F(HostOfSteps, AnotherFirstSampleIsRefused) {
  run(0, 4);
  progress() = {4, 6};
  std::string why = refusal([this] { step(); });
  EXPECT_NE(why.find("for first_sample 0, which sg::progress() says is 6 now"), std::string::npos) << why;
  EXPECT_EQ(replayed.optimizer->steps(), plain.optimizer->steps()) << "nothing of it is done";
  run(4, 6);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST_F(HostOfSteps, MicroBatchesMaySetTheirOwn) {
  auto step_of = [](Training& t) {
    return [&t] {
      Tensor loss;
      for (int64_t i = 0; i < 2; ++i) {
        progress() = {progress().step, i * kBatch};
        loss = loss_of(t);
        loss.backward();
      }
      t.optimizer->step();
      t.optimizer->zero_grad();
      return loss.detach();
    };
  };
  expect_same(step_of, 6);
  EXPECT_EQ(progress().first_sample, kBatch);
}

// Each part begins to count its draws anew.
TEST_F(HostOfSteps, ALaterMicroBatchMayDrawMore) {
  auto step_of = [](Training& t) {
    return [&t] {
      Tensor total = zeros({});
      for (int64_t i = 0; i < 2; ++i) {
        progress() = {progress().step, i * kBatch};
        for (int64_t k = 0; k <= i; ++k) total = total + sum(dropout(t.x, 0.5, "drawn")) * double(1 + k + 2 * i);
      }
      return total + sum(dropout(t.x, 0.5, "drawn")) * 7;
    };
  };
  expect_same(step_of, 6);
}

// --- tensors of users ------------------------------------------------------------------------------------------------

TEST_F(HostOfSteps, AChangeInPlaceIsCountedInEachReplay) {
  Tensor sums = zeros({2}), w = ones({2});
  w.set_requires_grad();
  StepGraph adds([&] {
    NoGrad no_grad;
    sums += ones({2});
    return Tensor();
  });
  adds(), adds(), adds();
  Tensor loss = sum(w * sums);
  adds();
  EXPECT_NE(refusal([&] { loss.backward(); }).find("changed in place"), std::string::npos);
}

// --- modules ---------------------------------------------------------------------------------------------------------

TEST_F(HostOfSteps, ReplicasAreCopiedInEachReplay) {
  auto train = [](Training& t, bool captures) {
    nn::DataParallel<Net> parallel(t.model, {kSim, kSim});
    StepGraph step([&] {
      Tensor loss = mse_loss(parallel(t.x), t.y, double(kBatch));
      loss.backward();
      t.optimizer->step();
      t.optimizer->zero_grad();
      return loss.detach();
    });
    for (int i = 0; i < 6; ++i) {
      if (i == 2 || i == 4) t.losses.push_back(float(sum(parallel(t.x)).item()));
      t.run(i, i + 1, [&] { return captures ? step() : step.plain(); });
    }
  };
  train(plain, false);
  train(replayed, true);
  EXPECT_EQ(replayed.numbers(), plain.numbers());
}

TEST(StepGraph, RunningStatisticsAndAutocastAreThoseOfPlainSteps) {
  Context context({.device = kSim});
  auto train = [](bool captures) {
    nn::BatchNorm1d norm(kIn);
    nn::Linear out(kIn, kOut);
    norm.materialize(), out.materialize();
    optim::SGD optimizer(out.named_parameters(), {.lr = 0.1});
    Tensor x = zeros({kBatch, kIn});
    StepGraph step([&] {
      Tensor loss;
      {
        Autocast narrow(DType::bf16);
        loss = sum(cast(out.forward(norm.forward(x)), DType::f32));
      }
      loss.backward();
      optimizer.step(), optimizer.zero_grad();
      for (const NamedParameter& each : norm.named_parameters()) each.tensor.zero_grad();
      return loss.detach();
    });
    std::vector<float> seen;
    for (int i = 0; i < 6; ++i) {
      copy_into(x, test::normal({kBatch, kIn}, concat("x", i)));
      seen.push_back(float((captures ? step() : step.plain()).item()));
    }
    for (const auto& buffer : norm.named_buffers()) seen.push_back(float(sum(cast(buffer.tensor, DType::f32)).item()));
    return seen;
  };
  EXPECT_EQ(train(true), train(false));
}

// What the scope keeps of plain steps is not what a replay would find.
TEST(StepGraph, AScopeOfAutocastAroundStepsChangesNoBit) {
  Context context({.device = kSim});
  auto train = [](bool captures, bool around) {
    nn::Linear square(kIn, kIn);
    square.materialize();
    optim::SGD optimizer(square.named_parameters(), {.lr = 0.001});
    Tensor x = zeros({kBatch, kIn});
    auto looped = [&] {
      Autocast narrow(DType::bf16);
      Tensor y = x;
      for (int i = 0; i < 3; ++i) y = square.forward(y);
      return sum(cast(y, DType::f32));
    };
    StepGraph step([&] {
      Tensor loss = looped();
      loss.backward();
      optimizer.step(), optimizer.zero_grad();
      return loss.detach();
    });
    std::optional<Autocast> all;
    if (around) all.emplace(DType::bf16);
    std::vector<float> seen;
    for (int i = 0; i < 8; ++i) {
      copy_into(x, test::normal({kBatch, kIn}, concat("x", i)));
      if (i % 2 == 1) {
        NoGrad no_grad;
        seen.push_back(float(looped().item()));
      }
      seen.push_back(float((captures ? step() : step.plain()).item()));
    }
    return seen;
  };
  std::vector<float> plain = train(false, false);
  EXPECT_EQ(train(true, false), plain);
  EXPECT_EQ(train(false, true), plain);
  EXPECT_EQ(train(true, true), plain);
}

// --- optimizers ------------------------------------------------------------------------------------------------------

TEST_F(HostOfSteps, AParameterThatWasMovedIsRefused) {
  run(0, 4);
  replayed.model->to(DType::f64);
  replayed.prepare(4);
  EXPECT_NE(refusal([this] { step(); }).find("was moved since the step was captured"), std::string::npos);
}

TEST_F(HostOfSteps, AFrozenParameterThatWasMovedIsRefused) {
  replayed.model->in->weight.set_requires_grad(false);
  replayed.run(0, 4, step);
  replayed.model->in->to(DType::f64);
  replayed.model->in->to(DType::f32);
  std::string why = refusal([this] { step(); });
  EXPECT_NE(why.find("'in.weight' was moved since the step was captured"), std::string::npos) << why;
}

// What it is trained with later is no part of the step, and a replay would begin it anew each time.
TEST_F(HostOfSteps, AStateThatAStepWouldMakeIsRefused) {
  replayed.model->in->weight.set_requires_grad(false);
  replayed.between = [this] { replayed.model->in->weight.zero_grad(); };
  replayed.run(0, 2, step);
  replayed.model->in->weight.set_requires_grad(true);
  std::string why = refusal([this] { step(); });
  EXPECT_NE(why.find("AdamW's state of 'in.weight', which a first step makes"), std::string::npos) << why;
}

TEST_F(HostOfSteps, NothingIsCountedWhereALaterCheckRefuses) {
  auto all = replayed.model->named_parameters();
  std::array<std::vector<NamedParameter>, 2> parts;
  for (const NamedParameter& each : all) parts[each.name.starts_with("in") ? 0 : 1].push_back(each);
  optim::AdamW first(parts[0], {}), second(parts[1], {});
  StepGraph both([&] {
    Tensor loss = loss_of(replayed);
    loss.backward();
    first.step(), second.step();
    first.zero_grad(), second.zero_grad();
    return loss.detach();
  });
  for (int i = 0; i < 4; ++i) replayed.prepare(i), both();
  replayed.model->out->to(DType::f64);
  EXPECT_NE(refusal([&] { both(); }).find("' was moved since"), std::string::npos);
  EXPECT_EQ(first.steps().begin()->second, 4);
}

TEST_F(HostOfSteps, AnOptimizerThatIsGoneIsRefused) {
  run(0, 4);
  replayed.optimizer.reset();
  std::string why = refusal([this] { step(); });
  EXPECT_NE(why.find("AdamW: this optimizer of a captured step (StepGraph) is gone"), std::string::npos) << why;
}

TEST(StepGraph, NormsOfManySizesStayKnown) {
  Context context({.device = kSim});
  std::vector<NamedParameter> all;
  for (int64_t i = 0; i < 8; ++i) {
    Tensor w = ones({1 + i * 5000});
    w.set_requires_grad();
    all.push_back({concat("w", i), w});
  }
  optim::SGD optimizer(all, {.lr = 0.1});
  StepGraph step([&] {
    Tensor power = zeros({1}, DType::f64);
    for (const NamedParameter& each : all) {
      sum(each.tensor).backward();
      power += optim::grad_power(std::vector{each});
    }
    optimizer.step(), optimizer.zero_grad();
    return power;
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(refusal([&] { step(); }), "");
  }
  EXPECT_TRUE(step.is_captured());
}

TEST(StepGraph, AStepMayBeTraced) {
  Context context({.device = kSim});
  Training plain(kAdamW), traced(kAdamW);
  StepGraph step([&] { return traced.step(); });
  plain.run(0, 5, [&] { return plain.step(); });
  for (int i = 0; i < 5; ++i) {
    context.recorder().set_tracing(i == 2);
    traced.run(i, i + 1, step);
  }
  EXPECT_TRUE(step.is_captured());
  EXPECT_EQ(traced.numbers(), plain.numbers());
}

// --- sharded models, on one rank -------------------------------------------------------------------------------------

struct Sharded {
  explicit Sharded(dist::ProcessGroup& world) {
    fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
    optimizer = std::make_unique<optim::SGD>(model->named_parameters(), optim::SgdOptions{.lr = 0.1});
  }
  Tensor step() {
    Tensor loss = sum(model(x));
    loss.backward();
    optimizer->step();
    if (forgets) optimizer->zero_grad();
    return loss.detach();
  }
  nn::Child<Net> model = nn::make<Net>();
  std::unique_ptr<optim::SGD> optimizer;
  Tensor x = ones({kBatch, kIn});
  bool forgets = true;
};

void on_one_rank(const std::function<void(Sharded&)>& body) {
  dist::run_ranks(1,
                  [&](dist::ProcessGroup& world) {
                    Sharded sharded(world);
                    body(sharded);
                  },
                  {.device = kSim});
}

TEST(StepGraph, AShardedModelInAGroupsOwnMemoryIsRefused) {
  dist::VirtualOptions options{.device = kSim};
  options.group.kind = "shared_memory";
  auto body = [](dist::ProcessGroup& world) {
    Sharded sharded(world);
    StepGraph step([&] { return sharded.step(); });
    step(), step();
    std::string why = refusal([&] { step(); });
    EXPECT_NE(why.find("is that of a group of kind 'shared_memory'"), std::string::npos) << why;
  };
  dist::run_ranks(1, body, options);
}

// Neighbours in a shard are updated by one launch, which has one rate.
TEST(StepGraph, RatesThatPartAreRefused) {
  on_one_rank([](Sharded& sharded) {
    StepGraph step([&] { return sharded.step(); });
    for (int i = 0; i < 4; ++i) step();
    sharded.optimizer->set_lr_of(0, 0.5);
    std::string why = refusal([&] { step(); });
    EXPECT_NE(why.find("were updated together when the step was captured"), std::string::npos) << why;
  });
}

TEST(StepGraph, AParameterThatIsFrozenSinceIsRefused) {
  on_one_rank([](Sharded& sharded) {
    StepGraph step([&] { return sharded.step(); });
    for (int i = 0; i < 4; ++i) step();
    sharded.model->in->bias.set_requires_grad(false);
    std::string why = refusal([&] { step(); });
    EXPECT_NE(why.find("in.bias' was trained when the step was captured, and is frozen now"), std::string::npos) << why;
  });
}

TEST(StepGraph, AStepCountsUpOnTheDevice) {
  Context context({.device = kSim});
  Tensor x = zeros({9});
  StepGraph step([&] { return arange(9, {DType::f32, kSim}) + arange(9).to(DType::f32) + slice(x, 0, 0, 9, 1); });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step().to_vector<float>(), (arange(9).to(DType::f32) * 2).to_vector<float>());
  EXPECT_TRUE(step.is_captured());
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32}) {
    StepGraph counts([&] { return arange(300, {dtype, kSim}); });
    std::vector<double> expected = counts().to(DType::f64).to_vector<double>();
    counts(), counts();
    EXPECT_EQ(counts().to(DType::f64).to_vector<double>(), expected) << dtype;
    EXPECT_TRUE(counts.is_captured());
  }
}

TEST(StepGraph, GradientsThatAShardedStepLeavesAreRefused) {
  on_one_rank([](Sharded& sharded) {
    StepGraph step([&] { return sharded.step(); });
    step(), step();
    sharded.forgets = false;
    std::string why = refusal([&] { step(); });
    EXPECT_NE(why.find("a gradient of unit 'in' that it leaves"), std::string::npos) << why;
    sharded.forgets = true;
    step();
    EXPECT_TRUE(step.is_captured());
    sum(sharded.model(sharded.x)).backward();
    EXPECT_NE(refusal([&] { step(); }).find("begins without gradients"), std::string::npos);
    sharded.optimizer->zero_grad();
    EXPECT_NO_THROW(step());
  });
}

}  // namespace
}  // namespace shardgrad
