// What was trained, in use: evaluated again and asked about samples that come from elsewhere.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/data/npy_file.h>
#include <shardgrad/train/evaluate_run.h>
#include <shardgrad/train/predict_run.h>
#include <shardgrad/train/registry.h>

#include "config_texts.h"
#include "opened_times.h"
#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Used : public TrainerTest {
 protected:
  train::Evaluation evaluate(const std::string& run, int ranks) {
    train::Evaluation result;
    out_.str("");
    auto body = [&](dist::ProcessGroup& world) {
      train::Evaluation mine = train::evaluate_run(config_, run, world, out_);
      if (world.rank() == 0) result = mine;
    };
    dist::run_ranks(ranks, body, {.seed = 77, .threads = 1});
    return result;
  }
  int64_t predict(const std::string& run, const std::string& input, const std::string& output, int ranks = 1) {
    int64_t rows = 0;
    auto body = [&](dist::ProcessGroup& world) {
      rows = train::predict_run(config_, run, world, folder_ / input, folder_ / output).rows;
    };
    dist::run_ranks(ranks, body, {.threads = 1});
    return rows;
  }
  std::vector<std::string> lines(const std::string& file) {
    std::vector<std::string> lines;
    std::istringstream text(read_file(folder_ / file));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }
  // The test pictures as grey values from 0 to 255.
  void save_pictures(const std::string& name, int64_t from, int64_t to) {
    Context context;
    std::string images = read_file(folder_ / "t10k-images-idx3-ubyte.gz");
    std::vector<float> greys;
    for (int64_t i = 784 * from; i < 784 * to; ++i) greys.push_back(float(uint8_t(images[size_t(16 + i)])));
    data::write_npy(folder_ / name, from_vector<float>(greys, {to - from, 784}));
  }
};

TEST_F(Used, ScoresAreThoseThatTheRunReportedOnAnyRanksAndStrategy) {
  train::Result result = train(2);
  for (int ranks : {1, 2, 3})
    for (const char* strategy : {"zero3", "ddp"}) {
      config_.strategy = strategy;
      train::Evaluation again = evaluate(result.folder, ranks);
      EXPECT_EQ(again.scores[0].value, result.scores[0].value) << ranks << strategy;
      EXPECT_NEAR(again.scores[1].value, result.scores[1].value, 1e-5);
      EXPECT_THAT(out_.str(), StartsWith("eval: test_accuracy="));
      EXPECT_THAT(out_.str(), HasSubstr(" samples=101 step=30 run=" + result.folder));
    }
}

// Or eval and predict would tell of another model than the one that was trained.
TEST_F(Used, ScoresUnderAutocastAreThoseThatTheRunReported) {
  config_.autocast = "bf16";
  train::Result result = train(2);
  train::Evaluation again = evaluate(result.folder, 2);
  EXPECT_EQ(again.scores[1].value, result.scores[1].value);
  save_pictures("x.npy", 0, 5);
  predict(result.folder, "x.npy", "narrow.csv");
  config_.autocast = "off";
  predict(result.folder, "x.npy", "wide.csv");
  EXPECT_NE(read_file(folder_ / "narrow.csv"), read_file(folder_ / "wide.csv"));
  EXPECT_NE(evaluate(result.folder, 2).scores[1].value, result.scores[1].value);
}

TEST_F(Used, ScoresOfAModelInSixteenBitsAreThoseOfItsSixteenBits) {
  config_.fsdp.options.param_dtype = DType::bf16;
  train::Result result = train(2);
  EXPECT_EQ(evaluate(result.folder, 2).scores[1].value, result.scores[1].value);
}

// Raw values go in: the file says how they are to be transformed.
TEST_F(Used, PredictionsOfRawPicturesHaveTheAccuracyThatWasReported) {
  train::Result result = train(2);
  save_pictures("x.npy", 0, 101);
  EXPECT_EQ(predict(result.folder, "x.npy", "y.csv"), 101);
  std::vector<std::string> rows = lines("y.csv");
  ASSERT_EQ(rows.size(), 102);
  EXPECT_EQ(rows[0], "class,p0,p1,p2,p3,p4,p5,p6,p7,p8,p9");
  std::string labels = read_file(folder_ / "t10k-labels-idx1-ubyte.gz");
  int correct = 0;
  for (size_t i = 0; i < 101; ++i) correct += std::stoi(rows[i + 1]) == labels[8 + i];
  EXPECT_EQ(double(correct) / 101, result.scores[0].value);
  predict(result.folder, "x.npy", "y.npy");
  Context context;
  data::NpyFile file(folder_ / "y.npy");
  EXPECT_EQ(file.shape(), Shape({101, 11}));
}

