#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/plan.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(TrainerTest, LearnsAndReportsExactly) {
  train::Result result = train(1);
  EXPECT_GT(result.scores[0].value, 0.95);
  EXPECT_EQ(result.steps, 30);
  auto lines = metrics(result);
  ASSERT_EQ(lines.size(), 9);  // steps 4, 8 and the end of each epoch
  EXPECT_EQ(lines.back()["step"], 30);
  for (const auto& line : lines)
    EXPECT_EQ(line["test_accuracy"].is_null(), line["step"].get<int>() % 10 != 0) << "of weights that were tested";
  EXPECT_EQ(lines.back()["samples"], 903);
  EXPECT_EQ(lines.back()["test_count"], 101);
  EXPECT_GT(lines.front()["loss"].get<double>(), lines.back()["loss"].get<double>());
  EXPECT_GT(lines.back()["grad_norm"].get<double>(), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\ndone: test_accuracy="));
}

TEST_F(TrainerTest, B09_B31_AnyNumberOfRanksTrainsTheSameRun) {
  for (const char* loss : {"mse", "cross_entropy"}) {
    config_.task.options["loss"] = concat("\"", loss, "\"");
    auto expected = metrics(train(1));
    for (int ranks = 2; ranks <= 4; ++ranks) {
      train::Result result = train(ranks);
      auto lines = metrics(result);
      ASSERT_EQ(lines.size(), expected.size());
      for (size_t i = 0; i < lines.size(); ++i) {
        EXPECT_NEAR(lines[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-4) << ranks << " ranks";
        EXPECT_EQ(lines[i]["test_accuracy"], expected[i]["test_accuracy"]) << ranks << " ranks";
      }
    }
  }
}

TEST_F(TrainerTest, StrategiesGiveTheSameBits) {
  config_.clip_grad_norm = 0.5;
  auto expected = metrics(train(4));
  for (const char* strategy : {"zero1", "zero2", "ddp", "hybrid"}) {
    config_.strategy = strategy;
    config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
    auto lines = metrics(train(4));
    ASSERT_EQ(lines.size(), expected.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["loss"], expected[i]["loss"]) << strategy;
      EXPECT_EQ(lines[i]["grad_norm"], expected[i]["grad_norm"]) << strategy;
    }
  }
}

TEST_F(TrainerTest, PrintsThePlanBeforeTrainingAndWhatWasMeasuredAfterIt) {
  config_.epochs = 1;
  train(2);
  std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("batch 32 = 2 ranks · 16; 10 steps an epoch, the last of 13\n"));
  size_t plan = text.find("one step, predicted:\n"), warning = text.find("warning: unit 'layer0' holds 99 %");
  EXPECT_LT(plan, warning) << text;
  EXPECT_LT(warning, text.find("samples/s")) << text;
  std::string last = text.substr(text.rfind("samples/s"));
  EXPECT_THAT(last, HasSubstr("sent by a step and rank"));
  EXPECT_THAT(last, HasSubstr("peak optimizer_state"));
  EXPECT_THAT(last, HasSubstr(", predicted "));
}

// The plan runs the trainer's own step, so what it predicts is what is sent, to the byte.
TEST_F(TrainerTest, AStepSendsWhatWasPredicted) {
  config_.epochs = 2;
  for (const char* strategy : {"zero1", "zero2", "zero3", "ddp", "hybrid"})
    for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::f16)})
      for (double clip : {0.0, 1.0}) {
        config_.strategy = strategy;
        config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
        config_.fsdp.options.param_dtype = dtype;
        config_.clip_grad_norm = clip;
        train::Result result = train(4);
        EXPECT_GT(result.step_bytes, 0) << strategy;
        EXPECT_EQ(result.step_bytes, result.predicted_step_bytes)
            << strategy << " in 16 bits: " << dtype.has_value() << " clipped at " << clip;
      }
  EXPECT_THAT(out_.str(), HasSubstr("sent by evaluation"));
}

TEST_F(TrainerTest, APlanIsOfTheRankWithTheMostSamples) {
  config_.batch = 33;
  fsdp::Plan plan = train::plan(config_, data::FashionMnist::known_outline(), 2, kMeta);
  EXPECT_EQ(plan.peaks.at(Category::data), 17 * (784 * 4 + 8)) << "pictures and labels";
}

