#pragma once
// A small model whose steps are captured and replayed (core/step_graph.h), and all that its steps leave.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shardgrad/autograd/recompute.h>
#include <shardgrad/core/step_graph.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

#include "tests/numbers.h"

namespace shardgrad::test {

inline constexpr int64_t kBatch = 6, kIn = 5, kHidden = 16, kOut = 3;

/// Two layers with dropout between them, whose inside may be computed again in backward.
struct Net : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", kIn, kHidden), out = child<nn::Linear>("out", kHidden, kOut);
  nn::Child<nn::Dropout> drop = child<nn::Dropout>("drop", 0.3);
  bool recomputes = false;
  Tensor inside(const Tensor& x) { return drop(relu(in(x))); }
  Tensor forward(const Tensor& x) {
    return out(recomputes ? checkpoint([this](const Tensor& each) { return inside(each); }, x) : inside(x));
  }
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(std::vector<NamedParameter>)>;
template <class Optimizer> MakeOptimizer optimizer(typename Optimizer::Options options) {
  return [options](std::vector<NamedParameter> parameters) {
    optim::Rules rules{{"*.bias", {.weight_decay = 0, .lr_scale = 2}}};
    return std::make_unique<Optimizer>(std::move(parameters), options, rules);
  };
}

/// A model that is trained on numbers of its own, and all that its steps leave.
struct Training {
  explicit Training(const MakeOptimizer& make, double clip = 0.05, bool recomputes = false) : clip(clip) {
    model->recomputes = recomputes;
    model->materialize();
    optimizer = make(model->named_parameters());
  }
  nn::Child<Net> model = nn::make<Net>();
  std::unique_ptr<optim::Optimizer> optimizer;
  double clip;
  Tensor x = zeros({kBatch, kIn}), y = zeros({kBatch, kOut});
  std::vector<float> losses;
  std::function<void()> between = [] {};  ///< backward and the update, in each step

  Tensor step() {
    Tensor loss = mse_loss(model->forward(x), y, double(kBatch));
    loss.backward();
    between();
    optimizer->step(optim::clip_scale(optim::grad_power(model->named_parameters()), clip));
    optimizer->zero_grad();
    return loss.detach();
  }
  // The batch, learning rate and place in the run of step i.
  void prepare(int64_t i) {
    NoGrad no_grad;
    progress() = {uint64_t(i), 0};
    optimizer->set_lr(0.1 / double(i + 1));
    copy_into(x, test::normal({kBatch, kIn}, concat("x", i)));
    copy_into(y, test::normal({kBatch, kOut}, concat("y", i)));
  }
  template <class Step> void run(int64_t from, int64_t to, Step&& step) {
    for (int64_t i = from; i < to; ++i) {
      prepare(i);
      losses.push_back(float(step().item()));
    }
  }
  std::map<std::string, std::vector<float>> numbers() const {
    std::map<std::string, std::vector<float>> all{{"losses", losses}};
    for (auto& [name, tensor] : model->named_parameters()) all[name] = tensor.to_vector<float>();
    for (auto& [name, tensor] : optimizer->state_dict())
      if (tensor.dtype() == DType::f32) all[name] = tensor.to_vector<float>();
    return all;
  }
};

/// What `body` is refused with; empty when it is not.
template <class Body> std::string refusal(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline const MakeOptimizer kAdamW = optimizer<optim::AdamW>({.weight_decay = 0.1});

/// Plain and replayed steps on device sim.
struct TrainingTwice : ::testing::Test {
  Context context{{.device = kSim}};
  Training plain{kAdamW}, replayed{kAdamW};
  StepGraph step{[this] { return replayed.step(); }};
  void run(int64_t from, int64_t to) {
    plain.run(from, to, [this] { return plain.step(); });
    replayed.run(from, to, [this] { return step(); });
  }
};

}  // namespace shardgrad::test
