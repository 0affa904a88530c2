// A data set, a model, a task and a callback that the library does not know, as a user's program registers them.

#include <chrono>
#include <cmath>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/tasks/next_token.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using train::Registry;

// y = 2 x0 - x1, for points of a grid.
data::Splits points(int64_t side) {
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

constexpr const char* kOwn = R"({"data": {"name": "points", "side": 21}, "model": {"name": "net", "width": 16},
  "task": {"name": "regression"}, "optimizer": {"name": "adam", "lr": 0.02}, "batch": 32})";

TEST_F(OwnRun, ModelAndDataOfAUserTrainOnAnyNumberOfRanksUnderEveryStrategy) {
  configure(kOwn, {"epochs=12"});
  auto expected = metrics(train(1));
  EXPECT_GT(expected.back()["test_r2"].get<double>(), 0.99);
  EXPECT_LT(expected.back()["test_rmse"].get<double>(), 0.1);
  for (const char* strategy : {"zero3", "zero2", "zero1", "ddp", "hybrid"}) {
    config_.strategy = strategy;
    config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
    train::Result result = train(4);
    auto lines = metrics(result);
    EXPECT_NEAR(lines.back()["test_r2"].get<double>(), expected.back()["test_r2"].get<double>(), 1e-5) << strategy;
    EXPECT_NEAR(lines.front()["loss"].get<double>(), expected.front()["loss"].get<double>(), 1e-5) << strategy;
    EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy;
    auto [planned, measured] = peaks(result);
    EXPECT_EQ(planned, measured) << strategy;
    EXPECT_GE(planned.size(), 4u) << strategy;
  }
}

struct NormsSeen : train::Callback {
  explicit NormsSeen(std::vector<std::optional<double>>& norms) : norms(norms) {}
  void on_step(const train::Stepped& e) override { norms.push_back(e.grad_norm); }
  std::vector<std::optional<double>>& norms;
};

TEST_F(OwnRun, OnTheCpuACallbackIsToldTheNormOfEveryStepThatClips) {
  std::vector<std::optional<double>> norms;
  std::vector<std::optional<double>> of_rank_1;
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) {
    return std::make_unique<NormsSeen>(world.rank() == 0 ? norms : of_rank_1);
  });
  configure(kOwn, {"epochs=1", "clip_grad_norm=0.1", "log_interval=4"});
  train(2);
  ASSERT_GE(norms.size(), 6u);
  for (const auto& norm : norms) EXPECT_GT(norm.value_or(0), 0);
  EXPECT_EQ(norms, of_rank_1);
  norms.clear();
  configure(kOwn, {"epochs=1", "log_interval=4"});
  train(2);
  for (size_t i = 0; i + 1 < norms.size(); ++i) EXPECT_EQ(norms[i].has_value(), i % 4 == 3) << i;
}

struct Nested : nn::Module {
  nn::Child<PlaneNet> net;
  explicit Nested(int64_t width) : net(child<PlaneNet>("net", width)) {}
  Tensor forward(const Tensor& x) { return net(x); }
};

TEST_F(OwnRun, WhatToDoAboutALargeUnitIsSaidInTheConfigurationsWords) {
  registry_.add_model<PlaneNetOptions>("nested", "one child",
                                       [](const PlaneNetOptions& o) { return nn::make<Nested>(o.width); });
  configure(kOwn, {"model.name=nested", "epochs=1"});
  train(2);
  EXPECT_THAT(out_.str(), HasSubstr("; make units of parts of it (fsdp.wrap=size)\n"));
  configure(kOwn, {"model.name=nested", "epochs=1", "fsdp.wrap=size"});
  train(2);
  EXPECT_THAT(out_.str(), HasSubstr("; make units of parts of it (a smaller fsdp.wrap_numel)\n"));
}

struct SlowPoints : PointsOptions {};

TEST_F(OwnRun, DataThatTakeLongToReadAreWaitedForWithALineOnATerminal) {
  registry_.add_data<SlowPoints>("slow", "a plane, later", [](const SlowPoints& o) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    return points(o.side);
  });
  configure(kOwn, {"data.name=slow", "epochs=1"});
  train(1);
  EXPECT_THAT(out_.str(), Not(HasSubstr("reading"))) << "in a file";
  terminal_.columns = [] { return 60; };
  train(2);
  EXPECT_TRUE(out_.str().starts_with("\r\033[Kreading the data  2 s\r\033[K")) << out_.str();
}

