// `graph`: steps that are captured and replayed make the run that steps as written make, to the bit.

#include <filesystem>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/nn/dropout.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/train/captured_step.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/fit.h>
#include <shardgrad/train/registry.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNoStep =
    "graph: no step was captured, for it takes three that are not traced, whose batches have the same counts";

struct DroppingOptions {
  int64_t width = 16;
  double p = 0.2;
  void list(train::OptionList& options) {
    options.add("width", width, "units of a layer", {.low = 1});
    options.add("p", p, "of what dropout takes", {.low = 0, .high = 1});
  }
};
struct Dropping : nn::Module {
  nn::Child<nn::Linear> in, out;
  nn::Child<nn::Dropout> drop;
  explicit Dropping(const DroppingOptions& o)
      : in(child<nn::Linear>("in", 784, o.width)),
        out(child<nn::Linear>("out", o.width, 10)),
        drop(child<nn::Dropout>("drop", o.p)) {}
  Tensor forward(const Tensor& x) { return out(drop(relu(in(x)))); }
};

class CapturedRun : public TrainerTest {
 protected:
  CapturedRun() {
    auto registry = std::make_shared<train::Registry>(*config_.registry);
    registry->add_model<DroppingOptions>("dropping", "two layers with dropout between them",
                                         [](const DroppingOptions& o) { return nn::make<Dropping>(o); });
    config_.registry = registry;
    config_.model = {"dropping"};
    config_.clip_grad_norm = 0.5;
    config_.schedule.name = "cosine";
    config_.trace_steps = {0, 0};
    config_.eval_every = 7;
    config_.save_every = 11;
  }
  train::Result run(bool graph, const std::string& name, int ranks = 1, Device device = kAcc) {
    config_.graph = graph;
    config_.name = name;
    out_.str("");
    train::Result result;
    dist::run_ranks(ranks,
                    [&](dist::ProcessGroup& world) {
                      auto mine = train::train(config_, world, out_);
                      captured_ = context().ledger().peak(Category::step_graph) > 0;
                      if (world.rank() == 0) result = mine;
                    },
                    {.device = device, .seed = uint64_t(config_.seed), .threads = 1});
    return result;
  }
  std::string refusal(int ranks = 1, Device device = kAcc) {
    try {
      run(true, "refused", ranks, device);
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  }
  // The lines of a run less its times and bytes.
  std::vector<nlohmann::json> lines_of(const train::Result& run) {
    auto lines = metrics(run);
    for (nlohmann::json& line : lines)
      for (const char* other : {"seconds", "samples_per_s", "gflops_per_s", "peak_bytes"}) line.erase(other);
    return lines;
  }
  void expect_same(const train::Result& run, const train::Result& expected) {
    EXPECT_EQ(lines_of(run), lines_of(expected));
    for (const char* file : {"/step-30/model.safetensors", "/step-30/optimizer.safetensors"})
      EXPECT_TRUE(read_file(run.folder + file) == read_file(expected.folder + file)) << file;
  }
  bool captured_ = false;
};

// 301 samples: nine whole batches and one of 13, which is made as written. Evaluations and checkpoints come between.
TEST_F(CapturedRun, HasTheBitsOfStepsAsWritten) {
  for (const char* strategy : {"ddp", "zero3"})
    for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::bf16)}) {
      SCOPED_TRACE(concat(strategy, dtype ? " bf16" : " f32"));
      config_.strategy = strategy;
      config_.fsdp.options.param_dtype = dtype;
      std::string name = concat(strategy, dtype ? "16" : "32");
      train::Result expected = run(false, name + "-written");
      EXPECT_FALSE(captured_);
      expect_same(run(true, name + "-captured"), expected);
      EXPECT_TRUE(captured_);
    }
}

TEST_F(CapturedRun, MicroBatchesAutocastAndLoggedStepsToo) {
  config_.micro_batches = 2;
  config_.autocast = "bf16";
  config_.log_steps = true;
  config_.optimizer.name = "sgd";
  config_.recompute = {"in"};
  train::Result expected = run(false, "written");
  expect_same(run(true, "captured"), expected);
  EXPECT_TRUE(captured_);
}

