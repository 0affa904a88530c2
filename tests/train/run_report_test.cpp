#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/train/checkpoint/run_lock.h>
#include <shardgrad/train/metrics_line.h>
#include <shardgrad/train/run_report.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using train::Metrics;
using train::RunReport;

train::Config config_in(const TemporaryFolder& folder) {
  train::Config config;
  config.runs = folder / "my runs";
  config.name = "first";
  return config;
}

TEST(RunReport, MetricsAreValidJsonWithTheAgreedKeysEvenForNonFiniteNumbers) {
  Metrics metrics{.step = 3, .epoch = 1, .samples = 768, .loss = std::nan(""), .lr = 0.1, .peak_bytes = 42};
  metrics.scores = {{"accuracy", std::nan("")}};
  json line = json::parse(to_json_line(metrics));
  for (const char* key : {"step", "epoch", "samples", "loss", "test_accuracy", "test_count", "lr", "grad_norm",
                          "seconds", "samples_per_s", "peak_bytes"})
    EXPECT_TRUE(line.contains(key)) << key;
  EXPECT_EQ(line.size(), 11);
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["test_accuracy"].is_null());
  EXPECT_EQ(line["peak_bytes"], 42);
}

TEST(RunReport, EveryRunHasItsOwnFolder) {
  TemporaryFolder folder;
  std::ostringstream out;
  RunReport first(config_in(folder), out), second(config_in(folder), out);
  EXPECT_THAT(first.folder(), EndsWith("my runs/first"));
  EXPECT_THAT(second.folder(), EndsWith("my runs/first-2"));
  EXPECT_EQ(json::parse(read_file(second.folder() + "/config.json"))["name"], "first");
}

// Two jobs with resume begin together: one makes the folder, the other has it first.
TEST(RunReport, ANewFolderThatDoesNotBeginGoesUnlessAnotherJobHasIt) {
  for (bool taken : {false, true}) {
    TemporaryFolder folder;
    std::ostringstream out;
    std::optional<RunReport> report(std::in_place, config_in(folder), out);
    std::string run = report->folder();
    std::ofstream(run + "/tokenizer.json") << "{}";
    std::optional<train::RunLock> other;
    if (taken) other.emplace(run);
    report.reset();
    for (const char* file : {"/config.json", "/tokenizer.json", "/metrics.jsonl"})
      EXPECT_EQ(std::filesystem::exists(run + file), taken) << file;
  }
}

TEST(RunReport, LinesThatCannotBeReadAreNotReplaced) {
  TemporaryFolder folder;
  std::ostringstream out;
  train::Config config = config_in(folder);
  config.resume = true;
  std::string lines = folder / "my runs/first/metrics.jsonl", fails_to_be_read = "/proc/self/mem";
  for (const std::string& target : {lines, fails_to_be_read}) {
    RunReport report(config, out);
    std::filesystem::remove(lines);
    std::filesystem::create_symlink(target, lines);
    EXPECT_THAT(error_of([&] { report.resume(config, 3, 9); }), HasSubstr("cannot read '" + lines));
    EXPECT_TRUE(std::filesystem::is_symlink(lines));
    EXPECT_FALSE(std::filesystem::exists(lines + ".tmp"));
    std::filesystem::remove(lines);
  }
}

TEST(RunReport, AFolderThatCannotBeMadeIsRefused) {
  TemporaryFolder folder;
  folder.write("my runs", "a file, not a folder");
  std::ostringstream out;
  EXPECT_THAT(error_of([&] { RunReport(config_in(folder), out); }), HasSubstr("set runs to a folder you may"));
}

TEST(RunReport, OnlySettingsThatAreNotTheDefaultsArePrinted) {
  TemporaryFolder folder;
  std::ostringstream out;
  train::Config config = config_in(folder);
  config.optimizer.lr = 0.5;
  config.data.options["dir"] = "\"/mine\"";
  RunReport report(config, out);
  EXPECT_EQ(out.str(), "") << "a run may be refused yet";
  report.settings(config);
  EXPECT_EQ(out.str(), "settings that are not the defaults (all are in " + report.folder() +
                           "/config.json):\n"
                           "  name                   \"first\"\n"
                           "  data.dir               \"/mine\"\n"
                           "  optimizer.lr           0.5\n"
                           "  runs                   \"" +
                           folder.path() + "/my runs\"\n");
}

// A report on a terminal of some width (0: none), with a clock that the test moves.
class ProgressLine : public ::testing::Test {
 protected:
  RunReport& begin(int columns) {
    columns_ = columns;
    train::Terminal terminal;
    if (columns > 0) terminal.columns = [this] { return columns_; };
    terminal.seconds = [this] { return seconds_; };
    report_.emplace(config_in(folder_), out_, terminal);
    out_.str("");
    return *report_;
  }
  // Since the last call.
  std::string printed() {
    std::string all = out_.str();
    out_.str("");
    return all;
  }
  std::string after_step(int64_t step, double seconds) {
    seconds_ += seconds;
    report_->on_step({step, 1000, 10 * step, 0.5, unread_, {}, tokens_per_sample_});
    return printed();
  }

