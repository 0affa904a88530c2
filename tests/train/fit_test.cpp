// A program in Lightning's words: a module with its steps, and a trainer with options in the place of a configuration.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/fit.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::StepOutput;

// y = 2 a - b, in a plane.
std::shared_ptr<data::TensorDataset> plane(int64_t from, int64_t rows) {
  std::vector<float> x, y;
  for (int64_t i = from; i < from + rows; ++i) {
    float a = float(i % 19) / 19 - 0.5F, b = float(i % 23) / 23 - 0.5F;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b);
  }
  return std::make_shared<data::TensorDataset>(
      std::vector<Tensor>{from_vector<float>(x, {rows, 2}), from_vector<float>(y, {rows, 1})});
}
data::Splits planes() { return {plane(0, 101), plane(200, 37)}; }

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

TEST_F(Fit, AnyStrategyTrainsTheSameBitsOnTwoAndOnFourRanks) {
  for (int ranks : {2, 4}) {
    std::string expected;
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "hybrid"}) {
      train::TrainerOptions chosen = options(ranks);
      chosen.strategy = strategy;
      if (strategy == std::string("hybrid")) chosen.config.fsdp.options.shard_ranks = 2;
      train::Result result = fit(chosen);
      EXPECT_EQ(result.steps, 4 * 7);
      EXPECT_LT(result.scores[0].value, 0.02) << "the targets' variance is 0.4";
      EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy;
      if (expected.empty()) expected = weights(result);
      EXPECT_TRUE(weights(result) == expected) << strategy << " on " << ranks;
    }
  }
}

TEST_F(Fit, OneRankTrainsTheSameToRounding) {
  double one = fit(options(1)).scores[0].value;
  for (int ranks : {2, 3, 4}) EXPECT_NEAR(fit(options(ranks)).scores[0].value, one, 1e-5) << ranks;
}

// The same module as a task of the program, with keys for the optimizer.
struct LineTask : train::Task {
  nn::Child<Line> line = nn::make<Line>();
  nn::Module& module() override { return *line; }
  Tensor loss(const data::Batch& batch) override {
    return nn::Child<train::FitModule>(line)(train::FitModule::Stage::train, batch, batch.step).loss("");
  }
};

TEST_F(Fit, ItIsTheRunOfAConfiguration) {
  Config config;
  train::Registry registry;
  registry.add_whole_task("line", "a line", [] { return std::make_unique<LineTask>(); });
  registry.add_data("planes", "two planes", planes);
  config.registry = std::make_shared<train::Registry>(registry);
  config.task = {"line"};
  config.data = {"planes"};
  config.runs = folder_ / "runs";
  config.optimizer = {.name = "adamw", .lr = 0.02, .weight_decay = 0.01, .no_decay = {}};
  config.batch = 16;
  config.epochs = 4;
  train::Result result;
  dist::run_ranks(
      2, [&](dist::ProcessGroup& world) { result = train::train(config, world, world.rank() ? std::cerr : out_); },
      {.seed = 1});
  train::Result fitted = fit(options());
  auto values = [](const train::Result& run) {
    std::string bytes;
    for (const auto& [name, hash] : train::verify_checkpoint(run.folder + "/step-28").model)
      bytes += concat(name, ' ', hash, '\n');
    return bytes;
  };
  EXPECT_EQ(values(fitted), values(result));
}

struct StopAtStep : train::Callback {
  StopAtStep(int64_t step, dist::Control& control) : step(step), control(control) {}
  void on_step(const train::Stepped& e) override {
    if (e.step == step) control.request_stop();
  }
  int64_t step;
  dist::Control& control;
};

struct Scheduled : Line {
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::SGD>(std::move(parameters), optim::SgdOptions{.lr = 0.1, .momentum = 0.9}),
            [](int64_t steps) { return optim::cosine(steps); }};
  }
};

TEST_F(Fit, ARunThatWasStoppedGoesOnWithTheSameBits) {
  std::string expected = weights(fit<Scheduled>(options()));
  train::TrainerOptions parts = options();
  parts.config.name = "parts";
  parts.config.resume = true;
  parts.callbacks = {
      [](const Config&, dist::ProcessGroup& world) { return std::make_unique<StopAtStep>(10, world.control()); }};
  EXPECT_TRUE(fit<Scheduled>(parts).stopped);
  parts.callbacks.clear();
  out_.str("");
  EXPECT_TRUE(weights(fit<Scheduled>(parts)) == expected);
  EXPECT_THAT(out_.str(), HasSubstr("\ngoes on after step 1"));
}

