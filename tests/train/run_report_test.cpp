#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
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
                          "samples_per_s", "peak_bytes"})
    EXPECT_TRUE(line.contains(key)) << key;
  EXPECT_EQ(line.size(), 10);
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["test_accuracy"].is_null());
  EXPECT_EQ(line["peak_bytes"], 42);
}

TEST(RunReport, EveryRunHasItsOwnFolder) {
  TemporaryFolder folder;
  std::ostringstream out;
  RunReport first(config_in(folder), out, false), second(config_in(folder), out, false);
  EXPECT_THAT(first.folder(), EndsWith("my runs/first"));
  EXPECT_THAT(second.folder(), EndsWith("my runs/first-2"));
  EXPECT_EQ(json::parse(read_file(second.folder() + "/config.json"))["name"], "first");
}

TEST(RunReport, AFolderThatCannotBeMadeIsRefused) {
  TemporaryFolder folder;
  folder.write("my runs", "a file, not a folder");
  std::ostringstream out;
  EXPECT_THAT(error_of([&] { RunReport(config_in(folder), out, false); }), HasSubstr("set runs to a folder you may"));
}

TEST(RunReport, PlainLinesWhenNotATerminal) {
  TemporaryFolder folder;
  std::ostringstream plain, terminal;
  Metrics metrics{.step = 100,
                  .epoch = 2,
                  .loss = 0.25,
                  .scores = {{"accuracy", 0.875}},
                  .test_count = 10,
                  .samples_per_s = 1000,
                  .peak_bytes = 2048,
                  .eta_seconds = 150};
  RunReport(config_in(folder), plain, false).on_metrics(metrics);
  RunReport(config_in(folder), terminal, true).on_metrics(metrics);
  EXPECT_THAT(plain.str(), EndsWith("step    100  epoch   2  loss 0.25000  test_accuracy 0.8750      1000 samples/s  "
                                    "lr 0  peak 2.0 KiB  eta 2m30s\n"));
  EXPECT_EQ(plain.str().find('\r'), std::string::npos);
  EXPECT_THAT(terminal.str(), HasSubstr("\r\033[Kstep    100"));
  std::istringstream lines(read_file(folder / "my runs/first/metrics.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["test_accuracy"], 0.875);
}

TEST(RunReport, TheLedgerIsWrittenByCategoryAndUnit) {
  Context context;
  TemporaryFolder folder;
  std::ostringstream out;
  RunReport report(config_in(folder), out, false);
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
  RunReport report(config_in(folder), out, false);
  report.on_end({.scores = {{"accuracy", 0.89125}, {"loss", 0.5}}, .steps = 2820, .seconds = 61.26});
  EXPECT_THAT(out.str(),
              EndsWith("\ndone: test_accuracy=0.8912 steps=2820 seconds=61.3 run=" + report.folder() + "\n"));
}

TEST(RunReport, BytesAndSecondsAreReadable) {
  EXPECT_EQ(train::format_bytes(512), "512 B");
  EXPECT_EQ(train::format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(train::format_bytes(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(train::format_seconds(59.4), "59s");
  EXPECT_EQ(train::format_seconds(90), "1m30s");
  EXPECT_EQ(train::format_seconds(7260), "2h01m");
}

}  // namespace
}  // namespace shardgrad
