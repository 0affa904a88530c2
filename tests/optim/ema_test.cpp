// The average of parameters over a training, in a process without ranks; tests/fsdp/ema_test.cpp has sharded ones.

#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/sgd.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

TEST(Ema, IsItsFormula) {
  Context context;
  auto model = nn::make<nn::Linear>(3, 2);
  model->materialize();
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
  optim::EMA average(model->named_parameters(), 0.75);
  std::vector<double> expected;
  for (int step = 0; step < 4; ++step) {
    mse_loss(model(randn({5, 3})), zeros({5, 2})).backward();
    optimizer.step();
    optimizer.zero_grad();
    average.update();
    std::vector<double> now = values(model->weight);
    if (step == 0) expected = now;
    for (size_t i = 0; i < now.size(); ++i) expected[i] += 0.25 * (now[i] - expected[i]);
  }
  std::vector<double> trained = values(model->weight);
  average.swap();
  EXPECT_TRUE(average.swapped());
  std::vector<double> averaged = values(model->weight);
  EXPECT_NE(averaged, trained);
  for (size_t i = 0; i < averaged.size(); ++i) EXPECT_NEAR(averaged[i], expected[i], 1e-6);
  EXPECT_REFUSED(average.update(), "swap() back");
  average.swap();
  EXPECT_EQ(values(model->weight), trained);
}

TEST(Ema, GoesOnFromCopiesOfTheModelAndItsAverage) {
  struct Run {
    nn::Child<nn::Linear> model = nn::make<nn::Linear>(3, 2);
    optim::EMA average{model->named_parameters(), 0.75};
    void train(int from, int to) {
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      for (int step = from; step < to; ++step) {
        mse_loss(model(randn({5, 3}, concat("x", step))), zeros({5, 2})).backward();
        optimizer.step();
        optimizer.zero_grad();
        average.update();
      }
    }
    nn::StateDict copies() {
      nn::StateDict state = model->state_dict();
      for (auto& [name, tensor] : state) tensor = clone(tensor.detach());
      return state;
    }
  };
  Context context;
  Run whole, resumed;
  whole.train(0, 3);
  nn::StateDict model = whole.copies();
  whole.average.swap();
  nn::StateDict average = whole.copies();
  whole.average.swap();
  resumed.model->load_state_dict(average);
  resumed.average.update();
  resumed.model->load_state_dict(model);
  for (Run* run : {&whole, &resumed}) {
    progress() = {};
    run->train(3, 6);
    run->average.swap();
  }
  EXPECT_EQ(bits(resumed.model->weight), bits(whole.model->weight));
  EXPECT_EQ(bits(resumed.model->bias), bits(whole.model->bias));
}

TEST(Ema, OfWhatStaysIsExactlyThat) {
  Context context;
  auto model = nn::make<nn::Linear>(30, 20);
  model->materialize();
  auto before = bits(model->weight);
  optim::EMA average(model->named_parameters(), 0.9);
  for (int i = 0; i < 9; ++i) average.update();
  average.swap();
  EXPECT_EQ(bits(model->weight), before);
}

struct NoRoomForTheSecond final : LaunchTrial {
  int left = 1;
  void launched(const Call& call) override {
    if (left-- == 0) throw OutOfMemory("no memory left");
    call.run(false);
  }
};

TEST(Ema, AFirstUpdateThatFailsLeavesNothingBehind) {
  Context context;
  auto model = nn::make<nn::Linear>(3, 2);
  model->materialize();
  optim::EMA average(model->named_parameters(), 0.5);
  {
    NoRoomForTheSecond scope;
    EXPECT_THROW(average.update(), OutOfMemory);
  }
  EXPECT_REFUSED(average.swap(), "no average yet");
  auto at_first = bits(model->weight);
  {
    NoGrad no_grad;
    fill_(model->weight, 4);
  }
  average.update();
  average.update();
  average.swap();
  EXPECT_NE(bits(model->weight), at_first);
  EXPECT_EQ(values(model->weight), std::vector<double>(6, 4));
}

struct NotesThatItBegan final : LaunchTrial {
  bool begun = false;
  void launched(const Call& call) override {
    begun = true;
    call.run(false);
  }
};

// What takes no memory once it has begun, cannot end half done for want of it.
TEST(Ema, ALaterUpdateHasItsMemoryBeforeAnyAverageChanges) {
  Context context;
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(3, 2).add<nn::Linear>(2, 9);
  model->materialize();
  optim::EMA average(model->named_parameters(), 0.5);
  average.update();
  int64_t taken = 0;
  NotesThatItBegan update;
  context.ledger().on_change([&](Tag, int64_t bytes) {
    if (update.begun && bytes > 0) taken += bytes;
  });
  average.update();
  context.ledger().on_change(nullptr);
  EXPECT_TRUE(update.begun);
  EXPECT_EQ(taken, 0);
}

/// No memory is left for a copy of the second parameter.
struct NoRoomForTheSecondCopy final : LaunchTrial {
  explicit NoRoomForTheSecondCopy(Tensor parameter) : second(std::move(parameter)) {}
  Tensor second;
  void launched(const Call& call) override {
    for (const Tensor& input : call.inputs)
      if (input.defined() && input.storage() == second.storage()) throw OutOfMemory("no memory left");
    call.run(false);
  }
};

TEST(Ema, ASwapThatFailsHasSwappedNoParameter) {
  Context context;
  auto model = nn::make<nn::Linear>(3, 2);
  model->materialize();
  optim::EMA average(model->named_parameters(), 0.5);
  average.update();
  auto averages = bits(model->weight);
  {
    NoGrad no_grad;
    fill_(model->weight, 4);
    fill_(model->bias, 4);
  }
  {
    NoRoomForTheSecondCopy scope(model->bias);
    EXPECT_THROW(average.swap(), OutOfMemory);
  }
  EXPECT_FALSE(average.swapped());
  EXPECT_EQ(values(model->weight), std::vector<double>(6, 4));
  average.swap();
  EXPECT_EQ(bits(model->weight), averages);
}

TEST(Ema, ASwapBetweenForwardAndBackwardIsSeen) {
  Context context;
  auto model = nn::make<nn::Linear>(3, 2);
  Tensor x = randn({5, 3}).set_requires_grad();
  Tensor loss = sum(model(x));
  optim::EMA average(model->named_parameters());
  average.update();
  average.swap();
  EXPECT_REFUSED(loss.backward(), "changed");
}

TEST(Ema, RefusesWhatItCannotDo) {
  Context context;
  auto model = nn::make<nn::Linear>(3, 2);
  EXPECT_REFUSED(optim::EMA(model->named_parameters(), 1), "decay");
  EXPECT_REFUSED(optim::EMA({}), "no parameters");
  optim::EMA average(model->named_parameters());
  EXPECT_REFUSED(average.update(), "'weight'", "no values yet");
  model->materialize();
  EXPECT_REFUSED(average.swap(), "no average yet");
  average.update();
  model->to(DType::f64);
  EXPECT_REFUSED(average.update(), "'weight'", "anew");
  model->to(DType::bf16);
  EXPECT_REFUSED(optim::EMA(model->named_parameters()), "bf16");
}

}  // namespace
}  // namespace shardgrad::test
