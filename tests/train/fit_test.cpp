// A program in Lightning's words: a module with its steps, and a trainer with options in the place of a configuration.

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/train/checkpoint/checkpoint.h>

#include "fit_run.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    for (const auto& [name, hash] : train::verify_checkpoint(run.folder + "/step-28").manifest.model)
      bytes += concat(name, ' ', hash, '\n');
    return bytes;
  };
  EXPECT_EQ(values(fitted), values(result));
}

struct SeenRates : train::Callback {
  explicit SeenRates(std::vector<double>& rates) : rates(rates) {}
  void on_step(const train::Stepped& e) override { rates.push_back(e.lr); }
  std::vector<double>& rates;
};

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

TEST_F(Fit, KeysOfTheConfigurationAreHeldToTheirRules) {
  auto refused = [&](const std::function<void(Config&)>& change) {
    train::TrainerOptions chosen = options();
    change(chosen.config);
    return error_of([&] { train::Trainer trainer(chosen); });
  };
  EXPECT_THAT(refused([](Config& c) { c.log_interval = 0; }),
              HasSubstr("Trainer: log_interval is 0, expected an integer from 1 to"));
  EXPECT_THAT(refused([](Config& c) { c.trace_steps = {}; }), HasSubstr("trace_steps is [], expected a list of 2"));
  EXPECT_THAT(refused([](Config& c) { c.keep = 0; }), HasSubstr("keep is 0"));
  EXPECT_THAT(refused([](Config& c) { c.micro_batches = 0; }), HasSubstr("micro_batches is 0"));
  EXPECT_THAT(refused([](Config& c) { c.schedule.patience = 0; }), HasSubstr("schedule.patience is 0"));
  EXPECT_THAT(refused([](Config& c) { c.strategy = "deepspeed"; }), HasSubstr("unknown strategy 'deepspeed'"));
  EXPECT_THAT(refused([](Config& c) { c.fsdp.options.prefetch = -1; }), HasSubstr("fsdp.prefetch is -1"));
  EXPECT_THAT(refused([](Config& c) { c.name = "../x"; }), HasSubstr("name is '../x'; it names a folder: no '/'"));
  EXPECT_THAT(refused([](Config& c) { c.micro_batches = 99; }), HasSubstr("micro_batches is 99, and a batch has 16"));
  EXPECT_EQ(refused([](Config& c) { c.strategy = "FULL_SHARD"; }), "no error");
}

TEST_F(Fit, TheLargestValuesThatAShardingCanHaveAreTaken) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  train::TrainerOptions chosen = options();
  chosen.strategy = fsdp::Config{.strategy = fsdp::Strategy::ddp,
                                 .prefetch = std::numeric_limits<int>::max(),
                                 .prefetch_bytes = kLargest,
                                 .bucket_bytes = kLargest};
  chosen.config.fsdp.wrap = "size";
  chosen.config.fsdp.wrap_numel = kLargest;
  train::Trainer trainer(chosen);
  EXPECT_EQ(trainer.config().fsdp.options.bucket_bytes, kLargest);
  EXPECT_EQ(trainer.config().fsdp.wrap_numel, kLargest);
}

TEST_F(Fit, WhatNoConfigurationFileCanSayIsRefusedByName) {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto refused = [&](const std::function<void(train::TrainerOptions&)>& change) {
    train::TrainerOptions chosen = options();
    change(chosen);
    return error_of([&] { train::Trainer trainer(chosen); });
  };
  EXPECT_THAT(refused([](auto& o) { o.gradient_clip_val = kInfinity; }),
              HasSubstr("gradient_clip_val is inf, expected a finite number"));
  EXPECT_THAT(refused([](auto& o) { o.config.clip_grad_norm = kInfinity; }), HasSubstr("clip_grad_norm is inf"));
  EXPECT_THAT(refused([](auto& o) {
                o.config.optimizer.betas = {0.5, kInfinity};
              }),
              HasSubstr("optimizer.betas is [0.5,inf], expected a list of 2"));
  EXPECT_THAT(refused([](auto& o) { o.default_root_dir = "r\xff"; }), HasSubstr("default_root_dir has a text that is"));
  EXPECT_THAT(refused([](auto& o) { o.config.name = "r\xff"; }), HasSubstr("name has a text that is no UTF-8"));
  EXPECT_THAT(refused([](auto& o) { o.config.init_from = "r\xff"; }), HasSubstr("init_from has a text that is"));
}

// As `shardgrad launch --by local` and torchrun do: each process would train alone.
TEST_F(Fit, OneOfSeveralProcessesIsRefusedWithoutTheirGroup) {
  for (auto [world, other] : {std::pair("WORLD_SIZE", "RANK"), std::pair("SHARDGRAD_WORLD_SIZE", "SHARDGRAD_JOB_FD")}) {
    setenv(other, "0", 1);
    setenv(world, "2", 1);
    EXPECT_THAT(error_of([&] { train::Trainer trainer(options()); }), HasSubstr("has started 2 processes")) << world;
    setenv(world, "1", 1);
    train::Trainer alone(options());
    unsetenv(world);
    unsetenv(other);
  }
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
  EXPECT_THAT(refusal<Alone>(options(2)), HasSubstr("needs its count"));
}

struct Normed : Line {
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 2);
  Tensor forward(const Tensor& x) { return mul(hill(norm(x)), scale); }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    return mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
};

TEST_F(Fit, BatchNormsOverAllSamplesTrainOneModelOnAnyNumberOfRanks) {
  auto score = [&](int devices, std::optional<bool> all, const char* strategy) {
    train::TrainerOptions with = options(devices);
    with.config.batch = 18;  // 11 are left: none of three ranks has fewer than two
    with.strategy = strategy;
    with.sync_batchnorm = all;
    return fit<Normed>(with).scores[0].value;
  };
  double one = score(1, {}, "ddp");
  EXPECT_NEAR(score(1, true, "ddp"), one, 1e-6);
  for (int devices : {2, 3}) {
    EXPECT_NEAR(score(devices, true, "zero3"), one, 1e-5) << devices;
    EXPECT_EQ(score(devices, true, "zero3"), score(devices, true, "ddp")) << devices;
    EXPECT_GT(std::abs(score(devices, false, "ddp") - one), 1e-4) << "or it makes no difference";
  }
}

// Its loss reads the optimizer, which is there from the first call on, for the plan, too.
struct Annealed : Line {
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    Tensor loss = mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
    return loss * (1 + optimizer_->lr());
  }
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    train::Optimizers made = Line::configure_optimizers(std::move(parameters));
    optimizer_ = made.optimizer.get();
    return made;
  }
  optim::Optimizer* optimizer_ = nullptr;
};

TEST_F(Fit, ALossMayReadTheOptimizer) { EXPECT_EQ(fit<Annealed>(options()).steps, 28); }

}  // namespace
}  // namespace shardgrad