TEST_F(TrainerTest, UnitsAreChosenByTypeAndByName) {
  config_.model.options["layers"] = "[784, 24, 12, 10]";
  config_.model.options["activation"] = "\"gelu\"";
  config_.fsdp.wrap = "types";
  auto units = [&](std::vector<std::string> types, std::vector<std::string> names) {
    config_.fsdp.wrap_types = types;
    config_.fsdp.wrap_names = names;
    std::vector<std::string> found;
    for (const auto& unit : train::plan(config_, data::FashionMnist::known_outline(), 2, kMeta).units)
      found.push_back(unit.name);
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(units({"Linear"}, {}), (Names{"layer0", "layer1", "layer2"}));
  EXPECT_EQ(units({}, {"layer1"}), (Names{"root", "layer1"}));
  EXPECT_EQ(units({"GELU"}, {"layer0", "layer2"}), (Names{"root", "layer0", "layer2"})) << "GELU has no parameters";
  EXPECT_EQ(units({"Linear"}, {"layer0"}).size(), 3) << "both ways are asked";
  EXPECT_THAT(error_of([&] { units({"Block"}, {}); }),
              HasSubstr("no module fits 'Block'; there are Linear, GELU, Sequential; "));
  EXPECT_THAT(error_of([&] { units({"Linear"}, {"blocks.*"}); }),
              HasSubstr("no module fits 'blocks.*'; there are layer0, activation0, layer1, activation1, layer2; "));
}

TEST_F(TrainerTest, RecomputeChangesNoBit) {
  auto expected = metrics(train(2));
  config_.recompute = {"layer?"};
  auto lines = metrics(train(2));
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["loss"], expected[i]["loss"]);
  config_.recompute = {"head"};
  EXPECT_THROW(train(2), Error);
}

TEST_F(TrainerTest, LearnsInSixteenBits) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    config_.fsdp.options.param_dtype = config_.fsdp.options.reduce_dtype = dtype;
    config_.clip_grad_norm = 5;
    train::Result result = train(2);
    EXPECT_GT(result.scores[0].value, 0.95) << dtype;
    EXPECT_GT(metrics(result).back()["grad_norm"].get<double>(), 0);
    EXPECT_LT(metrics(result).back()["grad_norm"].get<double>(), 100) << "of unscaled gradients";
  }
}

TEST_F(TrainerTest, LearnsUnderAutocastWithTheLossScaledForF16) {
  auto expected = metrics(train(2));
  for (const char* dtype : {"bf16", "f16"}) {
    config_.autocast = dtype;
    train::Result result = train(2);
    EXPECT_GT(result.scores[0].value, 0.95) << dtype;
    auto lines = metrics(result);
    EXPECT_NE(lines[0]["loss"], expected[0]["loss"]) << "in 16 bits";
    EXPECT_NEAR(lines[0]["loss"].get<double>(), expected[0]["loss"].get<double>(), 0.05) << dtype;
    auto about = nlohmann::json::parse(read_file(result.folder + "/step-30/run.json"));
    EXPECT_EQ(about["good_steps"].get<int>() > 0, config_.autocast == "f16") << dtype;
  }
}

// Products in 16 bits, parameters and what is sent in f32: the strategies still give the same bits, and what a step
// needs and sends is predicted to the byte.
TEST_F(TrainerTest, AutocastIsInThePlanAndChangesNoStrategy) {
  config_.epochs = 1;
  config_.clip_grad_norm = 1;
  for (const char* dtype : {"bf16", "f16"}) {
    config_.autocast = dtype;
    std::optional<nlohmann::json> loss;
    for (const char* strategy : {"zero2", "zero3", "ddp"}) {
      config_.strategy = strategy;
      train::Result result = train(2);
      EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << dtype << strategy;
      if (!loss) loss = metrics(result).back()["loss"];
      EXPECT_EQ(metrics(result).back()["loss"], *loss) << dtype << strategy;
      auto fields = data::FashionMnist::known_outline();
      EXPECT_TRUE(train::plan(config_, fields, 2, kMeta) == train::plan(config_, fields, 2, kCpu)) << dtype << strategy;
    }
  }
}

