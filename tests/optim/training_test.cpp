// A model, its loss and an optimizer together.
#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>

namespace shardgrad {
namespace {

nn::Child<nn::Sequential> make_model() {
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(6, 16, true, Activation::relu).add<nn::BatchNorm1d>(16).add<nn::Dropout>(0.2);
  model->add<nn::LayerNorm>(16).add<nn::Linear>(16, 3);
  return model;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> weights;
};

Outcome train(Context::Options options, int steps) {
  Context context(options);
  auto model = make_model();
  optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02}, {{"*.bias", {.weight_decay = 0}}});
  auto loss_of = nn::make<nn::CrossEntropyLoss>();
  Tensor x = randn({24, 6}, "x");
  Tensor labels = argmax(slice(x, 1, 0, 3), 1);
  Outcome run;
  for (int step = 0; step < steps; ++step) {
    progress() = {uint64_t(step), 0};
    Tensor loss = loss_of(model(x), labels, 24);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    run.losses.push_back(loss.item());
  }
  for (auto& [name, tensor] : model->state_dict())
    for (float value : tensor.to_vector<float>()) run.weights.push_back(value);
  return run;
}

TEST(Training, ASmallModelLearns) {
  Outcome run = train({.seed = 3}, 60);
  EXPECT_GT(run.losses.front(), 0.9);
  EXPECT_LT(run.losses.back(), 0.35);
}

TEST(Training, AnAsynchronousDeviceWithRandomDelaysGivesTheSameBits) {
  Outcome cpu = train({.seed = 3}, 8);
  for (uint64_t delays : {1, 2, 3}) {
    Outcome acc = train({.seed = 3, .device = kAcc, .delay_seed = delays}, 8);
    EXPECT_EQ(cpu.losses, acc.losses);
    EXPECT_EQ(cpu.weights, acc.weights);
  }
}

TEST(Training, OnMetaAStepHasTheLedgerOfARealOne) {
  auto peaks = [](Device device) {
    Context context({.device = device});
    auto model = make_model();
    optim::AdamW optimizer(model->named_parameters(), {});
    Tensor loss = mse_loss(model(zeros({24, 6})), zeros({24, 3}));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    std::vector<int64_t> bytes;
    for (Category::Kind each : {Category::parameter_shard, Category::optimizer_state, Category::activation})
      bytes.push_back(context.ledger().peak(each));
    return bytes;
  };
  EXPECT_EQ(peaks(kCpu), peaks(kMeta));
}

TEST(Training, MemoryDoesNotGrowOverSteps) {
  Context context;
  auto model = make_model();
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  Tensor x = randn({24, 6}, "x"), target = zeros({24, 3});
  int64_t after_first = 0;
  for (int step = 0; step < 50; ++step) {
    mse_loss(model(x), target).backward();
    optimizer.step();
    optimizer.zero_grad();
    if (step == 0) after_first = context.ledger().current();
  }
  EXPECT_EQ(context.ledger().current(), after_first);
}

}  // namespace
}  // namespace shardgrad
