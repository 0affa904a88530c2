// A data set, a model and a task that the library does not know train as its own do; what does not fit is refused.

#include <algorithm>
#include <chrono>
#include <thread>

#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/train/plan.h>

#include "own_run.h"

namespace shardgrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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

// Whose third step takes long; an evaluation has steps, too.
struct Lingering : Mirrored {
  Lingering() : Mirrored(4) {}
  Tensor loss(const data::Batch& batch) override {
    if (grad_enabled() && progress().step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    return Mirrored::loss(batch);
  }
};

TEST_F(OwnRun, OnATerminalSomethingIsSaidAtLeastEveryTwoSeconds) {
  EXPECT_LT(std::chrono::duration<double>(train::kSilence) + train::kTick, std::chrono::seconds(2));
  registry_.add_whole_task("lingering", "takes long once", [] { return std::make_unique<Lingering>(); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "lingering"}, "steps": 4})");
  terminal_.columns = [] { return 60; };
  train(1);
  EXPECT_THAT(out_.str(), ContainsRegex("\\[Kstep +3  [0-9]+ s")) << "while it goes on";
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