TEST_F(Used, AModelOfATableGivesValuesInTheirOwnUnitsAndLabelsAsTexts) {
  std::string numbers = "a,b,c\n", texts = "a,b,c\n";
  for (int i = 0; i < 200; ++i) {
    int a = i % 20, b = i / 20;
    numbers += concat(a, ",", b, ",", 1000 + 100 * a - 50 * b, "\n");
    texts += concat(a, ",", b, ",", a < 10 ? "\"low, \"\"er\"\"\"" : "high", "\n");
  }
  folder_.write("numbers.csv", numbers);
  folder_.write("texts.csv", texts);
  {
    Context context;
    data::write_npy(folder_ / "x.npy", from_vector<float>({0, 0, 19, 2}, {2, 2}));
  }
  const std::string table = R"("target": "c", "name": "csv")", optimizer = R"("optimizer": {"name": "adam", "lr": 0.03},
    "batch": 32, "epochs": 30})";
  auto configure = [&](const std::string& text) {
    folder_.write("c.json", text + optimizer);
    config_ = train::read_config(folder_ / "c.json", {"runs=" + (folder_ / "runs")}, {});
  };
  configure(concat(R"({"data": {"standardise_target": true, "path": ")", folder_ / "numbers.csv", "\", ", table,
                   R"(}, "model": {"layers": [2, 16, 1]}, "task": {"name": "regression"}, "name": "numbers", )"));
  train::Result result = train(2);
  EXPECT_GT(result.scores[0].value, 0.99);
  predict(result.folder, "x.npy", "y.csv");
  EXPECT_EQ(lines("y.csv")[0], "y0");
  EXPECT_NEAR(std::stod(lines("y.csv")[1]), 1000, 100);
  EXPECT_NEAR(std::stod(lines("y.csv")[2]), 2800, 100);
  configure(concat(R"({"data": {"kind": "classes", "path": ")", folder_ / "texts.csv", "\", ", table,
                   R"(}, "model": {"layers": [2, 16, 2]}, "name": "texts", )"));
  result = train(2);
  EXPECT_GT(result.scores[0].value, 0.9);
  predict(result.folder, "x.npy", "y.csv");
  EXPECT_EQ(lines("y.csv")[0], "class,p0,p1,label");
  EXPECT_THAT(lines("y.csv")[1], ::testing::EndsWith(",\"low, \"\"er\"\"\""));
  EXPECT_THAT(lines("y.csv")[2], ::testing::EndsWith(",high"));
}

// An array without other dimensions is a row for each of its numbers, as it is in training.
TEST_F(Used, RowsOfOneNumberMayBeAnArrayOfOneDimension) {
  std::string table = "a,c\n";
  for (int i = 0; i < 50; ++i) table += concat(i, ",", 2 * i, "\n");
  folder_.write("a.csv", table);
  folder_.write("c.json", R"({"data": {"name": "csv", "target": "c"}, "model": {"layers": [1, 4, 1]}, "epochs": 1,
    "task": {"name": "regression"}, "optimizer": {"lr": 1e-4}})");
  config_ =
      train::read_config(folder_ / "c.json", {"data.path=" + (folder_ / "a.csv"), "runs=" + (folder_ / "runs")}, {});
  train::Result result = train(1);
  {
    Context context;
    data::write_npy(folder_ / "flat.npy", from_vector<float>({3, 5, 8}, {3}));
    data::write_npy(folder_ / "rows.npy", from_vector<float>({3, 5, 8}, {3, 1}));
    data::write_npy(folder_ / "wide.npy", from_vector<float>({3, 5, 8}, {1, 3}));
  }
  EXPECT_EQ(predict(result.folder, "rows.npy", "rows.csv"), 3);
  EXPECT_EQ(predict(result.folder, "flat.npy", "flat.csv"), 3);
  EXPECT_EQ(read_file(folder_ / "flat.csv"), read_file(folder_ / "rows.csv"));
  EXPECT_THAT(error_of([&] { predict(result.folder, "wide.npy", "y.csv"); }),
              HasSubstr("wide.npy' has shape [1, 3]; the model takes (rows, 1)"));
}

TEST_F(Used, TheNewestModelHasANameThatStays) {
  config_.save_every = 12;
  config_.keep = 1;
  train::Result result = train(2);
  EXPECT_EQ(read_file(result.folder + "/model.safetensors"), read_file(result.folder + "/step-30/model.safetensors"));
  config_.name = "own file";
  std::filesystem::create_directories(config_.runs + "/own file");
  std::ofstream(config_.runs + "/own file/model.safetensors") << "mine";
  config_.resume = true;
  train(2);
  EXPECT_EQ(read_file(config_.runs + "/own file/model.safetensors"), "mine");
}

