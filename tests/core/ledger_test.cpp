#include <shardgrad/core/ledger.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <shardgrad/core/context.h>
#include <shardgrad/core/recorder.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

TEST(Ledger, CountsCurrentAndPeakInTotalPerCategoryAndPerUnit) {
  Ledger ledger;
  uint16_t unit = ledger.unit_id("layers.0");
  Tag shard{Category::parameter_shard, unit}, work{Category::workspace, 0};
  ledger.add(shard, 100);
  ledger.add(work, 50);
  ledger.sub(work, 50);
  ledger.add(shard, 10);
  EXPECT_EQ(ledger.current(), 110);
  EXPECT_EQ(ledger.peak(), 150);
  EXPECT_EQ(ledger.current(Category::parameter_shard), 110);
  EXPECT_EQ(ledger.peak(Category::workspace), 50);
  EXPECT_EQ(ledger.current(shard), 110);
  ledger.sub(shard, 100);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak(), 10);
  EXPECT_EQ(ledger.peak(shard), 10);
}

TEST(Ledger, TensorsAreEnteredUnderTheTagOfTheirScope) {
  Context context;
  {
    TagScope scope({Category::data, 0});
    Tensor x = empty({10});
    EXPECT_EQ(context.ledger().current(Category::data), 40);
  }
  EXPECT_EQ(context.ledger().current(), 0);
  EXPECT_EQ(context.ledger().peak(Category::data), 40);
}

TEST(Ledger, AnObserverSeesEveryChange) {
  Context context;
  std::vector<int64_t> changes;
  context.ledger().on_change([&](Tag, int64_t bytes) { changes.push_back(bytes); });
  { Tensor x = empty({4}); }
  context.ledger().on_change(nullptr);
  EXPECT_EQ(changes, (std::vector<int64_t>{16, -16}));
}

TEST(Recorder, KeepsTheNewestRecordsAndSumsAll) {
  Recorder recorder(10);
  for (int i = 0; i < 100; ++i) recorder.instant({.op = "all_gather", .bytes_sent = 2});
  EXPECT_EQ(recorder.total_bytes_sent(), 200);
  std::vector<Record> kept = recorder.records();
  EXPECT_LE(kept.size(), 20u);
  EXPECT_EQ(kept.back().sequence, 99u);
  EXPECT_GE(kept.back().end, kept.back().begin);
}

TEST(Recorder, ChromeTraceIsJsonWithOneEventPerRecord) {
  Recorder recorder;
  recorder.instant({.op = "all_gather", .unit = "layers.0", .phase = "forward", .lane = "comm"});
  auto trace = nlohmann::json::parse(recorder.chrome_trace(3));
  EXPECT_EQ(trace["traceEvents"][0]["name"], "all_gather layers.0");
  EXPECT_EQ(trace["traceEvents"][0]["pid"], 3);
}

}  // namespace
}  // namespace shardgrad
