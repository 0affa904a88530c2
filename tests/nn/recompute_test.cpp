// Modules chosen to be computed again: the same training, whatever they contain.

#include <gtest/gtest.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/nn/nn.h>

namespace shardgrad::nn {
namespace {

using Values = std::vector<float>;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Block : Module {
  Child<Linear> up = child<Linear>("up", 6, 12), down = child<Linear>("down", 12, 6);
  Child<Dropout> drop = child<Dropout>("drop", 0.5);
  Child<BatchNorm1d> norm = child<BatchNorm1d>("norm", 12);
  int calls = 0;
  Tensor forward(const Tensor& x) { return ++calls, tanh(x + drop(down(relu(norm(up(x)))))); }
};

struct Net : Module {
  Child<ModuleList<Block>> blocks = child<ModuleList<Block>>("blocks");
  Child<Linear> head = child<Linear>("head", 6, 2);
  Net() {
    for (int i = 0; i < 3; ++i) blocks->add();
  }
  Tensor forward(Tensor x) {
    for (const Child<Block>& block : *blocks) x = block(x);
    return head(x);
  }
  int calls() const {
    int total = 0;
    for (const Child<Block>& block : *blocks) total += block->calls;
    return total;
  }
};

// Everything a few steps leave: losses, gradients, running statistics, dropout counters.
std::vector<Values> train(const std::function<void(Net&)>& choose, int* calls = nullptr) {
  Context context({.seed = 3});
  auto model = make<Net>();
  choose(*model);
  std::vector<Values> trace;
  for (uint64_t step = 0; step < 3; ++step) {
    progress() = {.step = step, .first_sample = 0};
    Tensor loss = mse_loss(model(randn({8, 6}, "x" + std::to_string(step))), zeros({8, 2}));
    trace.push_back(loss.to_vector<float>());
    size_t draws = progress().draws.counts().size();
    loss.backward();
    EXPECT_EQ(progress().draws.counts().size(), draws);
    for (const auto& [name, count] : progress().draws.counts()) EXPECT_EQ(count, 1) << "as without a second run";
  }
  for (const NamedParameter& p : model->named_parameters()) trace.push_back(p.tensor.grad().to_vector<float>());
  for (const NamedParameter& b : model->named_buffers()) trace.push_back(b.tensor.to_vector<float>());
  if (calls) *calls = model->calls();
  return trace;
}

TEST(RecomputeModule, I41_B22_DropoutAndRunningStatisticsAreTheSameHoweverItIsChosen) {
  int calls = 0;
  std::vector<Values> plain = train([](Net&) {}, &calls);
  EXPECT_EQ(calls, 9);
  EXPECT_EQ(train([](Net& net) { recompute_by_name(net, {"blocks.*"}); }, &calls), plain);
  EXPECT_EQ(calls, 18) << "blocks, not their layers once more";
  EXPECT_EQ(train([](Net& net) { recompute_by_type(net, {"Block"}); }, &calls), plain);
  EXPECT_EQ(calls, 18);
  EXPECT_EQ(train([](Net& net) { nn::recompute(*(*net.blocks)[1]); }, &calls), plain);
  EXPECT_EQ(calls, 12);
  EXPECT_EQ(train([](Net& net) { nn::recompute(net); }), plain);
  EXPECT_EQ(train([](Net& net) { recompute_by_type(net, {"Linear", "BatchNorm1d"}); }), plain);
  auto nested = [](Net& net) {
    nn::recompute(net);
    recompute_by_name(net, {"blocks.?"});
    for (const Child<Block>& block : *net.blocks) nn::recompute(*block->norm);
  };
  EXPECT_EQ(train(nested, &calls), plain);
  EXPECT_EQ(calls, 27);
}

TEST(RecomputeModule, WhatLiesInARegionMayBeChosenToo) {
  Context context;
  auto model = make<Net>();
  recompute_by_regex(*model, {R"(blocks\.[0-9]+)", R"(blocks\.[0-9]+\.up)"});
  auto again = make<Net>();
  EXPECT_NE(refusal([&] {
              recompute_by_regex(*again, {R"(blocks\.[0-9]+)", "heads"});
            }).find("'heads'"),
            std::string::npos);
  for (const Child<Block>& block : *again->blocks)
    EXPECT_FALSE(block->recompute_options()) << "a refusal changes nothing";
}

TEST(RecomputeModule, NamesAndTypesThatChooseNothingAreListed) {
  Context context;
  auto model = make<Net>();
  std::string what = refusal([&] { recompute_by_name(*model, {"blocks.*", "blok", "heads"}); });
  EXPECT_NE(what.find("'blok', 'heads'"), std::string::npos) << what;
  EXPECT_EQ(what.find("'blocks"), std::string::npos) << "which fits: " << what;
  EXPECT_NE(what.find("there are blocks, blocks.0, "), std::string::npos) << what;
  what = refusal([&] { recompute_by_type(*model, {"Attention"}); });
  EXPECT_NE(what.find("'Attention'"), std::string::npos) << what;
}

TEST(RecomputeModule, EvaluationIsAPlainCall) {
  Context context;
  auto model = make<Net>();
  recompute_by_type(*model, {"Block"});
  model->eval();
  NoGrad no_grad;
  model(randn({8, 6}, "x"));
  EXPECT_EQ(model->calls(), 3);
}

TEST(RecomputeModule, SwitchingToEvaluationBeforeBackwardIsRefusedByName) {
  Context context;
  auto model = make<Net>();
  nn::recompute(*(*model->blocks)[1]);
  Tensor loss = sum(model(randn({8, 6}, "x")));
  model->eval();
  std::string what = refusal([&] { loss.backward(); });
  EXPECT_NE(what.find("'blocks.1'"), std::string::npos) << what;
  EXPECT_NE(what.find("eval()"), std::string::npos) << what;
}

TEST(RecomputeModule, I41_AModuleCalledTwiceDrawsTwoMasks) {
  auto gradients = [](bool recompute) {
    Context context;
    auto model = make<Block>();
    if (recompute) nn::recompute(*model);
    Tensor x = randn({8, 6}, "x").set_requires_grad();
    sum(model(model(x))).backward();
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

struct Several : Module {
  struct Out {
    Tensor a;
    std::map<std::string, Tensor> rest;
  };
  struct Mix : Module {
    Child<Linear> linear = child<Linear>("linear", 4, 4);
    Out forward(const std::pair<Tensor, Tensor>& in, int times, const Tensor& optional) {
      EXPECT_FALSE(optional.defined());
      return {tanh(linear(in.first)) * times, {{"b", sigmoid(in.second)}}};
    }
  };
  struct Counter : Module {
    Tensor forward(const Tensor& x, int& calls) { return ++calls, tanh(x); }
  };
  Child<Mix> mix = child<Mix>("mix");
  Child<Counter> counter = child<Counter>("counter");
  Tensor forward(const Tensor& x) {
    Out out = mix(std::pair(x, x * 2), 3, Tensor());
    return out.a + out.rest.at("b");
  }
};

TEST(RecomputeModule, AnySignatureOfCopyableArguments) {
  auto gradients = [](bool recompute) {
    Context context;
    auto model = make<Several>();
    if (recompute) nn::recompute(*model->mix);
    Tensor x = randn({5, 4}, "x").set_requires_grad();
    sum(model(x)).backward();
    return std::pair(x.grad().to_vector<float>(), model->mix->linear->weight.grad().to_vector<float>());
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(RecomputeModule, AnArgumentThatForwardChangesIsRefused) {
  Context context;
  auto model = make<Several>();
  nn::recompute(*model->counter);
  int calls = 0;
  std::string what = refusal([&] { model->counter(ones({2}), calls); });
  EXPECT_NE(what.find("'counter'"), std::string::npos) << what;
  EXPECT_NE(what.find("pass a pointer"), std::string::npos) << what;
}

}  // namespace
}  // namespace shardgrad::nn