TEST_F(OwnRun, ATaskWithAModuleOfItsOwnTrainsSavesAndGoesOn) {
  const std::string text = R"({"data": {"name": "points"}, "task": {"name": "mirrored", "width": 8}, "batch": 32,
    "optimizer": {"lr": 0.2}, "epochs": 4, "name": "whole"})";
  configure(text);
  train::Result whole = train(2);
  EXPECT_EQ(whole.scores[0].name, "loss");
  EXPECT_LT(whole.scores[0].value, 0.05) << "the targets' variance is 0.4";
  EXPECT_THAT(out_.str(), HasSubstr("\ndone: test_loss=0.0"));
  configure(text, {"name=parts", "resume=true"});
  EXPECT_TRUE(train(2, true).stopped);
  EXPECT_EQ(train(2).scores[0].value, whole.scores[0].value);
}

TEST_F(OwnRun, KeysAreThoseOfTheChosenNamesAndWrittenWhole) {
  configure(kOwn);
  auto saved = nlohmann::json::parse(to_json(config_));
  EXPECT_EQ(saved["data"], nlohmann::json::parse(R"({"name": "points", "side": 21})"));
  EXPECT_EQ(saved["model"]["width"], 16);
  EXPECT_EQ(saved["task"], nlohmann::json::parse(R"({"name": "regression"})"));
  EXPECT_THAT(train::key_table(registry_), HasSubstr("| `model.width` | `8` | an integer 1 or more | `net`: units of"));
  EXPECT_THAT(train::key_table(registry_),
              HasSubstr(R"(`data.delimiter` | `","` | one of ",", ";", "\t", " ", "\|" | )"))
      << "signs are seen, and part no cells";
  auto refusal = [&](const std::vector<std::string>& overrides) {
    return error_of([&] { configure(kOwn, overrides); });
  };
  EXPECT_THAT(refusal({"data.side=1"}), HasSubstr("data.side is 1, expected an integer from 2 to 100"));
  EXPECT_THAT(refusal({"model.widht=4"}), HasSubstr("unknown key 'model.widht'; did you mean 'model.width'?"));
  EXPECT_THAT(refusal({"model.layers=[2,1]"}), HasSubstr("model.layers is an option of mlp, but model.name is net"));
  EXPECT_EQ(std::ranges::count(refusal({"model.name=nets", "model.layers=[2,1]", "model.widths=[3]"}), '\n'), 0)
      << "nothing is said of options of a model that there is not";
  EXPECT_THAT(refusal({"model.name=nets"}), HasSubstr("expected one of cnn, gpt2, llama, mlp, net"));
  EXPECT_THAT(refusal({"task.name=mirrored"}),
              HasSubstr("model.name means nothing to task mirrored, which has a module of its own"));
}

TEST_F(OwnRun, WhatDoesNotFitTogetherIsRefusedBeforeAFolderIsMade) {
  for (auto [overrides, words] :
       {std::pair<std::vector<std::string>, const char*>(
            {"task.name=classification"}, "needs one label for each sample, i64 []; the data has targets f32 [1]"),
        {{"model.name=mlp", "model.layers=[2,3]"}, "the model gives [2, 3] for two samples, the data has targets"},
        {{"model.name=mlp", "model.layers=[5,1]"}, "the model does not take the data's inputs, f32 [2, 2]"}}) {
    configure(R"({"data": {"name": "points"}, "model": {"name": "net"}, "task": {"name": "regression"}})", overrides);
    EXPECT_THAT(error_of([&] { train(2); }), HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(config_.runs));
  }
}

TEST_F(OwnRun, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  EXPECT_THAT(error_of([&] { registry_.make_model({"nets"}); }),
              HasSubstr("model.name is 'nets'; there are cnn, gpt2, llama, mlp, net"));
}

TEST_F(OwnRun, DataWhoseOutlineIsKnownNeedNotBeThereToPlan) {
  Context context;
  data::Outline outline{{{{2}, DType::f32}, {{1}, DType::f32}}, 70, 7};
  auto open = []() -> data::Splits { fail("it is not there"); };
  registry_.add_data("elsewhere", "a file", open, outline).add_data("unknown", "a file", open);
  EXPECT_EQ(registry_.outline_of({"elsewhere"}, 0), outline);
  EXPECT_EQ(error_of([&] { registry_.outline_of({"unknown"}, 0); }), "it is not there");
  data::Splits points = registry_.open_data({"points"}, 0);
  EXPECT_EQ(registry_.outline_of({"points"}, 0),
            (data::Outline{points.fields(), points.train->size(), points.test->size()}));
}

