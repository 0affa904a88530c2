#pragma once
// A module in Lightning's words, and runs of it, for the tests of Trainer::fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/fit.h>

#include "small_run.h"

namespace shardgrad {

using train::StepOutput;

// y = 2 a - b, in a plane.
inline std::shared_ptr<data::TensorDataset> plane(int64_t from, int64_t rows) {
  std::vector<float> x, y;
  for (int64_t i = from; i < from + rows; ++i) {
    float a = float(i % 19) / 19 - 0.5F, b = float(i % 23) / 23 - 0.5F;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b);
  }
  return std::make_shared<data::TensorDataset>(
      std::vector<Tensor>{from_vector<float>(x, {rows, 2}), from_vector<float>(y, {rows, 1})});
}
inline data::Splits planes() { return {plane(0, 101), plane(200, 37)}; }

struct Hill : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 2, 12), out = child<nn::Linear>("out", 12, 1);
  Tensor forward(const Tensor& x) { return out(tanh(in(x))); }
};

struct Line : train::FitModule {
  nn::Child<Hill> hill = child<Hill>("hill");
  Tensor scale = param("scale", {1}, nn::init::ones());  // of the module itself
  Tensor forward(const Tensor& x) { return mul(hill(x), scale); }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    return mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{.lr = 0.02})};
  }
  Tensor predict_step(const data::Batch& batch, int64_t) override { return forward(batch.fields[0]); }
};

struct Scheduled : Line {
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::SGD>(std::move(parameters), optim::SgdOptions{.lr = 0.1, .momentum = 0.9}),
            [](int64_t steps) { return optim::cosine(steps); }};
  }
};

class Fit : public ::testing::Test {
 protected:
  train::TrainerOptions options(int devices = 2) {
    train::TrainerOptions options{.devices = devices, .max_epochs = 4, .default_root_dir = folder_ / "runs"};
    options.out = &out_;
    options.config.batch = 16;
    return options;
  }
  template <class Module = Line> train::Result fit(const train::TrainerOptions& options) {
    train::Trainer trainer(options);
    return trainer.fit([] { return nn::make<Module>(); }, planes);
  }
  // Every bit of what was trained.
  static std::string weights(const train::Result& result) { return read_file(result.folder + "/model.safetensors"); }
  template <class Module = Line> std::string refusal(const train::TrainerOptions& options) {
    return error_of([&] { fit<Module>(options); });
  }

  TemporaryFolder folder_;
  std::ostringstream out_;
};

}  // namespace shardgrad
