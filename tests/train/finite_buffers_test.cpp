// A buffer that was finite when a run began and is not any more is as bad as such a parameter: statistics that have
// once been NaN stay so, and every evaluation is of no use from there on. Infinities that a model has from the
// beginning, as a mask does, are its own affair.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/train/registry.h>

#include "checkpoint_files.h"
#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Its inputs are multiplied by a number that may be another one in some step, on some rank.
struct ScaledNet : nn::Module {
  using Factor = double (*)();
  explicit ScaledNet(Factor factor) : factor(factor) {}
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 784, 8), out = child<nn::Linear>("out", 8, 10);
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 8);
  Factor factor;
  Tensor forward(const Tensor& x) { return out(relu(norm(in(training() ? x * factor() : x)))); }
};

struct MaskedNet : nn::Module {
  explicit MaskedNet(double hidden) : mask(buffer("mask", {10}, DType::f32, hidden)) {}
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 784, 10);
  Tensor mask;
  Tensor forward(const Tensor& x) { return in(x); }
};

// Runs of ten steps an epoch.
class FiniteBuffers : public TrainerTest {
 protected:
  FiniteBuffers() {
    config_.name = "run";
    config_.epochs = 1;
    config_.task = {"classification"};
  }
  template <class Make> void set_model(const Make& make) {
    auto registry = std::make_shared<train::Registry>();
    registry->add_model("own", "of this test", make);
    config_.registry = registry;
    config_.model = {"own"};
  }
  void set_factor(ScaledNet::Factor factor) {
    set_model([factor] { return nn::make<ScaledNet>(factor); });
  }
  train::Manifest saved(int64_t step) { return train::read_manifest(concat(config_.runs, "/run/step-", step)); }
};

// As if the step had not been: weights, optimizer and statistics are those of before, on all ranks.
TEST_F(FiniteBuffers, AStepThatLossScalingLeavesOutLeavesThemAsTheyWere) {
  set_factor([] { return progress().step == 2 && context().rank() == 1 ? 1e6 : 1.0; });  // which f16 does not hold
  config_.autocast = "f16";
  config_.log_steps = true;
  config_.save_every = 1;
  config_.keep = 10;
  for (const char* strategy : {"zero3", "ddp"}) {
    config_.strategy = strategy;
    config_.name = "run";
    std::filesystem::remove_all(config_.runs);
    train::Result result = train(2);
    std::vector<int64_t> left_out;
    for (const auto& line : metrics(result))
      if (line.contains("skipped_steps")) left_out.push_back(line["step"]);
    ASSERT_EQ(left_out, std::vector<int64_t>{3}) << strategy;
    EXPECT_EQ(saved(3).hash(), saved(2).hash()) << strategy;
    EXPECT_NE(saved(2).model.at("norm.running_var"), saved(1).model.at("norm.running_var")) << "they move";
    EXPECT_NE(saved(4).model.at("norm.running_var"), saved(3).model.at("norm.running_var")) << "and go on";
    auto [planned, measured] = peaks(result);
    EXPECT_GT(planned["buffer"], 0);
    EXPECT_EQ(planned["buffer"], measured["buffer"]) << "the copies are in the plan";
    EXPECT_EQ(result.step_bytes, result.predicted_step_bytes);
  }
}

// f32 holds inputs of 1e25 and what is made of them, but not their variance.
TEST_F(FiniteBuffers, StatisticsThatOverflowAreNotSaved) {
  set_factor([] { return progress().step >= 7 ? 1e25 : 1.0; });
  config_.save_every = 5;
  std::string message;
  try {
    train(2);
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::rank_failed) << "exit code 4";
  }
  EXPECT_THAT(message, ContainsRegex("step 10: element [0-7] of 'norm.running_var' \\(a buffer, which was finite when "
                                     "the run began: .*\\) is not finite; nothing was saved, and the last"));
  EXPECT_EQ(train::latest_checkpoint(config_.runs + "/run"), config_.runs + "/run/step-5");
}

TEST_F(FiniteBuffers, WhereItIsToldToGoOnTheSaveIsLeftOutWithAWord) {
  set_factor([] { return progress().step == 7 ? 1e25 : 1.0; });
  config_.save_every = 5;
  config_.on_nan = "continue";
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("trained to its end after step 10, and nothing is saved of it"));
  EXPECT_THAT(out_.str(), ContainsRegex("step 10 is not saved: element [0-7] of 'norm.running_var'"));
  EXPECT_THAT(out_.str(), HasSubstr("saved step 5 in "));
}

// What counts is what a run begins with, also where that is loaded.
TEST_F(FiniteBuffers, InfinitiesOfTheBeginningAreSavedAndGoneOnFrom) {
  set_model([] { return nn::make<MaskedNet>(kMinusInfinity); });
  config_.resume = true;
  std::string first = train(2).folder;
  uint64_t mask = train::verify_checkpoint(first + "/step-10").manifest.model.at("mask");
  config_.epochs = 2;
  EXPECT_EQ(train(2).steps, 20);
  EXPECT_THAT(out_.str(), HasSubstr("saved step 20 in "));
  config_.name = "begins with the weights of another";
  config_.init_from = first;
  set_model([] { return nn::make<MaskedNet>(0.0); });
  EXPECT_EQ(train(2).steps, 20);
  EXPECT_THAT(out_.str(), HasSubstr("saved step 20 in "));
  EXPECT_EQ(train::verify_checkpoint(config_.runs + "/" + config_.name + "/step-20").manifest.model.at("mask"), mask);
}

// Of one rank, whose values spoil the mean that is saved.
TEST_F(CheckpointFiles, ABufferThatIsSaidToBeFiniteIsNotSavedOnceItIsNot) {
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 1);
    train::TrainingState state = trained.state();
    state.finite_buffers = train::finite_buffers(*trained.sharded);
    EXPECT_EQ(state.finite_buffers, (std::set<std::string>{"norm.running_mean", "norm.running_var"}));
    NoGrad no_grad;
    Tensor mean = trained.model->named_buffers().front().tensor;
    if (world.rank() == 1) fill_(mean.rows(6, 7), kMinusInfinity);
    auto save = [&](const train::TrainingState& what) {
      return error_of([&] { train::save_checkpoint(folder_.path(), config_, {1, 10, 7, {}}, what); });
    };
    EXPECT_THAT(save(state), HasSubstr("element 6 of 'norm.running_mean' (a buffer"));
    world.barrier();
    EXPECT_TRUE(names().empty());
    world.barrier();
    state.finite_buffers = {};
    EXPECT_EQ(save(state), "no error") << "who does not know how it began";
  });
}

}  // namespace
}  // namespace shardgrad