struct SeenRates : train::Callback {
  explicit SeenRates(std::vector<double>& rates) : rates(rates) {}
  void on_step(const train::Stepped& e) override { rates.push_back(e.lr); }
  std::vector<double>& rates;
};

// Sends a signal to the process after a step.
struct Asks : train::Callback {
  Asks(int number, int64_t step, int rank) : number_(number), step_(step), rank_(rank) {}
  void on_step(const train::Stepped& s) override {
    if (s.step == step_ && rank_ == 0) kill(getpid(), number_);
    if (s.step >= step_) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the monitor looks that often
  }
  int number_;
  int64_t step_;
  int rank_;
};

TEST_F(Fit, ASignalAsksItToSaveAndEnd) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);  // whoever started this may ignore them
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    for (int devices : {1, 2}) {
      train::TrainerOptions stopped = options(devices);
      stopped.max_epochs = 40;
      stopped.config.name = concat("by", number, "on", devices);
      stopped.callbacks = {[&](const train::Config&, dist::ProcessGroup& world) {
        return std::make_unique<Asks>(number, 5, world.rank());
      }};
      train::Result result = fit(stopped);
      EXPECT_TRUE(result.stopped) << number;
      EXPECT_TRUE(result.steps >= 5 && result.steps < result.total_steps) << number << " " << result.steps;
      EXPECT_TRUE(std::filesystem::exists(result.folder + "/model.safetensors")) << number;
      struct sigaction after {};
      sigaction(number, nullptr, &after);
      EXPECT_EQ(after.sa_handler, SIG_DFL) << "it is the program's again";
    }
}