TEST_F(CapturedRun, TracedStepsAreMadeAsWritten) {
  config_.trace_steps = {3, 6};
  train::Result expected = run(false, "written"), traced = run(true, "captured");
  expect_same(traced, expected);
  EXPECT_TRUE(captured_);
  EXPECT_THAT(read_file(traced.folder + "/trace.json"), HasSubstr("\"backward in\""));
}

TEST_F(CapturedRun, GoesOnFromACheckpointOfEither) {
  config_.schedule.name = "constant";  // of the steps that the run has, it would be another one
  train::Result expected = run(false, "whole");
  for (bool first : {true, false}) {
    config_.resume = false;
    config_.steps = 17;
    std::string name = first ? "captured-first" : "written-first";
    run(first, name);
    config_.resume = true;
    config_.steps = 0;
    train::Result whole = run(!first, name);
    for (const char* file : {"/step-30/model.safetensors", "/step-30/optimizer.safetensors"})
      EXPECT_TRUE(read_file(whole.folder + file) == read_file(expected.folder + file)) << name << file;
  }
}

TEST_F(CapturedRun, ALossThatIsNotFiniteIsToldOfItsStep) {
  config_.optimizer.name = "sgd";
  config_.optimizer.lr = 1e38;
  auto told = [&](bool graph) {
    try {
      run(graph, graph ? "captured" : "written");
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  std::string written = told(false);
  EXPECT_THAT(written, HasSubstr("is not finite"));
  EXPECT_EQ(told(true), written);
  config_.on_nan = "continue";  // and nothing of the step that was captured looks any more
  config_.epochs = 1;
  written = told(false);
  EXPECT_THAT(written, HasSubstr("trained to its end after step 10, and nothing is saved of it"));
  EXPECT_EQ(told(true), written);
}

TEST_F(CapturedRun, IsRefusedBeforeTheRunWhereNoStepCouldBeCaptured) {
  EXPECT_THAT(refusal(2), HasSubstr("graph: a captured step has no collectives, and this job has 2 ranks"));
  EXPECT_THAT(refusal(1, kCpu), HasSubstr("graph: device cpu computes in the thread that launches"));
  config_.optimizer.name = "lion";
  EXPECT_THAT(refusal(), HasSubstr("graph: a step of lion cannot be captured; set optimizer.name to sgd"));
  config_.optimizer.name = "adamw";
  config_.autocast = "f16";
  EXPECT_THAT(refusal(), HasSubstr("graph: f16 needs loss scaling"));
  config_.autocast = "off";
  config_.fsdp.options.move_params_to_cpu = true;
  EXPECT_THAT(refusal(), HasSubstr("leave fsdp.move_params_to_cpu, fsdp.move_grads_to_cpu or graph out"));
  config_.fsdp.options.move_params_to_cpu = false;
  config_.grains = 2;
  EXPECT_THAT(refusal(), HasSubstr("graph: grains are for runs of several ranks"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/refused"));
}

// The tenth step has what is left of an epoch: it is not what is captured.
TEST_F(CapturedRun, ARunThatBeginsWithAShortBatchCapturesWholeOnes) {
  config_.schedule.name = "constant";
  train::Result expected = run(false, "whole");
  config_.steps = 9;
  run(false, "resumed");
  config_.steps = 0;
  config_.resume = true;
  train::Result resumed = run(true, "resumed");
  EXPECT_TRUE(captured_);
  EXPECT_TRUE(read_file(resumed.folder + "/step-30/model.safetensors") ==
              read_file(expected.folder + "/step-30/model.safetensors"));
}

TEST_F(CapturedRun, ARunWithoutThreeBatchesAlikeSaysSo) {
  config_.batch = 200;
  config_.epochs = 2;
  run(true, "short");
  EXPECT_THAT(out_.str(), HasSubstr(kNoStep));
}

TEST_F(CapturedRun, ARunWhoseStepsAreTracedSaysSo) {
  config_.steps = 4;
  config_.trace_steps = {3, 4};
  run(true, "traced");
  EXPECT_THAT(out_.str(), HasSubstr(kNoStep));
}

// What looks at gradients goes with the captured step, and the run ends before there is another one.
TEST_F(CapturedRun, ARunThatHadACapturedStepDoesNotSayThatThereWasNone) {
  config_.optimizer.name = "sgd";
  config_.optimizer.lr = 1e38;
  config_.on_nan = "continue";
  config_.epochs = 1;
  config_.save_every = 8;
  EXPECT_THAT(error_of([&] { run(true, "captured"); }), HasSubstr("trained to its end after step 10"));
  EXPECT_THAT(out_.str(), Not(HasSubstr(kNoStep)));
}

// The plan makes models, too, before the run makes its own.
TEST_F(CapturedRun, AStepThatIsNotTheCapturedOneAnyMoreMayBeMadeWithoutAGraph) {
  struct Freezes : train::Callback {
    explicit Freezes(Tensor& weight) : weight(weight) {}
    void on_step(const train::Stepped& stepped) override {
      if (stepped.step == 5) weight.set_requires_grad(false);
    }
    Tensor& weight;
  };
  Tensor weight;
  auto registry = std::make_shared<train::Registry>(*config_.registry);
  registry->add_model<DroppingOptions>("seen", "whose first layer is known", [&weight](const DroppingOptions& o) {
    auto model = nn::make<Dropping>(o);
    weight = model->in->weight;
    return model;
  });
  registry->add_callback([&weight](const Config&, dist::ProcessGroup&) { return std::make_unique<Freezes>(weight); });
  config_.registry = registry;
  config_.model = {"seen"};
  std::string why = refusal();
  EXPECT_THAT(why, HasSubstr("in.weight' was trained when the step was captured, and is frozen now"));
  EXPECT_THAT(why, HasSubstr("; make a new StepGraph, or set graph to false"));
}

TEST_F(CapturedRun, ABatchNormThatIsSynchronisedHasNothingToSendOnOneRank) {
  auto registry = std::make_shared<train::Registry>(*config_.registry);
  struct Normed : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 784, 16), out = child<nn::Linear>("out", 16, 10);
    nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 16);
    Tensor forward(const Tensor& x) { return out(relu(norm(in(x)))); }
  };
  registry->add_model<DroppingOptions>("normed", "with a norm of the batch",
                                       [](const DroppingOptions&) { return nn::make<Normed>(); });
  config_.registry = registry;
  config_.model = {"normed"};
  config_.sync_batchnorm = true;
  train::Result expected = run(false, "written");
  expect_same(run(true, "captured"), expected);
  EXPECT_TRUE(captured_);
}

struct Fitted : train::FitModule {
  nn::Child<Dropping> net = child<Dropping>("net", DroppingOptions{});
  Tensor forward(const Tensor& x) { return net(x); }
  train::StepOutput training_step(const data::Batch& batch, int64_t i) override {
    if (training() && has_values(batch.fields[0].device())) numbers.push_back(i);
    return cross_entropy(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{})};
  }
  static inline std::vector<int64_t> numbers;
};
struct Ended : Fitted {
  void on_train_batch_end(const train::StepOutput&, const data::Batch&, int64_t) override {}
};
struct EndedLikeItsBase : Ended {};
struct EndedInPrivate : Fitted {
 private:
  void on_train_batch_end(const train::StepOutput&, const data::Batch&, int64_t) override {}
};
struct EndedWithOurs : Fitted {
  void on_train_batch_end(const train::StepOutput& output, const data::Batch& batch, int64_t i) override {
    FitModule::on_train_batch_end(output, batch, i);
  }
};