// Gradients of f16 parameters are scaled, the bound of their norm is not.
TEST_F(TrainerTest, ClippingIsOfUnscaledGradients) {
  config_.epochs = 1;
  config_.optimizer.name = "sgd";
  config_.clip_grad_norm = 0.25;
  auto expected = metrics(train(2));
  config_.fsdp.options.param_dtype = config_.fsdp.options.reduce_dtype = DType::f16;
  auto lines = metrics(train(2));
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    double norm = expected[i]["grad_norm"], loss = expected[i]["loss"];
    EXPECT_NEAR(lines[i]["grad_norm"].get<double>(), norm, 0.02 * norm) << i;
    EXPECT_NEAR(lines[i]["loss"].get<double>(), loss, 0.005 * loss) << i;
    EXPECT_GT(norm, 0.25) << "or nothing was clipped";
  }
}

TEST_F(TrainerTest, ClippingBoundsTheStep) {
  config_.epochs = 1;
  config_.clip_grad_norm = 1e-12;
  auto lines = metrics(train(2));
  EXPECT_NEAR(lines.back()["loss"].get<double>(), lines.front()["loss"].get<double>(), 0.05) << "it does not learn";
  EXPECT_GT(lines.back()["grad_norm"].get<double>(), 0.01) << "the norm before clipping";
}

TEST_F(TrainerTest, WritesItsLedger) {
  config_.epochs = 1;
  EXPECT_GT(nlohmann::json::parse(read_file(train(2).folder + "/ledger.json"))["peak"], 0);
}

TEST_F(TrainerTest, EveryActivationAndOptimizerTrains) {
  config_.epochs = 1;
  for (const char* activation : {"relu", "gelu", "tanh", "sigmoid"})
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      config_.model.options["activation"] = concat("\"", activation, "\"");
      config_.optimizer.name = optimizer;
      auto lines = metrics(train(2));
      EXPECT_LT(lines.back()["loss"].get<double>(), lines.front()["loss"].get<double>()) << activation << optimizer;
    }
}

TEST_F(TrainerTest, ARunThatWasStoppedGoesOnWithTheSameBits) {
  for (const char* strategy : {"zero3", "zero1", "ddp", "hybrid"})
    for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::f16)}) {
      config_.strategy = strategy;
      config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
      config_.fsdp.options.param_dtype = dtype;
      config_.resume = false;
      config_.name = concat("whole ", strategy, dtype ? " in 16 bits" : "");
      train::Result whole = train(4);
      config_.name = concat("parts ", strategy, dtype ? " in 16 bits" : "");
      config_.resume = true;
      train::Result first = train(4, true);
      EXPECT_TRUE(first.stopped);
      EXPECT_EQ(first.steps, 1);
      EXPECT_THAT(out_.str(), HasSubstr("stopped as asked after step 1 of 30 and saved in " + first.folder));
      train::Result second = train(4);
      EXPECT_THAT(out_.str(), HasSubstr("goes on after step 1 of 30"));
      EXPECT_EQ(second.folder, first.folder);
      EXPECT_FALSE(second.stopped);
      EXPECT_EQ(second.steps, whole.steps);
      EXPECT_EQ(second.scores[0].value, whole.scores[0].value);
      for (const char* file : {"/step-30/model.safetensors", "/step-30/optimizer.safetensors"})
        EXPECT_EQ(read_file(second.folder + file), read_file(whole.folder + file)) << strategy << file;
      EXPECT_EQ(metrics(second).back()["loss"], metrics(whole).back()["loss"]) << strategy;
      auto about = [](const train::Result& run) {
        return nlohmann::json::parse(read_file(run.folder + "/step-30/run.json"));
      };
      for (const char* key : {"step", "samples", "loss_scale", "good_steps"})
        EXPECT_EQ(about(second)[key], about(whole)[key]) << key;
    }
}

// Everything that changes from step to step goes on where it was: learning rate, order of samples, means of losses.
TEST_F(TrainerTest, ARunThatWasStoppedInTheMiddleOfItsScheduleGoesOnInIt) {
  config_.schedule = {.name = "cosine", .warmup_steps = 12, .final = 0.1};
  config_.log_interval = 1;
  config_.name = "whole";
  auto whole = metrics(train(2));
  config_.name = "parts";
  config_.resume = true;
  stop_at_ = "step      7";
  train::Result first = train(2);
  ASSERT_TRUE(first.stopped);
  EXPECT_GE(first.steps, 7);
  EXPECT_LT(first.steps, 24);
  stop_at_.clear();
  train::Result second = train(2);
  auto parts = metrics(second);
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < parts.size(); ++i)
    for (const char* key : {"step", "epoch", "samples", "loss", "lr", "grad_norm", "test_accuracy"})
      EXPECT_EQ(parts[i][key], whole[i][key]) << key << " of step " << i + 1 << ", stopped after " << first.steps;
}

