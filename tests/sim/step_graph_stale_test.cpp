// What a captured step (core/step_graph.h) would read as it was at the third call, where a step as written reads what
// is there now: a replay is as that one, or refused by name.

#include <gtest/gtest.h>

#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/sgd.h>

#include "tests/sim/captured_training.h"

namespace shardgrad {
namespace {

using namespace test;

void expect_says(const std::string& why, const std::string& part) {
  EXPECT_NE(why.find(part), std::string::npos) << why;
}

constexpr const char* kElsewhere =
    "' is not where it was when the step was captured (StepGraph); let backward and step() be in one StepGraph";

// --- gradients -------------------------------------------------------------------------------------------------------

/// A layer whose backward and update are steps of their own.
struct Parted {
  Parted() { model->materialize(); }
  nn::Child<nn::Linear> model = nn::make<nn::Linear>(4, 3);
  optim::SGD optimizer{model->named_parameters(), {.lr = 0.1}};
  Tensor x = zeros({2, 4});
  void set_input(int64_t i) {
    NoGrad no_grad;
    copy_into(x, full({2, 4}, float(i + 1)));
  }
  Tensor backward() {
    Tensor loss = sum(model(x));
    loss.backward();
    return loss.detach();
  }
  Tensor update() {
    optimizer.step();
    optimizer.zero_grad();
    return Tensor();
  }
  std::vector<float> weights() const { return model->weight.to_vector<float>(); }
};

struct GradientsOfBefore : ::testing::Test {
  Context context{{.device = kSim}};
  Parted plain, replayed;
  void set_inputs(int64_t i) {
    for (Parted* each : {&plain, &replayed}) each->set_input(i);
  }
};

TEST_F(GradientsOfBefore, ThatLieElsewhereAreNotUpdatedWith) {
  StepGraph update([this] { return replayed.update(); });
  for (int64_t i = 0; i < 6; ++i) {
    set_inputs(i);
    plain.backward(), plain.update();
    replayed.backward();
    if (i < 3) {
      update();
      continue;
    }
    std::string why = refusal([&] { update(); });
    expect_says(why, "the gradient of '");
    expect_says(why, kElsewhere);
    update.plain();
  }
  EXPECT_TRUE(update.is_captured());
  EXPECT_EQ(replayed.weights(), plain.weights());
}

// The next backward leaves its gradient where the graph has no part.
TEST_F(GradientsOfBefore, OfAnUpdateThatIsDelayedAreRefused) {
  StepGraph step([this] {
    replayed.update();
    return replayed.backward();
  });
  replayed.backward();
  for (int i = 0; i < 3; ++i) step();
  expect_says(refusal([&] { step(); }), kElsewhere);
}

TEST_F(GradientsOfBefore, MakeNoNormThatIsOutOfDate) {
  StepGraph power([this] { return optim::grad_power(replayed.model->named_parameters()); });
  for (int64_t i = 0; i < 4; ++i) {
    set_inputs(i);
    replayed.optimizer.zero_grad();
    replayed.backward();
    if (i < 3) power();
  }
  expect_says(refusal([&] { power(); }), kElsewhere);
}

TEST_F(GradientsOfBefore, MayBeThoseOfAnotherGraph) {
  StepGraph backward([this] { return replayed.backward(); }), update([this] { return replayed.update(); });
  for (int64_t i = 0; i < 8; ++i) {
    set_inputs(i);
    plain.backward(), plain.update();
    bool elsewhere = i == 5;
    elsewhere ? backward.plain() : backward();
    if (elsewhere) expect_says(refusal([&] { update(); }), kElsewhere);
    elsewhere ? update.plain() : update();
  }
  EXPECT_TRUE(backward.is_captured() && update.is_captured());
  EXPECT_EQ(replayed.weights(), plain.weights());
}

TEST_F(GradientsOfBefore, ThatStayWhereTheyAreAreReadInEachReplay) {
  auto train = [](bool captures) {
    Tensor w = ones({3}), gradient = zeros({3});
    w.set_requires_grad();
    optim::SGD optimizer({{"w", w}}, {.lr = 0.1});
    StepGraph update([&] {
      optimizer.step();
      return Tensor();
    });
    for (int i = 0; i < 6; ++i) {
      copy_into(gradient, full({3}, float(i)));
      w.set_grad(gradient);
      captures ? update() : update.plain();
    }
    EXPECT_EQ(update.is_captured(), captures);
    return w.to_vector<float>();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(GradientsOfBefore, MayBeAskedForByAStepThatForgetsThem) {
  auto step_of = [](Parted& of) {
    return [&of] {
      for (const NamedParameter& each : of.model->named_parameters())
        if (each.tensor.grad().defined()) each.tensor.zero_grad();
      Tensor loss = of.backward();
      of.optimizer.step();
      return loss;
    };
  };
  StepGraph step(step_of(replayed));
  for (int64_t i = 0; i < 6; ++i) {
    set_inputs(i);
    step_of(plain)();
    step();
  }
  EXPECT_EQ(replayed.weights(), plain.weights());
}

TEST(StepGraph, AShardedModelIsNotUpdatedWithAGradientOfBefore) {
  auto body = [](dist::ProcessGroup& world) {
    auto model = nn::make<Net>();
    fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    StepGraph update([&] {
      optimizer.step();
      optimizer.zero_grad();
      return Tensor();
    });
    auto backward = [&] { sum(model(ones({kBatch, kIn}))).backward(); };
    for (int i = 0; i < 2; ++i) backward(), update();
    backward();
    std::string why = refusal([&] { update(); });
    expect_says(why, "a gradient of unit '");
    expect_says(why, "' of before it cannot be part of it; let backward and step() be in one StepGraph");
    EXPECT_NO_THROW(update.plain());
  };
  dist::run_ranks(1, body, {.device = kSim});
}

// --- tensors ---------------------------------------------------------------------------------------------------------

constexpr const char* kDropped = "a tensor of before it, of 16 bytes, which it uses and then drops";

TEST(StepGraph, AStateThatAStepReplacesIsRefused) {
  Context context({.device = kAcc});
  Tensor h = zeros({4}), x = ones({4});
  StepGraph step([&] { return h = h * 0.5 + x; });
  step(), step();
  std::string why = refusal([&] { step(); });
  expect_says(why, kDropped);
  expect_says(why, "cannot be part of it; copy_into() one that stays");
}

// Where another graph uses it as well, which holds it back for itself.
TEST(StepGraph, AStateThatAStepReplacesIsRefusedWhoeverUsesIt) {
  Context context({.device = kAcc});
  Tensor h = zeros({4}), x = ones({4});
  StepGraph reads([&] { return h * 2; }), replaces([&] { return h = h * 0.5 + x; });
  replaces(), replaces();
  for (int i = 0; i < 4; ++i) reads();
  expect_says(refusal([&] { replaces(); }), kDropped);
}

TEST(StepGraph, AStateThatStaysGoesFromReplayToReplay) {
  Context context({.device = kAcc});
  auto train = [](bool captures) {
    Tensor h = zeros({4}), x = ones({4});
    StepGraph step([&] {
      copy_into(h, h * 0.5 + x);
      return h;
    });
    for (int i = 0; i < 6; ++i) captures ? step() : step.plain();
    return h.to_vector<float>();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(StepGraph, BackwardOfAForwardOfBeforeIsRefused) {
  Context context({.device = kAcc});
  Tensor w = ones({4}), loss;
  w.set_requires_grad();
  StepGraph backward([&] {
    loss.backward();
    w.zero_grad();
    return Tensor();
  });
  auto forward = [&](int i) { loss = sum(w * full({4}, float(i))); };
  for (int i = 0; i < 2; ++i) forward(i), backward();
  forward(2);
  std::string why = refusal([&] { backward(); });
  expect_says(why, kDropped);
  expect_says(why, "let forward and backward be in one StepGraph");
}

// --- leaves ----------------------------------------------------------------------------------------------------------

TEST(StepGraph, ALeafThatAStepMakesIsAnotherOneInEachReplay) {
  Context context({.device = kSim});
  auto train = [](bool captures) {
    Parted parted;
    StepGraph step([&] {
      Tensor a = clone(parted.x).detach();
      a.set_requires_grad();
      sum(tanh(parted.model(a))).backward();
      parted.optimizer.zero_grad();
      return a.grad() * 2;
    });
    std::vector<std::vector<float>> seen;
    for (int64_t i = 0; i < 6; ++i) {
      parted.set_input(i);
      seen.push_back((captures ? step() : step.plain()).to_vector<float>());
    }
    EXPECT_EQ(step.is_captured(), captures);
    return seen;
  };
  EXPECT_EQ(train(true), train(false));
}

// --- the place in the run --------------------------------------------------------------------------------------------

// The address of progress() stays, so that a step need not ask for it.
TEST(StepGraph, APlaceThatIsSetThroughAReferenceIsRefused) {
  Context context({.device = kSim});
  Progress& where = progress();
  Tensor x = ones({40});
  uint64_t i = 0;
  StepGraph sets([&] {
    where = {i++, 0};
    return dropout(x, 0.5, "d");
  });
  StepGraph counts([&] {
    ++where.step;
    return dropout(x, 0.5, "d");
  });
  for (StepGraph* step : {&sets, &counts}) {
    (*step)(), (*step)();
    uint64_t before = where.step;
    expect_says(refusal([&] { (*step)(); }), "another step of sg::progress()");
    EXPECT_EQ(where.step, before) << "the step is not made";
  }
}

// --- averages --------------------------------------------------------------------------------------------------------

TEST_F(TrainingTwice, AveragesThatAreGoneAreRefused) {
  std::optional<optim::EMA> average;
  average.emplace(replayed.model->named_parameters(), 0.5);
  StepGraph averaged([&] {
    Tensor loss = replayed.step();
    average->update();
    return loss;
  });
  replayed.run(0, 4, averaged);
  EXPECT_TRUE(averaged.is_captured());
  average.reset();
  expect_says(refusal([&] { averaged(); }), "EMA: the averages of a captured step (StepGraph) are gone");
}

}  // namespace
}  // namespace shardgrad