// The same number of samples, but they mean something else.
TEST_F(Used, ScoresOnDataThatWereTransformedInAnotherWayAreRefused) {
  auto table = [&](const char* name, int from) {
    std::string text = "a,c\n";
    for (int i = from; i < from + 50; ++i) text += concat(i, ",", 2 * i, "\n");
    folder_.write(name, text);
  };
  table("one.csv", 0);
  table("two.csv", 7);
  folder_.write("c.json", R"({"data": {"name": "csv", "target": "c"}, "model": {"layers": [1, 4, 1]}, "epochs": 1,
    "task": {"name": "regression"}, "optimizer": {"lr": 1e-4}})");
  auto configure = [&](const char* file) {
    std::string path = "data.path=" + (folder_ / file);
    config_ = train::read_config(folder_ / "c.json", {path, "runs=" + (folder_ / "runs")}, {});
  };
  configure("one.csv");
  train::Result result = train(1);
  evaluate(result.folder, 2);
  configure("two.csv");
  EXPECT_THAT(error_of([&] { evaluate(result.folder, 2); }),
              HasSubstr("data 'csv' has other inputs than those that the model was trained on"));
}

TEST_F(Used, WhatAFileSaysOfItselfGivesATerminalNoOrders) {
  Context context;
  train::save_safetensors(folder_ / "t.safetensors", {{"a\x1b[31m", zeros({1})}}, {{"k\n", "\x1b]0;größer\x7f"}});
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(cli::inspect_command(folder_ / "t.safetensors"), 0);
  std::string shown = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(shown, HasSubstr("a\\x1b[31m  f32 [1]\n"));
  EXPECT_THAT(shown, HasSubstr("k\\x0a: \\x1b]0;größer\\x7f\n"));
}

TEST_F(Used, WhatCannotBeUsedIsRefused) {
  train::Result result = train(1);
  save_pictures("x.npy", 0, 3);
  {
    Context context;
    data::write_npy(folder_ / "wide.npy", zeros({3, 785}));
    data::write_npy(folder_ / "one.npy", zeros({784}));
  }
  auto refusal = [&](const std::string& run, const char* input, const char* output, int ranks = 1) {
    return error_of([&] { predict(run, input, output, ranks); });
  };
  EXPECT_THAT(refusal(result.folder, "wide.npy", "y.csv"),
              HasSubstr("has shape [3, 785]; the model takes (rows, 784)"));
  EXPECT_THAT(refusal(result.folder, "one.npy", "y.csv"),
              HasSubstr("has shape [784]; the model takes (rows, 784): a single sample is (1, 784)"));
  EXPECT_THAT(refusal(result.folder, "x.npy", "y.txt"), HasSubstr("has another ending than .csv and .npy"));
  EXPECT_THAT(refusal(result.folder, "none.npy", "y.csv"), HasSubstr("none.npy"));
  EXPECT_THAT(refusal(result.folder, "x.npy", "no/such/y.csv"), HasSubstr("cannot write"));
  folder_.write("mine.csv.tmp", "mine");
  EXPECT_EQ(refusal(result.folder, "x.npy", "mine.csv"), "no error");
  EXPECT_EQ(read_file(folder_ / "mine.csv.tmp"), "mine");
  EXPECT_THAT(refusal(result.folder, "x.npy", "y.csv", 2), HasSubstr("predict works on one rank, and here are 2"));
  EXPECT_THAT(refusal(folder_.path(), "x.npy", "y.csv"), HasSubstr("nothing is saved in"));
  config_.ranks = {2, "--set devices=2: devices is 2"};
  EXPECT_EQ(refusal(result.folder, "x.npy", "y.csv"),
            "--set devices=2: devices is 2, and predict works on one rank; leave that out");
  EXPECT_EQ(error_of([&] { evaluate(result.folder, 1); }),
            "--set devices=2: devices is 2, and this job has 1 rank; the number is said when they are started, with "
            "`shardgrad launch -n 2 eval …`");
  EXPECT_EQ(error_of([&] { evaluate(result.folder, 2); }), "no error");
  config_.ranks = {};
  EXPECT_THAT(refusal(result.folder, "x.npy", "x.npy"), HasSubstr("is the input, too"));
  {
    Context context;
    Tensor x = full({3, 784}, 1);
    x.data<float>()[784] = std::nanf("");
    data::write_npy(folder_ / "nan.npy", x);
  }
  {
    Context context;
    Tensor x = full({3, 784}, 1, DType::f64);
    x.data<double>()[784] = 1e300;
    data::write_npy(folder_ / "far.npy", x);
  }
  EXPECT_THAT(refusal(result.folder, "far.npy", "y.csv"), HasSubstr("row 1 has 1e+300"));
  folder_.write("y.csv", "kept");
  EXPECT_THAT(refusal(result.folder, "nan.npy", "y.csv"), HasSubstr("row 1 has NaN"));
  EXPECT_EQ(read_file(folder_ / "y.csv"), "kept");
  std::string file = result.folder + "/step-30/model.safetensors", bytes = read_file(file);
  bytes.back() ^= 1;
  std::ofstream(file) << bytes;
  EXPECT_THAT(refusal(result.folder, "x.npy", "y.csv"), HasSubstr("is not what was saved"));
  EXPECT_THAT(error_of([&] { evaluate(result.folder, 2); }), HasSubstr("is not what was saved"));
  EXPECT_THAT(error_of([&] { train::verify_checkpoint(result.folder + "/step-30"); }), HasSubstr("is not what was"));
}