// As if each of them had a progress line, which costs a norm and a wait.
TEST_F(TrainerTest, EveryStepHasALineWhereThatIsWanted) {
  for (int ranks : {1, 2, 4}) {
    config_.log_steps = false;
    config_.log_interval = 1;
    auto expected = metrics(train(ranks));
    config_.log_steps = true;
    config_.log_interval = 4;
    auto lines = metrics(train(ranks));
    ASSERT_EQ(lines.size(), 30u);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const char* key : {"step", "epoch", "samples", "loss", "lr", "test_accuracy", "test_loss", "test_count"})
        EXPECT_EQ(lines[i][key], expected[i][key]) << key << " of step " << i + 1 << " of " << ranks << " ranks";
      size_t step = i + 1;
      bool printed = step % 4 == 0 || step % 10 == 0;
      EXPECT_EQ(lines[i]["grad_norm"], printed ? expected[i]["grad_norm"] : nullptr) << step;
      EXPECT_GT(lines[i]["seconds"].get<double>(), 0);
      double count = lines[i]["samples_per_s"].get<double>() * lines[i]["seconds"].get<double>();
      EXPECT_NEAR(count, step % 10 == 0 ? 13 : 32, 1e-6) << step;
    }
  }
}

TEST_F(TrainerTest, LinesOfEveryStepChangeNeitherWhatIsPrintedNorWhatAStepNeedsAndSends) {
  auto seen = [&](bool log_steps) {
    config_.log_steps = log_steps;
    train::Result result = train(2);
    auto peaks = nlohmann::json::parse(read_file(result.folder + "/ledger.json"))["categories"];
    peaks.erase("other");  // four bytes for each step since the last line
    std::vector<std::string> lines;
    std::istringstream text(out_.str());
    for (std::string line; std::getline(text, line);)
      if (line.starts_with("step")) lines.push_back(line.substr(0, line.find("  ", line.find("test_"))));
    EXPECT_EQ(result.step_bytes, result.predicted_step_bytes);
    return std::tuple(result.step_bytes, peaks, lines);
  };
  EXPECT_EQ(seen(true), seen(false));
}

// The learning rate of every line, by the rule: times gamma whenever `patience` tests in a row were no better.
void expect_plateau_rule(const std::vector<nlohmann::json>& lines, const Config& config) {
  double lr = config.optimizer.lr, best = -1;
  int64_t worse = 0, drops = 0;
  for (const auto& line : lines) {
    EXPECT_DOUBLE_EQ(line["lr"].get<double>(), lr) << line["step"];
    if (line["test_accuracy"].is_null()) continue;
    double score = line["test_accuracy"];
    worse = score > best ? 0 : worse + 1;
    best = std::max(best, score);
    if (worse == 0 || worse % config.schedule.patience != 0) continue;
    lr *= config.schedule.gamma;
    ++drops;
  }
  EXPECT_GE(drops, 2) << "or nothing is tested";
}

TEST_F(TrainerTest, APlateauLowersTheLearningRateOnAnyNumberOfRanksAndAfterAStop) {
  config_.schedule = {.name = "plateau", .gamma = 0.5, .patience = 2};
  config_.epochs = 6;
  config_.eval_every = 1;
  config_.log_interval = 1;
  config_.name = "whole";
  auto whole = metrics(train(2));
  EXPECT_THAT(out_.str(), HasSubstr("no better accuracy in 2 evaluations: the learning rate is 0.005 from here on\n"));
  expect_plateau_rule(whole, config_);
  config_.name = "parts";
  config_.resume = true;
  stop_at_ = "the learning rate is 0.005 from here on";  // it stops some steps later
  ASSERT_TRUE(train(2).stopped);
  stop_at_.clear();
  auto parts = metrics(train(2));
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < parts.size(); ++i)
    for (const char* key : {"step", "loss", "lr", "test_accuracy"})
      EXPECT_EQ(parts[i][key], whole[i][key]) << key << " of step " << i + 1;
  for (int ranks : {1, 3}) {
    config_.name = concat(ranks, " ranks");
    expect_plateau_rule(metrics(train(ranks)), config_);
  }
}