TEST_F(OwnRun, DataOfOtherFieldsToTestOnIsRefused) {
  Context context;
  registry_.add_data("uneven", "a plane, tested in space", [] {
    auto of_width = [](int64_t width) {
      return std::make_shared<data::TensorDataset>(std::vector<Tensor>{zeros({4, width}), zeros({4, 1})});
    };
    return data::Splits{of_width(2), of_width(3)};
  });
  EXPECT_THAT(error_of([&] { registry_.open_data({"uneven"}, 0); }), HasSubstr("data 'uneven' has other fields"));
}

TEST_F(OwnRun, CallbacksOfEveryRankSeeWhatHappens) {
  std::vector<SeenEvents> seen(2);
  registry_.add_callback(
      [&](const Config&, dist::ProcessGroup& world) { return std::make_unique<Watch>(seen[size_t(world.rank())]); });
  configure(kOwn, {"steps=10", "eval_every=4", "log_interval=3", "save_every=5"});
  train(2);
  for (const SeenEvents& s : seen) {
    EXPECT_THAT(s.steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    EXPECT_THAT(s.tests, ElementsAre(4, 8, 10)) << "and at the end";
    EXPECT_THAT(s.lines, ElementsAre(3, 4, 6, 7, 8, 9, 10)) << "an epoch has 7 steps";
    EXPECT_THAT(s.saves, ElementsAre(5, 10));
    EXPECT_EQ(s.ends, 1);
  }
}

// It may be killed right after.
struct LinesAtSave : train::Callback {
  LinesAtSave(const std::string& file, std::vector<size_t>& lines) : file(file), lines(lines) {}
  void on_save(const train::Saved&) override { lines.push_back(size_t(std::ranges::count(read_file(file), '\n'))); }
  std::string file;
  std::vector<size_t>& lines;
};

TEST_F(OwnRun, ACheckpointHasTheLinesOfEveryStepUntilThere) {
  std::vector<size_t> lines;
  registry_.add_callback([&](const Config& config, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
    if (world.rank() > 0) return std::make_unique<train::Callback>();
    return std::make_unique<LinesAtSave>(config.runs + "/run/metrics.jsonl", lines);
  });
  configure(kOwn, {"steps=10", "eval_every=10", "log_interval=10", "save_every=3", "log_steps=true"});
  train(2);
  EXPECT_THAT(lines, ElementsAre(3, 6, 9, 10));
}

// Whose process stands still for a while within its fifth loss, as Ctrl-Z and fg let it.
class Pausing : public Mirrored {
 public:
  Pausing(dist::Control*& control) : Mirrored(4), control_(control) {}
  Tensor loss(const data::Batch& batch) override {
    if (control_ && ++losses_ == 5) {
      control_->note_beat(dist::Suspension::Clock::now(), {}, std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      control_->note_beat(dist::Suspension::Clock::now(), {}, std::chrono::seconds(2));
    }
    return Mirrored::loss(batch);
  }

 private:
  dist::Control*& control_;
  int losses_ = 0;
};

TEST_F(OwnRun, SecondsOfAStepLeaveOutThoseInWhichTheProcessStoodStill) {
  dist::Control* control = nullptr;
  registry_.add_whole_task("pausing", "stands still", [&] { return std::make_unique<Pausing>(control); });
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) {
    control = &world.control();
    return std::make_unique<train::Callback>();
  });
  configure(R"({"data": {"name": "points"}, "task": {"name": "pausing"}, "steps": 6, "log_steps": true})");
  dist::WatchOptions seldom;
  seldom.beat = seldom.gap = std::chrono::seconds(60);  // only the test tells of the process
  train::Result result;
  dist::run_ranks(1, [&](dist::ProcessGroup& world) { result = train::train(config_, world, out_, terminal_); },
                  {.threads = 1, .watch = seldom});
  auto lines = metrics(result);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_LT(lines[4]["seconds"].get<double>(), 0.45);
  EXPECT_GE(result.seconds, 0.5);
}

struct EndAt : train::Callback {
  void on_eval(const train::Evaluated& e) override { step = e.step; }
  std::string reason_to_end() override { return step >= 14 ? "it is enough" : ""; }
  int64_t step = 0;
};