class CapturedFit : public CapturedRun {
 protected:
  template <class Module> std::string fit(const std::vector<int64_t>& labels = {}) {
    train::TrainerOptions options{.devices = 1, .max_epochs = 2, .default_root_dir = folder_ / "runs"};
    options.out = &out_;
    options.config.batch = 32;
    options.config.graph = true;
    options.config.optimizer.name = "lion";  // which means nothing to a module that makes its own
    options.config.device = "acc";
    train::Trainer trainer(options);
    return error_of([&] {
      trainer.fit([] { return nn::make<Module>(); }, [&labels] { return data::Splits{rows(320, labels), rows(32)}; });
    });
  }
  static std::shared_ptr<data::TensorDataset> rows(int64_t count, std::vector<int64_t> labels = {}) {
    labels.resize(size_t(count));
    return std::make_shared<data::TensorDataset>(
        std::vector<Tensor>{ones({count, 784}, {DType::f32, kCpu}), from_vector(labels, {count}, {DType::i64, kCpu})});
  }
};

TEST_F(CapturedFit, StepsAsWrittenKnowTheNumberOfTheirBatch) {
  Fitted::numbers.clear();
  EXPECT_EQ(fit<Fitted>(), "no error");
  EXPECT_EQ(std::exchange(Fitted::numbers, {}), (std::vector<int64_t>{0, 1, 2, 3, 4})) << "3 and 4 are traced";
}