// Is asked to end while it is validated after the step that arms it.
struct AskedInValidation : Scheduled {
  StepOutput validation_step(const data::Batch& batch, int64_t i) override {
    if (batch.first == 0 && i == 0 && armed.exchange(false)) {
      kill(getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(400));  // the monitor looks more often
    }
    return mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  static inline std::atomic<bool> armed = false;
};
struct Arms : train::Callback {
  explicit Arms(int64_t step) : step_(step) {}
  void on_step(const train::Stepped& s) override {
    if (s.step == step_) AskedInValidation::armed = true;
  }
  int64_t step_;
};

TEST_F(Fit, OneThatWasAskedToEndInAnEvaluationMakesItUpWhereItGoesOn) {
  auto lines_of = [](const train::Result& result) {
    std::string lines;
    std::istringstream file(read_file(result.folder + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      auto parsed = nlohmann::json::parse(line);
      for (const char* time : {"seconds", "samples_per_s", "gflops_per_s", "peak_bytes"}) parsed.erase(time);
      lines += parsed.dump() + "\n";
    }
    return lines;
  };
  for (int devices : {1, 2})
    for (bool log_steps : {false, true}) {
      train::TrainerOptions whole = options(devices), parts = options(devices);
      for (auto* o : {&whole, &parts}) {
        o->config.log_steps = log_steps;
        o->config.keep_best = true;
        o->config.resume = true;
      }
      whole.config.name = concat("whole", devices, log_steps);
      parts.config.name = concat("parts", devices, log_steps);
      train::Result expected = fit<AskedInValidation>(whole);
      int64_t second = expected.total_steps / 2;  // of four epochs
      parts.callbacks = {[&](const train::Config&, dist::ProcessGroup&) { return std::make_unique<Arms>(second); }};
      train::Result stopped = fit<AskedInValidation>(parts);
      ASSERT_TRUE(stopped.stopped);
      EXPECT_EQ(stopped.steps, second);
      EXPECT_EQ(lines_of(stopped).find("\"step\":" + std::to_string(stopped.steps) + ",\"test_count\":37"),
                std::string::npos);
      parts.callbacks.clear();
      train::Result result = fit<AskedInValidation>(parts);
      EXPECT_FALSE(result.stopped);
      EXPECT_THAT(out_.str(), HasSubstr("tests the weights of step"));
      EXPECT_TRUE(weights(result) == weights(expected));
      EXPECT_EQ(lines_of(result), lines_of(expected)) << devices << log_steps;
      EXPECT_EQ(read_file(result.folder + "/best"), read_file(expected.folder + "/best"));
    }
}

TEST_F(Fit, TheModulesOptimizerAndScheduleAreThoseOfTheRun) {
  std::vector<double> rates;
  train::TrainerOptions chosen = options(1);
  chosen.max_epochs = {};
  chosen.max_steps = 5;
  chosen.callbacks = {[&](const Config&, dist::ProcessGroup&) { return std::make_unique<SeenRates>(rates); }};
  train::Result result = fit<Scheduled>(chosen);
  EXPECT_EQ(result.steps, 5);
  ASSERT_EQ(rates.size(), 5U);
  for (int64_t step = 0; step < 5; ++step) EXPECT_EQ(rates[size_t(step)], 0.1 * optim::cosine(5)(step));
  train::SafetensorsFile state(result.folder + "/step-5/optimizer.safetensors", train::SafetensorsFile::Access::read);
  EXPECT_TRUE(state.tensors().contains("scale.momentum_buffer"));
  EXPECT_EQ(read_file(result.folder + "/config.json").find("optimizer"), std::string::npos) << "no key says it";
}

struct Careless : Line {
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    std::erase_if(parameters, [](const NamedParameter& p) { return p.name == "hill.in.bias"; });
    return {std::make_unique<optim::SGD>(std::move(parameters), optim::SgdOptions{.lr = 0.1})};
  }
};
struct Idle : Line {
  train::Optimizers configure_optimizers(std::vector<NamedParameter>) override { return {}; }
};

TEST_F(Fit, AnOptimizerOfSomeParametersIsRefused) {
  EXPECT_THAT(refusal<Careless>(options()), HasSubstr("its optimizer leaves out 'hill.in.bias'; give it all"));
  EXPECT_THAT(refusal<Idle>(options()), HasSubstr(" gives no optimizer"));
}

// What a matrix product of a step computes in.
struct Autocasted : Line {
  StepOutput training_step(const data::Batch& batch, int64_t i) override {
    dtype = number_of(autocast_dtype());
    return Line::training_step(batch, i);
  }
  static int number_of(std::optional<DType> dtype) { return dtype ? int(*dtype) : -1; }
  static std::atomic<int> dtype;  // so that no compiler needs a library for it
};
std::atomic<int> Autocasted::dtype;

TEST_F(Fit, APrecisionIsWhatStepsComputeIn) {
  std::map<std::string, std::optional<DType>> known{
      {"32-true", {}},          {"32", {}},        {"bf16-mixed", DType::bf16}, {"bf16", DType::bf16},
      {"16-mixed", DType::f16}, {"16", DType::f16}};
  for (const auto& [precision, dtype] : known) {
    train::TrainerOptions chosen = options(1);
    chosen.precision = precision;
    chosen.max_epochs = 1;
    fit<Autocasted>(chosen);
    EXPECT_EQ(Autocasted::dtype, Autocasted::number_of(dtype)) << precision;
  }
}

TEST_F(Fit, ValuesThatCannotBeAreRefusedByName) {
  auto refused = [&](const std::function<void(train::TrainerOptions&)>& change) {
    train::TrainerOptions chosen = options();
    change(chosen);
    return error_of([&] { train::Trainer trainer(chosen); });
  };
  EXPECT_THAT(refused([](auto& o) { o.precision = "64-true"; }),
              HasSubstr("precision is '64-true', expected one of 32-true, bf16-mixed, 16-mixed"));
  EXPECT_THAT(refused([](auto& o) { o.strategy = "deepspeed"; }), HasSubstr("unknown strategy 'deepspeed'"));
  EXPECT_THAT(refused([](auto& o) { o.devices = 0; }), HasSubstr("devices is 0, expected 1 or more"));
  EXPECT_THAT(refused([](auto& o) { o.gpus = 1; }), HasSubstr("gpus says what devices and accelerator say"));
  EXPECT_THAT(refused([](auto& o) {
                o.devices = {};
                o.gpus = 0;
              }),
              HasSubstr("gpus is 0, expected 1 or more"));
  EXPECT_THAT(refused([](auto& o) { o.accelerator = "tpu"; }),
              HasSubstr("'tpu', expected one of cpu, gpu, cuda, auto"));
  EXPECT_THAT(refused([](auto& o) { o.max_epochs = 0; }), HasSubstr("max_epochs is 0, expected an integer from 1 to"));
  EXPECT_THAT(refused([](auto& o) { o.max_steps = 9; }), HasSubstr("max_epochs and max_steps are both given"));
  EXPECT_THAT(refused([](auto& o) { o.gradient_clip_val = -1; }), HasSubstr("gradient_clip_val is -1.0, expected"));
  EXPECT_THAT(refused([](auto& o) { o.accumulate_grad_batches = 0; }), HasSubstr("accumulate_grad_batches is 0"));
}

TEST_F(Fit, LightningsNamesAndAStrategyWithItsArgumentsAreKnown) {
  for (const char* name :
       {"dp", "ddp", "fsdp", "fsdp_native", "ddp_fully_sharded", "ddp_sharded", "ddp_sharded_spawn"}) {
    train::TrainerOptions chosen = options(1);
    chosen.strategy = name;
    EXPECT_EQ(train::Trainer(chosen).config().strategy, fsdp::name_of(fsdp::parse_strategy(name)));
  }
  train::Trainer of_gpus(train::TrainerOptions{.gpus = 3});
  EXPECT_EQ(of_gpus.options().devices, 3);
  EXPECT_EQ(of_gpus.config().device, "cuda");
  train::TrainerOptions chosen = options();
  std::atomic<int> asked = 0;
  chosen.strategy = fsdp::Config{.strategy = fsdp::Strategy::zero2,
                                 .move_params_to_cpu = true,
                                 .wrap = [&](const nn::Module& module, const std::string&, int64_t) {
                                   ++asked;
                                   return module.type_name() == "Linear";
                                 }};
  std::string expected = weights(fit(options()));
  EXPECT_TRUE(weights(fit(chosen)) == expected) << "a strategy never changes the numbers";
  EXPECT_GT(asked, 0);
}

struct Named : Line {
  StepOutput training_step(const data::Batch& batch, int64_t i) override {
    Tensor loss = Line::training_step(batch, i).loss("");
    return std::map<std::string, Tensor>{{"loss", loss}, {"double", loss * 2}};
  }
  void on_train_batch_end(const StepOutput& output, const data::Batch&, int64_t) override {
    if (output.values.at("double").device() == kMeta) return;  // the plan's step
    EXPECT_EQ(double(output.values.at("double").item()), 2 * double(output.values.at("loss").item()));
    EXPECT_FALSE(output.values.at("double").requires_grad());
    ++seen;
  }
  static std::atomic<int> seen;
};
std::atomic<int> Named::seen;
struct Nameless : Line {
  StepOutput training_step(const data::Batch& batch, int64_t i) override {
    return std::map<std::string, Tensor>{{"error", Line::training_step(batch, i).loss("")}};
  }
};

struct GivesNoLoss : Line {
  StepOutput training_step(const data::Batch&, int64_t) override { return Tensor(); }
};
struct GivesNoScore : Line {
  StepOutput validation_step(const data::Batch&, int64_t) override { return Tensor(); }
};

TEST_F(Fit, StepsThatGiveNoTensorAreToldByTheirNames) {
  EXPECT_THAT(refusal<GivesNoLoss>(options()), HasSubstr("training_step gives no 'loss'; return a tensor, or"));
  EXPECT_THAT(refusal<GivesNoScore>(options()), HasSubstr("validation_step gives 'loss', which is no tensor"));
}

TEST_F(Fit, AMapWithALossTrainsAndOneWithoutIsRefused) {
  std::string expected = weights(fit(options()));
  EXPECT_TRUE(weights(fit<Named>(options())) == expected);
  EXPECT_EQ(Named::seen, 2 * 28);
  EXPECT_THAT(refusal<Nameless>(options()),
              HasSubstr("training_step gives no 'loss' but 'error'; return a tensor, or"));
}

struct Scored : Line {
  StepOutput validation_step(const data::Batch& batch, int64_t) override {
    Tensor y = forward(batch.fields[0]), error = sub(y, batch.fields[1]);
    double near = 0;
    for (float value : error.to_vector<float>()) near += std::abs(value) < 0.1F;
    log("near", near / double(batch.global_count));
    return mse_loss(y, batch.fields[1], double(batch.global_count));
  }
  std::vector<train::Monitor> monitors() const override { return {{"near", true}, {"loss"}}; }
};
struct Unnamed : Scored {
  std::vector<train::Monitor> monitors() const override { return {{"loss"}}; }
};
struct Missing : Scored {
  std::vector<train::Monitor> monitors() const override { return {{"loss"}, {"far"}}; }
};
struct Chatty : Line {
  StepOutput training_step(const data::Batch& batch, int64_t i) override {
    log("seen", 1);
    return Line::training_step(batch, i);
  }
};

TEST_F(Fit, WhatAValidationLogsIsAScoreOfTheRun) {
  train::Result one = fit<Scored>(options(1)), three = fit<Scored>(options(3));
  ASSERT_EQ(one.scores.size(), 2U);
  EXPECT_EQ(one.scores[0].name, "near");
  EXPECT_TRUE(one.scores[0].higher_is_better);
  EXPECT_GT(one.scores[0].value, 0.1);
  EXPECT_NEAR(one.scores[0].value * 37, std::round(one.scores[0].value * 37), 1e-5) << "a share of 37 samples";
  EXPECT_NEAR(three.scores[1].value, one.scores[1].value, 1e-5);
  EXPECT_THAT(refusal<Unnamed>(options()), HasSubstr("gives 'near', which monitors() does not name"));
  EXPECT_THAT(refusal<Missing>(options()), HasSubstr("gives and logs no 'far', which monitors() names"));
  EXPECT_THAT(refusal<Chatty>(options()), HasSubstr("log('seen') outside of validation_step"));
}

TEST_F(Fit, ValidateTestAndPredictUseTheLastWeights) {
  train::Trainer trainer(options());
  auto make = [] { return nn::make<Scored>(); };
  train::Result result = trainer.fit(make, planes);
  auto samples = [] { return plane(200, 37); };
  EXPECT_EQ(trainer.validate(make, samples).scores[1].value, result.scores[1].value);
  EXPECT_EQ(trainer.test(make, samples).scores[0].value, result.scores[0].value) << "test_step is validation_step";
  train::Predictions said = trainer.predict(make, samples);
  ASSERT_EQ(said.rows, 37);
  ASSERT_EQ(said.columns, 1);
  double sum = 0;
  for (int64_t i = 0; i < 37; ++i) {
    float a = float((200 + i) % 19) / 19 - 0.5F, b = float((200 + i) % 23) / 23 - 0.5F;
    sum += std::pow(double(said.values[size_t(i)]) - double(2 * a - b), 2);
  }
  EXPECT_NEAR(sum / 37, result.scores[1].value, 1e-6) << "in the order of the samples";
}

TEST_F(Fit, WeightsComeFromARunACheckpointOrAFileAndAnyNumberOfRanks) {
  train::Result result = fit(options(2));
  train::Trainer other(options(3));
  auto make = [] { return nn::make<Line>(); };
  auto samples = [] { return plane(200, 37); };
  EXPECT_THAT(error_of([&] { other.validate(make, samples); }), HasSubstr("call fit first, or give ckpt_path"));
  for (const std::string& from : {result.folder, result.folder + "/step-28", result.folder + "/model.safetensors"})
    EXPECT_NEAR(other.validate(make, samples, from).scores[0].value, result.scores[0].value, 1e-6) << from;
  EXPECT_THAT(error_of([&] { other.validate(make, samples, folder_ / "nowhere"); }), HasSubstr("nothing is saved in"));
}

struct Silent : Line {
  Tensor predict_step(const data::Batch& batch, int64_t i) override { return train::FitModule::predict_step(batch, i); }
};
struct Summed : Line {
  Tensor predict_step(const data::Batch& batch, int64_t) override { return sum(forward(batch.fields[0])); }
};

TEST_F(Fit, PredictionsAreARowForEachSample) {
  train::Trainer trainer(options());
  trainer.fit([] { return nn::make<Line>(); }, planes);
  auto samples = [] { return plane(200, 37); };
  EXPECT_THAT(error_of([&] { trainer.predict([] { return nn::make<Silent>(); }, samples); }),
              HasSubstr("module Silent has no predict_step(batch, i)"));
  EXPECT_THAT(error_of([&] { trainer.predict([] { return nn::make<Summed>(); }, samples); }),
              HasSubstr("it must be (rows, …) with a row for each"));
}

// Layers that are made where the trainer says so, and what a module sees of it.
struct Late : train::FitModule {
  nn::Child<nn::Linear> only;
  void configure_sharded_model() override {
    EXPECT_FALSE(only);
    only = child<nn::Linear>("only", 2, 1);
  }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    EXPECT_EQ(&trainer().model(), this);
    int ranks = batch.fields[0].device() == kMeta ? 2 : trainer().world_size();  // on meta it is only looked at
    EXPECT_EQ(ranks, 2);
    return mse_loss(only(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  train::Optimizers configure_optimizers(std::vector<NamedParameter>) override {
    EXPECT_EQ(*trainer().options().max_epochs, 4);
    return {std::make_unique<optim::SGD>(trainer().model().named_parameters(), optim::SgdOptions{.lr = 0.5})};
  }
};

TEST_F(Fit, LayersAreMadeInConfigureShardedModelAndTheTrainerIsSeen) {
  EXPECT_LT(fit<Late>(options()).scores[0].value, 5e-3) << "a line is a line";
  EXPECT_THAT(error_of([] { nn::make<Late>()->trainer(); }), HasSubstr("module Late has no trainer yet"));
}

// The units of a module are what the ledger counts by.
struct Wrapped : Late {
  nn::Child<nn::Linear> more;
  void configure_sharded_model() override {
    only = fsdp::wrap(child<nn::Linear>("only", 2, 1));
    more = child<nn::Linear>("more", 1, 1);
    chosen = fsdp::wrapped_units().contains(&*only) && !fsdp::wrapped_units().contains(&*more);
  }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    return mse_loss(more(only(batch.fields[0])), batch.fields[1], double(batch.global_count));
  }
  static std::atomic<bool> chosen;
};
std::atomic<bool> Wrapped::chosen;

struct Plain : Late {
  nn::Child<nn::Linear> more;
  void configure_sharded_model() override {
    only = child<nn::Linear>("only", 2, 1);
    more = child<nn::Linear>("more", 1, 1);
  }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    return mse_loss(more(only(batch.fields[0])), batch.fields[1], double(batch.global_count));
  }
};

TEST_F(Fit, WithoutAWordTheModulesChildrenAreUnits) {
  auto units = nlohmann::json::parse(read_file(fit<Plain>(options()).folder + "/about.json"))["plan"]["units"];
  ASSERT_EQ(units.size(), 2U) << "not all in one";
  EXPECT_EQ(units[0]["name"], "only");
  EXPECT_EQ(units[1]["name"], "more");
}

TEST_F(Fit, LayersThatAreWrappedThereAreUnits) {
  train::Result result = fit<Wrapped>(options());
  EXPECT_TRUE(Wrapped::chosen);
  auto units = nlohmann::json::parse(read_file(result.folder + "/about.json"))["plan"]["units"];
  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[0]["name"], "root") << "with what is not wrapped";
  EXPECT_EQ(units[1]["name"], "only");
}