TEST_F(OwnRun, OneRanksCallbackEndsTheRunOnAll) {
  registry_.add_callback([](const Config&, dist::ProcessGroup& world) {
    return world.rank() == 1 ? std::make_unique<EndAt>() : std::make_unique<train::Callback>();
  });
  configure(kOwn, {"epochs=5"});
  train::Result result = train(2);
  EXPECT_EQ(result.steps, 14);
  EXPECT_FALSE(result.stopped) << "it is a good end";
  EXPECT_THAT(out_.str(), HasSubstr("saved step 14"));
  EXPECT_THAT(out_.str(), HasSubstr("ends after step 14: it is enough\n"));
}

TEST_F(OwnRun, OneThatACallbackHasEndedStaysEndedUntilItIsToBeLonger) {
  registry_.add_callback([](const Config&, dist::ProcessGroup&) { return std::make_unique<EndAt>(); });
  configure(kOwn, {"epochs=5", "resume=true"});
  train::Result result = train(2);
  std::string weights = read_file(result.folder + "/model.safetensors");
  EXPECT_EQ(train(2).steps, 14);
  EXPECT_EQ(read_file(result.folder + "/model.safetensors"), weights);
  EXPECT_THAT(out_.str(), HasSubstr("it has ended: it is enough; a larger number of epochs (or steps) goes on\n"));
  config_.epochs = 4;
  EXPECT_EQ(train(2).steps, 14) << "fewer are no reason to go on";
  config_.epochs = 6;
  EXPECT_EQ(train(2).steps, 21) << "and is asked again";
}

TEST_F(OwnRun, EndsEarlyWhereTheScoreBecomesNoBetterAndStaysEnded) {
  SeenEvents seen;
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
    if (world.rank() == 0) return std::make_unique<Watch>(seen);
    return std::make_unique<train::Callback>();
  });
  configure(kOwn, {"optimizer.lr=1e-30", "early_stop=3", "resume=true", "schedule.name=plateau",
                   "schedule.patience=4"});  // nothing changes
  train::Result result = train(2);
  EXPECT_EQ(result.steps, 4 * 7) << "the first evaluation, and three that are no better";
  EXPECT_THAT(out_.str(), HasSubstr("ends after step 28: no better r2 in 3 evaluations (early_stop)"));
  config_.epochs += 3;
  EXPECT_EQ(train(2).steps, 28);
  EXPECT_THAT(out_.str(),
              HasSubstr("it has ended: no better r2 in 3 evaluations (early_stop); a larger early_stop goes on\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("no better r2 in 4"))) << "its scores, once more, are no news";
  EXPECT_EQ(seen.tests.size(), 4U);
  config_.early_stop = 4;
  EXPECT_EQ(train(2).steps, 35) << "one more";
}

TEST_F(OwnRun, AScoreThatIsNoNumberIsToldOfOnce) {
  struct Scoreless : Mirrored {
    using Mirrored::Mirrored;
    std::vector<train::Score> scores(const train::Sums&) const override { return {{"r2", std::nan("")}}; }
  };
  registry_.add_whole_task("scoreless", "wrong", [] { return std::make_unique<Scoreless>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "scoreless"}, "epochs": 2})", {"keep_best=true"});
  train::Result result = train(2);
  std::string word = "test_r2 is NaN after step 1, which is never better: ", text = out_.str();
  EXPECT_THAT(text, HasSubstr(word));
  EXPECT_THAT(text, Not(HasSubstr("NaN after step 2")));
  EXPECT_FALSE(std::filesystem::exists(result.folder + "/best"));
  configure(kOwn, {"epochs=1"});
  train(2);
  EXPECT_THAT(out_.str(), Not(HasSubstr("never better")));
}

TEST_F(OwnRun, StepsTakeThePlaceOfEpochs) {
  configure(kOwn, {"steps=9"});
  EXPECT_EQ(train(2).steps, 9);
  EXPECT_EQ(nlohmann::json::parse(to_json(config_)).count("epochs"), 0);
  EXPECT_THAT(error_of([&] {
                configure(kOwn, {"steps=9", "epochs=1"});
              }),
              HasSubstr("epochs means nothing to a run of `steps`; remove it or change steps"));
}