TEST_F(TrainerTest, APlateauIsSaidWhereAStepFollowsThatItLowers) {
  config_.schedule = {.name = "plateau", .gamma = 0.5, .patience = 1};
  config_.optimizer.lr = 1e-30;  // no test is better than the first
  config_.epochs = 1;
  config_.eval_every = 1;
  train(1);
  std::string text = out_.str();
  int said = 0;
  for (size_t at = 0; (at = text.find(" from here on\n", at)) != std::string::npos; ++at) ++said;
  EXPECT_EQ(said, 8) << "after steps 2 to 9 of 10";
}

TEST_F(TrainerTest, TheLearningRateOfAScheduleIsAFunctionOfTheStep) {
  config_.log_interval = 1;
  config_.epochs = 1;
  config_.schedule = {.name = "step", .step_size = 4, .gamma = 0.1};
  auto lines = metrics(train(1));
  for (int i = 0; i < 10; ++i) EXPECT_DOUBLE_EQ(lines[i]["lr"].get<double>(), i < 4 ? 0.01 : i < 8 ? 0.001 : 0.0001);
  config_.schedule = {.name = "one_cycle", .one_cycle = {.pct_start = 0.3, .div_factor = 10}};
  lines = metrics(train(1));
  EXPECT_DOUBLE_EQ(lines[0]["lr"].get<double>(), 0.001);
  EXPECT_DOUBLE_EQ(lines[2]["lr"].get<double>(), 0.01);
  EXPECT_DOUBLE_EQ(lines[9]["lr"].get<double>(), 1e-7);
  for (const char* name : {"linear", "cosine"}) {
    config_.schedule = {.name = name, .warmup_steps = 2, .final = 0.1};
    lines = metrics(train(1));
    std::vector<double> rates{0.005, 0.01, 0.01, 0.001};
    for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(lines[i < 3 ? i : 9]["lr"].get<double>(), rates[i]) << name << i;
  }
}

// What a module's randomness depends on.
TEST_F(TrainerTest, ModulesAreToldWhichStepAndSamplesTheyCompute) {
  config_.epochs = 1;
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    train::train(config_, world, out_);
    EXPECT_EQ(progress().step, 9);
    EXPECT_EQ(progress().first_sample, world.rank() == 0 ? 0 : 7) << "of the last 13";
  });
  config_.micro_batches = 3;
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    train::train(config_, world, out_, {});
    EXPECT_EQ(progress().first_sample, world.rank() == 0 ? 4 : 7 + 4) << "of the last third";
  });
}

TEST_F(TrainerTest, MetricsOfARunThatGoesOnHaveEachStepOnce) {
  config_.resume = true;
  std::string file = train(2, true).folder + "/metrics.jsonl";
  std::string lines = read_file(file);
  std::ofstream(file) << lines << R"({"step": 20, "loss": 1})"
                      << "\n{\"step\": 2";  // it went on, and was killed
  auto all = metrics(train(2));
  std::vector<int64_t> steps;
  for (const auto& line : all) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 4, 8, 10, 12, 16, 20, 24, 28, 30}));
  EXPECT_EQ(all.back()["samples"], 903);
  EXPECT_THAT(out_.str(), Not(HasSubstr("damaged")));
}

TEST_F(TrainerTest, DamagedLinesOfMetricsAreLeftOutWithAWord) {
  config_.resume = true;
  std::string file = train(2).folder + "/metrics.jsonl", lines = read_file(file);
  size_t second = lines.find('\n') + 1;
  lines[second] = '#';
  std::ofstream(file) << lines;
  config_.epochs = 4;
  EXPECT_EQ(metrics(train(2))[1]["step"], 10) << "after 4; 8 is lost";
  EXPECT_THAT(out_.str(), HasSubstr("metrics.jsonl': 1 line is damaged and left out\n"));
}