TEST_F(Fit, ActivationsOfATypeAreComputedAgainWithTheSameBits) {
  std::string expected = weights(fit(options()));
  train::TrainerOptions chosen = options();
  chosen.activation_checkpointing = {"Hill"};
  EXPECT_TRUE(weights(fit(chosen)) == expected);
  chosen.activation_checkpointing = {"Mountain"};
  EXPECT_THAT(refusal(chosen), HasSubstr("Mountain"));
}

TEST_F(Fit, ClippingAndMicroBatchesAreTheLoops) {
  for (const char* strategy : {"ddp", "zero3"}) {
    train::TrainerOptions chosen = options();
    chosen.strategy = strategy;
    chosen.gradient_clip_val = 0.01;
    chosen.accumulate_grad_batches = 3;
    train::Result result = fit<Scheduled>(chosen);
    EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy;
    EXPECT_GT(result.scores[0].value, fit<Scheduled>(options()).scores[0].value) << "steps are short";
  }
}

TEST_F(Fit, AGroupOfRanksIsUsedAsItIs) {
  std::string expected = weights(fit(options(2)));
  train::TrainerOptions chosen = options();
  chosen.devices = {};
  train::Result result;
  dist::run_ranks(2,
                  [&](dist::ProcessGroup& world) {
                    train::Trainer trainer(chosen, world);
                    train::Result mine = trainer.fit([] { return nn::make<Line>(); }, planes);
                    if (world.rank() == 0) result = mine;
                  },
                  {.seed = 1});
  EXPECT_TRUE(weights(result) == expected);
  chosen.devices = 4;
  EXPECT_THAT(
      error_of([&] { dist::run_ranks(2, [&](dist::ProcessGroup& world) { train::Trainer trainer(chosen, world); }); }),
      HasSubstr("devices is 4, but the group has 2 ranks; leave devices out"));
}

struct Alone : Line {
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    return mse_loss(forward(batch.fields[0]), batch.fields[1]);
  }
};

TEST_F(Fit, ALossWithoutTheWholeBatchsCountIsRefusedOnSeveralRanks) {
  EXPECT_FALSE(refusal<Alone>(options(2)).empty());
}

}  // namespace
}  // namespace shardgrad