// Parts of a batch add up to the batch: to rounding, and to the bit on any strategy.
TEST_F(OwnRun, MicroBatchesAreTheSameRunInLessMemory) {
  configure(kOwn, {"epochs=1"});
  auto expected = metrics(train(2));
  auto peak = [&] {
    return train::plan(config_, {{{{2}, DType::f32}, {{1}, DType::f32}}}, 2, kMeta).peaks.at(Category::activation);
  };
  int64_t whole = peak();
  std::map<std::string, std::vector<int64_t>> sent;
  for (bool once : {false, true}) {
    std::vector<nlohmann::json> first;
    for (const char* strategy : {"zero3", "zero1", "ddp"}) {
      configure(kOwn, {"epochs=1", "micro_batches=5", concat("strategy=", strategy),
                       concat("reduce_once=", once ? "true" : "false"), concat("name=", strategy, once)});
      train::Result result = train(2);
      auto lines = metrics(result);
      EXPECT_NEAR(lines.back()["loss"].get<double>(), expected.back()["loss"].get<double>(), 1e-5);
      if (first.empty()) first = lines;
      EXPECT_EQ(lines.back()["loss"], first.back()["loss"]) << strategy;
      EXPECT_EQ(lines.back()["grad_norm"], first.back()["grad_norm"]) << strategy;
      EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy << once;
      sent[strategy].push_back(result.step_bytes.value());
      EXPECT_LT(2 * peak(), whole) << strategy;
    }
  }
  for (const auto& [strategy, bytes] : sent) EXPECT_GT(bytes[0], bytes[1]) << strategy;
  EXPECT_THAT(error_of([&] { configure(kOwn, {"reduce_once=true"}); }),
              HasSubstr("reduce_once means nothing to one micro-batch"));
}

struct Slope : nn::Module {
  nn::Child<nn::Linear> only = child<nn::Linear>("only", 2, 1, false);
  Tensor forward(const Tensor& x) { return only(x); }
};

TEST_F(OwnRun, AModelWithoutBiasesTrainsByTheDefaultsWhilePatternsThatWereGivenMustFit) {
  registry_.add_model("slope", "no bias", [] { return nn::make<Slope>(); });
  const std::vector<std::string> slope = {"model.name=slope", "epochs=2", "optimizer.lr=0.1"};
  configure(R"({"data": {"name": "points"}, "task": {"name": "regression"}})", slope);
  EXPECT_EQ(train(2).scores[0].name, "r2");
  configure(R"({"data": {"name": "points"}, "task": {"name": "regression"}, "optimizer": {"no_decay": ["*.gain"]}})",
            slope);
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("the rule '*.gain' applies to no parameter"));
}

TEST_F(OwnRun, ANameIsRegisteredOnce) {
  EXPECT_THAT(error_of([&] { registry_.add_model("net", "again", [] { return nn::make<PlaneNet>(1); }); }),
              HasSubstr("'net' is registered twice"));
}

// Two columns of different size: each is predicted by its mean alone.
TEST_F(OwnRun, TheScoreR2IsTheMeanOfTheTargetsColumns) {
  Context context;
  train::Regression task(train::Model(nn::make<nn::Linear>(1, 2)));
  NoGrad no_grad;
  task.module().materialize();
  copy_into(task.module().named_parameters()[0].tensor, zeros({2, 1}));
  copy_into(task.module().named_parameters()[1].tensor, from_vector<float>({0.5F, 1000}, {2}));
  train::Sums sums;
  task.evaluate({{zeros({2, 1}), from_vector<float>({0, 1000, 1, 1000.5F}, {2, 2})}, 0, 2, 0, 2}, sums);
  std::vector<train::Score> scores = task.scores(sums);
  EXPECT_NEAR(scores[0].value, (0 + (1 - 0.25 / 0.125)) / 2, 1e-6);
  EXPECT_TRUE(scores[0].higher_is_better);
  EXPECT_FALSE(scores[1].higher_is_better) << scores[1].name;
  for (auto [target, expected] : {std::pair(1000.1F, 0.0), {1000, 1.0}}) {  // which nothing varies of
    train::Sums constant;
    task.evaluate({{zeros({3, 1}), from_vector<float>({0, target, 1, target, 2, target}, {3, 2})}, 0, 3, 0, 3},
                  constant);
    double first = 1 - (0.25 + 0.25 + 2.25) / 2;
    EXPECT_NEAR(task.scores(constant)[0].value, (first + expected) / 2, 1e-6) << target;
  }
}

