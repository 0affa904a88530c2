#pragma once
// A small model that is trained on some ranks, saved in a folder for one test, and loaded again.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/nn/containers.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/train/checkpoint/checkpoint.h>

#include "temporary_folder.h"
#include "tests/numbers.h"

namespace shardgrad {

// Parameters that ranks cannot share evenly, one that is frozen, and statistics that are not trained.
class Net : public nn::Module {
 public:
  Tensor forward(const Tensor& x) { return last_(norm_(first_(x))); }

 private:
  nn::Child<nn::Linear> first_ = child<nn::Linear>("first", 5, 7);
  nn::Child<nn::BatchNorm1d> norm_ = child<nn::BatchNorm1d>("norm", 7);
  nn::Child<nn::Linear> last_ = child<nn::Linear>("last", 7, 1);
};

// A rank's model, trained for some steps.
struct Trained {
  Trained(dist::ProcessGroup& world, fsdp::Strategy strategy, int steps) : world(world) {
    model->named_parameters().back().tensor.set_requires_grad(false);
    int parts = strategy == fsdp::Strategy::hybrid ? 2 : 0;
    sharded = fsdp::fully_shard(model.module(), world, {.strategy = strategy, .shard_ranks = parts});
    optimizer = std::make_unique<optim::AdamW>(model->named_parameters(), optim::AdamOptions{.lr = 0.01});
    train(steps);
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      Tensor y = model(test::normal({4, 5}, concat("x", i, " of ", world.rank())));
      mean(y * y).backward();
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  train::TrainingState state() { return {model.module(), *sharded, *optimizer}; }

  dist::ProcessGroup& world;
  nn::Child<Net> model = nn::make<Net>();
  std::shared_ptr<fsdp::Sharded> sharded;
  std::unique_ptr<optim::Optimizer> optimizer;
};

class CheckpointFiles : public ::testing::Test {
 protected:
  void save(Trained& trained, int64_t step) {
    train::save_checkpoint(folder_.path(), config_, {step, 10 * step, 7, {1024, 3}}, trained.state());
  }
  train::Reached load(Trained& trained) {
    return train::load_checkpoint(latest().value(), config_, trained.state()).reached;
  }
  std::optional<std::string> latest() { return train::latest_checkpoint(folder_.path()); }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (!entry.is_symlink()) names.push_back(entry.path().filename());  // but the link to the newest model
    std::ranges::sort(names);
    return names;
  }
  std::string bytes(const char* file) { return read_file(*latest() + "/" + file); }
  /// A safetensors file without its header, which tells the step.
  std::string tensors(const char* file) {
    std::string whole = bytes(file);
    uint64_t length = 0;
    std::memcpy(&length, whole.data(), sizeof length);
    return whole.substr(sizeof length + length);
  }
  /// What loading on one rank refuses.
  std::string refusal() {
    std::string message;
    dist::run_ranks(1, [&](dist::ProcessGroup& world) {
      Trained other(world, fsdp::Strategy::zero3, 0);
      message = error_of([&] { load(other); });
    });
    return message;
  }
  void save_on_one_rank() {
    dist::run_ranks(1, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero3, 2);
      save(trained, 2);
    });
  }

  TemporaryFolder folder_;
  train::Config config_;
};

}  // namespace shardgrad