// Each epoch has one batch with a label that is ignored. It is the first of all, and no other one is like it.
TEST_F(CapturedFit, AFirstBatchThatIsOddKeepsNoStepFromBeingCaptured) {
  int64_t first = data::sample_order(320, uint64_t(Config{}.seed), 0)[0];
  std::vector<int64_t> labels(320);
  labels[size_t(first)] = data::kIgnored;
  Fitted::numbers.clear();
  EXPECT_EQ(fit<Fitted>(labels), "no error");
  std::vector<int64_t> numbers = std::exchange(Fitted::numbers, {});
  ASSERT_EQ(numbers.size(), 7u) << "the sixth is captured, and the odd one of the second epoch is made as written";
  numbers.pop_back();
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(out_.str(), Not(HasSubstr(kNoStep)));
}

TEST_F(CapturedFit, WhatTheHostDoesAfterABatchIsRefused) {
  EXPECT_THAT(fit<Ended>(), HasSubstr("on_train_batch_end of module Ended cannot be part of it"));
}

TEST_F(CapturedFit, AndNotForgottenWhereItCallsOurs) {
  EXPECT_THAT(fit<EndedWithOurs>(),
              HasSubstr("module EndedWithOurs cannot be part of it; leave it out, or set graph to false"));
}

TEST_F(CapturedFit, WhetherAModuleDoesSomethingAfterABatchIsKnownByItsType) {
  Context context;
  EXPECT_FALSE(nn::make<Fitted>()->ends_batches());
  EXPECT_TRUE(nn::make<Ended>()->ends_batches());
  EXPECT_TRUE(nn::make<EndedLikeItsBase>()->ends_batches());
  EXPECT_TRUE(nn::make<EndedInPrivate>()->ends_batches());
  EXPECT_TRUE(nn::make<EndedWithOurs>()->ends_batches());
}

// The step that asks comes third, when some steps are saved.
TEST_F(CapturedRun, ATaskThatReadsAValueIsRefusedByName) {
  struct Reads : train::Task {
    nn::Child<Dropping> net = nn::make<Dropping>(DroppingOptions{});
    nn::Module& module() override { return *net; }
    Tensor loss(const data::Batch& batch) override {
      Tensor loss = cross_entropy(net(batch.fields[0]), batch.fields[1], double(batch.global_count));
      if (loss.device() != kMeta) loss.item();
      return loss;
    }
  };
  auto registry = std::make_shared<train::Registry>(*config_.registry);
  registry->add_whole_task<DroppingOptions>("reads", "looks",
                                            [](const DroppingOptions&) { return std::make_unique<Reads>(); });
  config_.registry = registry;
  config_.task = {"reads"};
  config_.model = {"mlp"};
  EXPECT_THAT(refusal(), HasSubstr("a step that is being captured (StepGraph): the host's look at a f32 []"));
}

}  // namespace
}  // namespace shardgrad