TEST_F(OwnRun, ScoresSayWhetherTheHigherOneIsTheBetter) {
  Context context;
  train::Sums sums;
  for (const char* name : {"correct", "loss", "count"}) sums.add(name, 1);
  train::Model model(nn::make<nn::Linear>(1, 2));
  for (const train::Score& score : train::Classification({}, model).scores(sums))
    EXPECT_EQ(score.higher_is_better, score.name == "accuracy") << score.name;
  for (const train::Score& score : train::NextToken(model).scores(sums))
    EXPECT_FALSE(score.higher_is_better) << score.name;
}

TEST_F(OwnRun, SumsThatARankNamesOtherwiseAreRefused) {
  struct ByRank : Mirrored {
    using Mirrored::Mirrored;
    void evaluate(const data::Batch& batch, train::Sums& sums) override {
      Mirrored::evaluate(batch, sums);
      sums.add(batch.first == 0 ? "first" : "second", 1);
    }
  };
  registry_.add_whole_task("by_rank", "wrong", [] { return std::make_unique<ByRank>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "by_rank"}, "epochs": 1})");
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the sums of an evaluation are count loss second, and those of rank 0 count first loss"));
  configure(R"({"data": {"name": "points"}, "task": {"name": "by_rank"}, "epochs": 1, "grains": 4})");
  EXPECT_THAT(error_of([&] { train(1); }),
              HasSubstr("the sums of an evaluation are count first loss for the first grain "
                        "of a batch, and count loss second for another"));
}

// Best score, learning rate and the end of a run follow from scores: ranks that disagree would part.
TEST_F(OwnRun, ScoresThatDifferByRankAreRefusedWithBothValues) {
  struct ByRank : Mirrored {
    using Mirrored::Mirrored;
    void evaluate(const data::Batch& batch, train::Sums& sums) override {
      Mirrored::evaluate(batch, sums);
      mine = batch.first;
    }
    std::vector<train::Score> scores(const train::Sums& sums) const override {
      std::vector<train::Score> all = Mirrored::scores(sums);
      all.push_back({"luck", mine == 0 ? 0.25 : 0.75});
      if (mine != 0 && more) all.push_back({"more", 1});
      return all;
    }
    int64_t mine = 0;
    bool more = false;
  };
  struct More : ByRank {
    explicit More(int64_t width) : ByRank(width) { more = true; }
  };
  registry_.add_whole_task("by_rank", "wrong", [] { return std::make_unique<ByRank>(4); });
  registry_.add_whole_task("more", "wrong", [] { return std::make_unique<More>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "by_rank"}, "epochs": 1})");
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the task's score luck is 0.75 on rank 1 and 0.25 on rank 0; scores follow from the sums"));
  EXPECT_GT(train(1).steps, 0);
  config_.task.name = "more";
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the scores of an evaluation are loss luck more, and those of rank 0 loss luck"));
}

struct Logged : train::Callback {
  explicit Logged(std::vector<train::Metrics>& lines) : lines(lines) {}
  void on_logged(const train::Metrics& line) override { lines.push_back(line); }
  std::vector<train::Metrics>& lines;
};

TEST_F(OwnRun, TheLineOfEveryStepIsOfThatStepInEveryField) {
  std::vector<train::Metrics> lines;
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
    if (world.rank() > 0) return std::make_unique<train::Callback>();
    return std::make_unique<Logged>(lines);
  });
  configure(kOwn, {"steps=10", "eval_every=4", "log_interval=3", "log_steps=true"});
  train(2);
  ASSERT_EQ(lines.size(), 10u);
  double seconds = 0;
  for (const train::Metrics& line : lines) {
    bool stays = line.step == 4 || line.step == 7 || line.step == 8 || line.step == 10;
    EXPECT_EQ(line.epoch_done, stays) << line.step << ": an epoch has 7 steps, and 4, 8 and 10 are tested";
    seconds += line.seconds;
    EXPECT_NEAR(line.eta_seconds, double(10 - line.step) * seconds / double(line.step), 1e-9) << line.step;
  }
}

struct OptionalOptions {
  std::optional<int64_t> heads;
  int small = 1;
  void list(train::OptionList& options) {
    options.add("heads", heads, "unset: none");
    options.add("small", small, "an int");
  }
};