TEST_F(Used, AnotherCheckpointThanTheLastOneIsUsedByItsName) {
  config_.save_every = 10;
  config_.keep = 3;
  config_.keep_best = true;
  train::Result result = train(2);
  std::string best = read_file(result.folder + "/best").substr(0, 7);
  auto step_of = [&](const std::string& from) {
    evaluate(from, 2);
    std::string text = out_.str().substr(out_.str().find("step="));
    return text.substr(0, text.find(' '));
  };
  for (const char* name : {"/step-10", "/step-10/"}) EXPECT_EQ(step_of(result.folder + name), "step=10");
  EXPECT_EQ(step_of(result.folder + "/best"), "step=" + best.substr(5));
  EXPECT_EQ(step_of(result.folder + "/latest"), "step=30");
  EXPECT_EQ(train::named_checkpoint(result.folder + "/best"), result.folder + "/" + best);
  for (const char* name : {"", "/step-10", "/step-10/", "/best", "/latest"})
    EXPECT_TRUE(std::filesystem::equivalent(train::run_of(result.folder + name), result.folder)) << name;
  EXPECT_THAT(error_of([&] { train::run_of(result.folder + "/step-11"); }),
              HasSubstr("has no checkpoint 'step-11'; it has step-30, step-20, step-10"));
  std::filesystem::remove(result.folder + "/best");
  EXPECT_THAT(error_of([&] { train::run_of(result.folder + "/best"); }),
              HasSubstr("the best one is kept with keep_best"));
  save_pictures("x.npy", 0, 5);
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    EXPECT_EQ(train::predict_run(config_, result.folder + "/step-20", world, folder_ / "x.npy", folder_ / "y.csv").step,
              20);
  });
}

// A run that goes on may remove it meanwhile.
TEST_F(Used, AFileOfWeightsIsOpenedOnce) {
  train::Result result = train(1);
  save_pictures("x.npy", 0, 3);
  std::string model = result.folder + "/step-30/model.safetensors";
  EXPECT_EQ(times_opened(model, [&] { evaluate(result.folder, 1); }), 1);
  EXPECT_EQ(times_opened(model, [&] { predict(result.folder, "x.npy", "y.csv"); }), 1);
  EXPECT_EQ(times_opened(model, [&] { train::verify_used_checkpoint(result.folder); }), 1);
}

TEST_F(Used, APageTakesThePlaceOfNoFileOfTheRun) {
  std::string run = train(1).folder, before = read_file(run + "/config.json");
  for (const char* file : {"/config.json", "/ledger.json", "/not_there", "/step-30/run.json", "/../run/best"})
    EXPECT_THAT(error_of([&] { cli::report_command(run, run + file); }), HasSubstr("whose files are its own")) << file;
  EXPECT_EQ(read_file(run + "/config.json"), before);
  EXPECT_EQ(cli::report_command(run, run + "/page.html"), 0);
  EXPECT_EQ(cli::report_command(run, folder_ / "page"), 0);
}

TEST_F(Used, ARunsFolderIsNoHuggingFaceFolder) {
  std::string run = train(1).folder;
  for (const std::string& from : {run, run + "/step-30"})
    EXPECT_THAT(error_of([&] { config_of("{}", {concat("model.from=", from)}); }),
                HasSubstr(concat("begins with its weights with init_from=", from)));
}

}  // namespace
}  // namespace shardgrad