  Tensor unread_;  // a step's loss
  double tokens_per_sample_ = 0;
  TemporaryFolder folder_;
  std::ostringstream out_;
  double seconds_ = 100;
  int columns_ = 0;
  std::optional<RunReport> report_;
  Metrics metrics_{.step = 100,
                   .epoch = 2,
                   .samples = 1000,
                   .loss = 0.25,
                   .scores = {{"accuracy", 0.875}},
                   .test_count = 10,
                   .samples_per_s = 1000,
                   .peak_bytes = 2048,
                   .eta_seconds = 150};
};

TEST_F(ProgressLine, HasEverythingOffATerminalWhereNothingIsPrintedBetweenTheIntervals) {
  begin(0).on_metrics(metrics_);
  EXPECT_EQ(printed(),
            "step    100  epoch   2  loss 0.25000  test_accuracy 0.8750      1000 samples/s  lr 0  peak 2.0 KiB  eta "
            "2m30s\n");
  EXPECT_EQ(after_step(101, 60), "");
  report_->on_logged(metrics_);
  json written = json::parse(read_file(folder_ / "my runs/first/metrics.jsonl"));
  EXPECT_EQ(written["test_accuracy"], 0.875);
}

TEST_F(ProgressLine, LosesItsLeastPartsUntilItFitsTheTerminal) {
  metrics_.epoch_done = true;
  const std::pair<int, std::string> kLines[] = {
      {200,
       "step    100  epoch   2  loss 0.25000  test_accuracy 0.8750      1000 samples/s  lr 0  peak 2.0 KiB  eta "
       "2m30s"},
      {100, "step    100  epoch   2  loss 0.25000  test_accuracy 0.8750      1000 samples/s  lr 0  eta 2m30s"},
      {80, "step    100  epoch   2  loss 0.25000  test_accuracy 0.8750  lr 0  eta 2m30s"},
      {60, "step    100  epoch   2  loss 0.25000  test_accuracy 0.8750"},
      {59, "step    100  epoch   2  loss 0.25000  test_accuracy 0.8750"},
      {58, "step    100  loss 0.25000  test_accuracy 0.8750  lr 0"},
      {40, "step    100  epoch   2  loss 0.25000"},
      {20, "step    100  lr 0"},
      {12, "step    100"},
      {5, "lr 0"},
      {4, ""}};
  for (const auto& [columns, expected] : kLines) {
    begin(columns).on_metrics(metrics_);
    EXPECT_EQ(printed(), "\r\033[K" + expected + "\n") << columns;
  }
}

TEST_F(ProgressLine, FollowsTheWindowAndIsWrittenOverUnlessWeightsWereTested) {
  RunReport& report = begin(58);
  report.on_metrics(metrics_);
  columns_ = 40;
  report.on_metrics(metrics_);
  metrics_.epoch_done = true;
  report.on_metrics(metrics_);
  report.say("a word");
  EXPECT_EQ(printed(),
            "\r\033[Kstep    100  loss 0.25000  test_accuracy 0.8750  lr 0"
            "\r\033[Kstep    100  epoch   2  loss 0.25000"
            "\r\033[Kstep    100  epoch   2  loss 0.25000\n"
            "\r\033[Ka word\n");
}

TEST_F(ProgressLine, OfALongStepOrEvaluationIsWhatGoesOnAndForHowLong) {
  RunReport& report = begin(60);
  auto tick = [&](double seconds) {
    seconds_ += seconds;
    report.tick();
    return printed();
  };
  EXPECT_EQ(tick(1), "");
  EXPECT_EQ(tick(3), "\r\033[Kbefore the first step  4 s");
  EXPECT_EQ(tick(1), "") << "not again at once";
  EXPECT_EQ(tick(1), "\r\033[Kbefore the first step  6 s");
  EXPECT_EQ(after_step(7, 1), "\r\033[Kstep      7");
  EXPECT_EQ(tick(4), "\r\033[Kstep      8  4 s");
  after_step(8, 2);
  seconds_ += 1;
  report.testing(1, 4);
  EXPECT_EQ(printed(), "\r\033[Kstep      8  testing 25 %");
  EXPECT_EQ(tick(2), "\r\033[Kstep      8  testing 25 %  2 s");
  report.testing(4, 4);
  printed();
  EXPECT_EQ(tick(2), "\r\033[Kstep      9  2 s");
  after_step(1000, 0.1);
  printed();
  EXPECT_EQ(tick(5), "\r\033[Kafter the last step  5 s");
  report.on_end({{{"accuracy", 0.5, true}}, 1000, 1000});
  printed();
  EXPECT_EQ(tick(60), "") << "the run has ended";
}