TEST_F(OwnRun, AnOptionMayBeUnsetAndAnIntegerIsNotCutOff) {
  registry_.add_model<OptionalOptions>("optional", "with an option", [] { return nn::make<PlaneNet>(3); });
  const std::string text =
      R"({"data": {"name": "points"}, "model": {"name": "optional"}, "task": {"name": "regression"},
    "epochs": 1})";
  configure(text);
  EXPECT_EQ(train(1).steps, 1);
  EXPECT_EQ(nlohmann::json::parse(to_json(config_))["model"].count("heads"), 0);
  EXPECT_THAT(error_of([&] { configure(text, {"model.small=4294967297"}); }), HasSubstr("model.small is 4294967297"));
}

TEST_F(OwnRun, ALossThatIsNoNumberIsRefusedWithItsShape) {
  struct Rows : Mirrored {
    using Mirrored::Mirrored;
    Tensor loss(const data::Batch& batch) override { return mul(batch.fields[1], batch.fields[1]); }
  };
  registry_.add_whole_task("rows", "wrong", [] { return std::make_unique<Rows>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "rows"}, "batch": 4})");
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("the task's loss is f32 [2, 1]; it must be one f32 number"));
}

TEST_F(OwnRun, AMakerThatGivesNothingAndSamplesOfNothingAreRefused) {
  registry_.add_whole_task("none", "wrong", [] { return std::unique_ptr<train::Task>(); });
  EXPECT_EQ(error_of([&] { registry_.make_task({"none"}, {}); }), "the maker of task 'none' gave none");
  struct Nothing : data::Dataset {
    int64_t size() const override { return 4; }
    std::vector<data::Field> fields() const override { return {}; }
    void read(std::span<const int64_t>, std::span<void* const>) const override {}
    uint64_t fingerprint() const override { return 0; }
  };
  registry_.add_data("nothing", "wrong", [] {
    return data::Splits{std::make_shared<Nothing>(), std::make_shared<Nothing>()};
  });
  EXPECT_THAT(error_of([&] { registry_.open_data({"nothing"}, 0); }),
              HasSubstr("data 'nothing' gave samples without fields"));
}

// They are keys of metrics.jsonl and words of the line `done:`; one that is no text would end the run at its first
// line.
TEST_F(OwnRun, NamesOfScoresAreDifferentWordsAndStayTheSame) {
  struct Named : Mirrored {
    explicit Named(std::vector<std::string> names) : Mirrored(4), names(std::move(names)) {}
    std::vector<train::Score> scores(const train::Sums& sums) const override {
      std::vector<train::Score> all;
      for (const std::string& name : names) all.push_back({name, sums["loss"], false});
      if (names[0] == "more" && sums["count"] > 0) all.push_back({"later", 0});
      return all;
    }
    std::vector<std::string> names;
  };
  auto refusal = [&](const std::string& task, std::vector<std::string> names) {
    registry_.add_whole_task(task, "named", [names] { return std::make_unique<Named>(names); });
    configure(R"({"data": {"name": "points"}, "steps": 1})", {"task.name=" + task});
    return error_of([&] { train(2); });
  };
  EXPECT_THAT(refusal("a", {"\xff"}), HasSubstr("a name is one word of UTF-8, without '='"));
  EXPECT_THAT(refusal("b", {"a\nb"}), HasSubstr("task 'b' has a score that is named 'a\nb'"));
  EXPECT_THAT(refusal("c", {"a b"}), HasSubstr("one word"));
  EXPECT_THAT(refusal("d", {""}), HasSubstr("one word"));
  EXPECT_THAT(refusal("e", {"same", "same"}), HasSubstr("task 'e' has two scores that are named 'same'"));
  EXPECT_FALSE(std::filesystem::exists(config_.runs)) << "refused before anything is made";
  EXPECT_THAT(refusal("f", {"more"}), HasSubstr("the task's scores are more later, and were more before"));
  EXPECT_EQ(refusal("g", {"größe", "mse/m²"}), "no error");
}

TEST_F(OwnRun, ABatchThatIsLargerThanTheDataIsPlannedAsItIs) {
  configure(kOwn, {"data.side=20", "batch=4096", "epochs=6"});  // of 200 points
  for (int ranks : {1, 2}) {
    train::Result result = train(ranks);
    auto [planned, measured] = peaks(result);
    EXPECT_EQ(planned, measured) << ranks;
    EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << ranks;
  }
  EXPECT_THAT(error_of([&] { configure(kOwn, {"micro_batches=33"}); }),
              HasSubstr("micro_batches is 33, and a batch has 32 samples"));
}

}  // namespace
}  // namespace shardgrad