// Scores of other samples say nothing of these weights.
TEST_F(TrainerTest, WhatWasBestIsForgottenWhereTheTestDataAreOthers) {
  config_.resume = config_.keep_best = true;
  config_.schedule = {.name = "plateau", .gamma = 0.5, .patience = 1};
  config_.optimizer.lr = 1e-30;  // nothing becomes better
  auto known = [](const train::Result& result, const char* step) {
    return nlohmann::json::parse(read_file(concat(result.folder, "/step-", step, "/run.json")));
  };
  train::Result result = train(2);
  EXPECT_THAT(out_.str(), HasSubstr("nothing is saved in '" + result.folder + "': begins with step 1\n"));
  EXPECT_EQ(known(result, "30")["plateaus"], 2);
  config_.epochs = 4;
  train(2);
  EXPECT_THAT(out_.str(), Not(HasSubstr("other samples")));
  write_pictures(folder_, "t10k", 90);
  config_.epochs = 5;
  train(2);
  EXPECT_THAT(out_.str(),
              HasSubstr("it is tested on other samples than before: which scores were best is forgotten, and the next "
                        "better ones, which any are, take the place of `best`\n"));
  EXPECT_EQ(known(result, "50")["best_step"], 50);
  EXPECT_EQ(known(result, "50")["plateaus"], 3) << "the learning rate stays where it was";
}

TEST_F(TrainerTest, EveryStepOfARunThatGoesOnHasItsLineOnce) {
  config_.log_steps = config_.resume = true;
  config_.log_interval = 1000;
  config_.name = "whole";
  auto whole = metrics(train(2));
  config_.name = "parts";
  train::Result first = train(2, true);
  EXPECT_EQ(metrics(first).size(), size_t(first.steps));
  auto parts = metrics(train(2));
  ASSERT_EQ(parts.size(), 30u);
  for (size_t i = 0; i < parts.size(); ++i)
    for (const char* key : {"step", "samples", "loss", "lr", "test_accuracy"})
      EXPECT_EQ(parts[i][key], whole[i][key]) << key << " of step " << i + 1;
}

TEST_F(TrainerTest, AFinishedRunIsSavedAndResumedToItsResult) {
  train::Result result = train(2);
  EXPECT_EQ(read_file(result.folder + "/latest"), "step-30\n");
  config_.resume = true;
  train::Result again = train(1);
  EXPECT_EQ(again.folder, result.folder);
  EXPECT_EQ(again.steps, 30);
  EXPECT_EQ(again.scores[0].value, result.scores[0].value);
  EXPECT_THAT(out_.str(), HasSubstr("\ndone: test_accuracy="));
  config_.optimizer.lr *= 2;
  std::string files = read_file(result.folder + "/config.json") + read_file(result.folder + "/metrics.jsonl");
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("optimizer.lr is 0.02, was 0.01"));
  EXPECT_EQ(read_file(result.folder + "/config.json") + read_file(result.folder + "/metrics.jsonl"), files);
  config_.optimizer.lr /= 2;
  write_pictures(folder_, "train", 290);
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("was saved by a run on other training data"));
}

TEST_F(TrainerTest, ALayerThatDoesNotFitTheDataIsRefusedBeforeARunBegins) {
  config_.model.options["layers"] = "[100, 10]";
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the model does not take the data's inputs, f32 [2, 784] of two samples: "));
  EXPECT_FALSE(std::filesystem::exists(config_.runs));
}

// A configuration in Lightning's words names a number of ranks; another job is not what was meant.
TEST_F(TrainerTest, ANumberOfRanksThatIsNamedIsThatOfTheJob) {
  config_.ranks = {2, "a.json:1: gpus is 2"};
  EXPECT_EQ(error_of([&] { train(1); }),
            "a.json:1: gpus is 2, and this job has 1 rank; the number is said when they are started, with `shardgrad "
            "launch -n 2 train …`");
  EXPECT_FALSE(std::filesystem::exists(config_.runs + "/run"));
  EXPECT_EQ(train(2).steps, 30);
}

TEST_F(TrainerTest, AWarmUpThatIsLongerThanTheRunIsRefusedBeforeItBegins) {
  config_.schedule.warmup_steps = 31;
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("schedule.warmup_steps is 31, but the run has only 30 steps and would end before the warm-up"));
  EXPECT_FALSE(std::filesystem::exists(config_.runs));
  config_.schedule.warmup_steps = 30;
  EXPECT_EQ(train(2).steps, 30);
}

TEST_F(TrainerTest, RanksWithDifferentConfigurationsAreRefused) {
  Config other = config_;
  other.optimizer.lr = 0.5;
  std::string message = error_of([&] {
    dist::run_ranks(2,
                    [&](dist::ProcessGroup& world) { train::train(world.rank() == 1 ? other : config_, world, out_); });
  });
  EXPECT_THAT(message, HasSubstr("the configuration of rank 1 differs from that of rank 0"));
}

}  // namespace
}  // namespace shardgrad