TEST_F(ProgressLine, OfARunThatGoesOnBeginsWhereItDoes) {
  train::Config config = config_in(folder_);
  for (auto [step, next] : {std::pair(40, "step     41"), {100, "after the last step"}}) {
    RunReport& report = begin(60);
    report.resume(config, step, 100, false);
    printed();
    report.testing(1, 4);
    seconds_ += 3;
    report.tick();
    EXPECT_EQ(printed(), train::format("\r\033[Kstep %6d  testing 25 %%  3 s", step));
    report.testing(4, 4);
    printed();
    seconds_ += 2;
    report.tick();
    EXPECT_EQ(printed(), concat("\r\033[K", next, "  2 s"));
  }
}

TEST_F(ProgressLine, OffATerminalNothingTicks) {
  begin(0);
  seconds_ += 60;
  report_->tick();
  EXPECT_EQ(printed(), "");
}

// Of what is known without the loss, which only the device knows.
TEST_F(ProgressLine, TellsOfStepsAboutEverySecondOfATerminal) {
  begin(60);
  EXPECT_EQ(after_step(1, 0.75), "");
  EXPECT_EQ(after_step(2, 0.75), "\r\033[Kstep      2") << "nothing to compare it with";
  EXPECT_EQ(after_step(3, 0.75), "");
  EXPECT_EQ(after_step(6, 1.25), "\r\033[Kstep      6  20 samples/s  eta 8m17s");
  report_->on_metrics(metrics_);
  printed();
  EXPECT_EQ(after_step(101, 0.75), "") << "there is a line of an interval";
  EXPECT_EQ(after_step(104, 1.25), "\r\033[Kstep    104  20 samples/s  eta 7m28s");
  columns_ = 30;
  EXPECT_EQ(after_step(108, 2), "\r\033[Kstep    108  20 samples/s");
}

TEST_F(ProgressLine, CountsTokensOfALanguageTask) {
  begin(60);
  tokens_per_sample_ = 64;
  after_step(2, 1.5);
  EXPECT_EQ(after_step(5, 2), "\r\033[Kstep      5  960 tokens/s  eta 11m03s");
  metrics_.tokens_per_s = 64000;
  metrics_.flops_per_s = 2.5e9;
  begin(0).on_metrics(metrics_);
  EXPECT_THAT(printed(), HasSubstr("test_accuracy 0.8750     64000 tokens/s  2.5 GFLOP/s  lr 0"));
}

TEST_F(ProgressLine, TellsOfALongEvaluation) {
  begin(60);
  after_step(7, 1.5);
  report_->testing(1, 8);
  EXPECT_EQ(printed(), "");
  seconds_ += 1.5;
  report_->testing(2, 8);
  EXPECT_EQ(printed(), "\r\033[Kstep      7  testing 25 %");
  EXPECT_EQ(after_step(8, 1.5), "\r\033[Kstep      8") << "not at the rate of an evaluation";
}

TEST_F(ProgressLine, IsEndedBeforeSomebodyElseWrites) {
  begin(60).on_metrics(metrics_);
  printed();
  report_.reset();
  EXPECT_EQ(printed(), "\n");
}

TEST_F(ProgressLine, HasNoSignBeforeWhatIsNoNumber) {
  metrics_.loss = metrics_.samples_per_s = metrics_.scores[0].value = -std::nan("");
  begin(0).on_metrics(metrics_);
  EXPECT_THAT(printed(), HasSubstr("loss NaN  test_accuracy    NaN       NaN samples/s"));
}

TEST(RunReport, TheLedgerIsWrittenByCategoryAndUnit) {
  Context context;
  TemporaryFolder folder;
  std::ostringstream out;
  RunReport report(config_in(folder), out);
  uint16_t unit = context.ledger().unit_id("layers.0");
  {
    TagScope tag(Tag{Category::parameter_shard, unit});
    Tensor shard = empty({16});
    report.write_ledger(context.ledger());
  }
  json ledger = json::parse(read_file(report.folder() + "/ledger.json"));
  EXPECT_EQ(ledger["categories"]["parameter_shard"]["units"]["layers.0"]["peak"], 64);
  EXPECT_EQ(ledger["peak"], 64);
}

TEST(RunReport, TheLastLineIsTheAgreedOne) {
  TemporaryFolder folder;
  std::ostringstream out;
  RunReport report(config_in(folder), out);
  report.on_end({.scores = {{"accuracy", 0.89125}, {"loss", 0.5}}, .steps = 2820, .seconds = 61.26});
  EXPECT_EQ(out.str(), "done: test_accuracy=0.8912 steps=2820 seconds=61.3 run=" + report.folder() + "\n");
}

// Knows how much of its text has been handed on.
struct Buffered : std::stringbuf {
  int sync() override {
    handed_on = str();
    return 0;
  }
  std::string handed_on;
};

TEST(RunReport, ATableIsWholeBeforeAnErrorThatFollows) {
  TemporaryFolder folder;
  Buffered text;
  std::ostream out(&text);
  RunReport report(config_in(folder), out);
  report.table({{"peak of everything", "10.6 KiB"}});
  EXPECT_THAT(text.handed_on, EndsWith("peak of everything       10.6 KiB\n"));
}

}  // namespace
}  // namespace shardgrad
