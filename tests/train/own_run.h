#pragma once
// A data set, a model and a task that the library does not know, as a user's program registers them, and runs of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/registry.h>

#include "small_run.h"

namespace shardgrad {

using train::Registry;

// y = 2 x0 - x1, for points of a grid.
inline data::Splits points(int64_t side) {
  auto split = [&](int64_t first) {
    std::vector<float> x, y;
    for (int64_t i = first; i < side * side; i += 2) {
      float a = float(i / side) / float(side) - 0.5F, b = float(i % side) / float(side) - 0.5F;
      x.insert(x.end(), {a, b});
      y.push_back(2 * a - b);
    }
    int64_t rows = int64_t(y.size());
    return std::make_shared<data::TensorDataset>(
        std::vector<Tensor>{from_vector<float>(x, {rows, 2}), from_vector<float>(y, {rows, 1})});
  };
  return {split(0), split(1)};
}
struct PointsOptions {
  int64_t side = 20;
  void list(train::OptionList& options) { options.add("side", side, "points of a side", {.low = 2, .high = 100}); }
};

struct PlaneNet : nn::Module {
  nn::Child<nn::Linear> in, out;
  explicit PlaneNet(int64_t width) : in(child<nn::Linear>("in", 2, width)), out(child<nn::Linear>("out", width, 1)) {}
  Tensor forward(const Tensor& x) { return out(tanh(in(x))); }
};
struct PlaneNetOptions {
  int64_t width = 8;
  void list(train::OptionList& options) { options.add("width", width, "units of a layer", {.low = 1}); }
};

// The loss of a model that sees a point twice, once mirrored: a forward of its own.
class Mirrored : public train::Task {
 public:
  explicit Mirrored(int64_t width) : net_(nn::make<PlaneNet>(width)) {}
  nn::Module& module() override { return *net_; }
  Tensor loss(const data::Batch& batch) override {
    Tensor x = batch.fields[0], y = batch.fields[1];
    double count = double(2 * batch.global_count);
    return mse_loss(net_(x), y, count) + mse_loss(net_(neg(x)), neg(y), count);
  }

 private:
  nn::Child<PlaneNet> net_;
};

struct SeenEvents {
  std::vector<int64_t> steps, lines, tests, saves;
  int ends = 0;
};
struct Watch : train::Callback {
  explicit Watch(SeenEvents& seen) : seen(seen) {}
  void on_step(const train::Stepped& e) override { seen.steps.push_back(e.step); }
  void on_metrics(const train::Metrics& e) override { seen.lines.push_back(e.step); }
  void on_eval(const train::Evaluated& e) override { seen.tests.push_back(e.step); }
  void on_save(const train::Saved& e) override { seen.saves.push_back(e.step); }
  void on_end(const train::Result&) override { ++seen.ends; }
  SeenEvents& seen;
};

class OwnRun : public TrainerTest {
 protected:
  OwnRun() {
    registry_.add_data<PointsOptions>("points", "a plane", [](const PointsOptions& o) { return points(o.side); });
    registry_.add_model<PlaneNetOptions>("net", "two layers",
                                         [](const PlaneNetOptions& o) { return nn::make<PlaneNet>(o.width); });
    registry_.add_whole_task<PlaneNetOptions>(
        "mirrored", "an odd function", [](const PlaneNetOptions& o) { return std::make_unique<Mirrored>(o.width); });
  }
  void configure(const std::string& text, const std::vector<std::string>& overrides = {}) {
    folder_.write("own.json", text);
    config_ = train::read_config(folder_ / "own.json", overrides, registry_);
    config_.runs = folder_ / "runs";
  }
  Registry registry_;
};

inline constexpr const char* kOwn = R"({"data": {"name": "points", "side": 21}, "model": {"name": "net", "width": 16},
  "task": {"name": "regression"}, "optimizer": {"name": "adam", "lr": 0.02}, "batch": 32})";

}  // namespace shardgrad
