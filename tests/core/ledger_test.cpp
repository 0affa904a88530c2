#include <shardgrad/core/ledger.h>

#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/ledger_history.h>
#include <shardgrad/core/recorder.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace Category {
inline constexpr Kind parameter_shard = named<"parameter_shard">, workspace = named<"workspace">;
inline constexpr Kind data = named<"data">;
}  // namespace Category
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

TEST(Ledger, ACategoryIsItsNameWhereverItIsDeclared) {
  constexpr auto here = Category::named<"data">, other = Category::named<"dat">;
  EXPECT_TRUE(here == Category::data && other != Category::data);
  Ledger ledger;
  EXPECT_EQ(ledger.categories(), std::vector<Category::Kind>{});
  for (Category::Kind each : {Category::workspace, here, Category::data, other}) ledger.add({each}, 8);
  EXPECT_EQ(ledger.current(Category::data), 16);
  EXPECT_EQ(ledger.current(Category::parameter_shard), 0);
  EXPECT_EQ(ledger.categories(), (std::vector{other, Category::data, Category::workspace})) << "in order of names";
  EXPECT_EQ(ledger.largest_owners(3), "data 16 bytes, dat 8 bytes, workspace 8 bytes");
}

TEST(Ledger, WhatUnitsHoldIsNotCountedOnceMoreForTheRestOfItsCategory) {
  Ledger ledger;
  ledger.add({Category::data, ledger.unit_id("layers.0")}, 24);
  ledger.add({Category::data}, 8);
  EXPECT_EQ(ledger.largest_owners(3), "data of 'layers.0' 24 bytes, data 8 bytes");
}

template <size_t i> constexpr char kText[] = {'c', char('0' + i / 8), char('0' + i % 8), 0};

TEST(Ledger, ManyCategoriesAreKeptApartAndOneTooManyIsRefusedByName) {
  Ledger ledger;
  auto add = [&]<size_t... i>(std::index_sequence<i...>) { (ledger.add({Category::named<kText<i>>}, i + 1), ...); };
  add(std::make_index_sequence<64>());
  add(std::make_index_sequence<64>());
  EXPECT_EQ(ledger.categories().size(), 64u);
  EXPECT_EQ(ledger.current(Category::named<"c00">), 2);
  EXPECT_EQ(ledger.current(Category::named<"c77">), 128);
  EXPECT_THROW(ledger.add({Category::named<"one_more">}, 1), Error);
}

TEST(Ledger, AnObserverSeesEveryChange) {
  Context context;
  std::vector<int64_t> changes;
  context.ledger().on_change([&](Tag, int64_t bytes) { changes.push_back(bytes); });
  { Tensor x = empty({4}); }
  context.ledger().on_change(nullptr);
  EXPECT_EQ(changes, (std::vector<int64_t>{16, -16}));
}

TEST(Ledger, ASecondObserverIsRefusedInsteadOfTakingTheFirstOnesPlace) {
  Ledger ledger;
  ledger.on_change([](Tag, int64_t) {});
  EXPECT_THROW(ledger.on_change([](Tag, int64_t) {}), Error);
  ledger.on_change(nullptr);
  EXPECT_NO_THROW(ledger.on_change([](Tag, int64_t) {}));
}

TEST(LedgerHistory, HasWhatWasThereAndEveryChangeSinceWithItsMoment) {
  Ledger ledger;
  Recorder recorder;
  Tag shard{Category::parameter_shard, ledger.unit_id("layers.0")};
  ledger.add(shard, 100);
  ledger.add({Category::data}, 7);
  ledger.sub({Category::data}, 7);
  double began = recorder.now();
  {
    LedgerHistory history(ledger, recorder);
    EXPECT_EQ(history.before(), (std::map<Category::Kind, int64_t>{{Category::parameter_shard, 100}}));
    ledger.add({Category::workspace}, 50);
    ledger.sub(shard, 100);
    std::vector<LedgerChange> changes = history.changes();
    ASSERT_EQ(changes.size(), 2u);
    EXPECT_EQ(changes[0].tag, Tag{Category::workspace});
    EXPECT_EQ(changes[0].bytes, 50);
    EXPECT_EQ(changes[1].tag, shard);
    EXPECT_EQ(changes[1].bytes, -100);
    EXPECT_GE(changes[0].at, began);
    EXPECT_GE(changes[1].at, changes[0].at);
    EXPECT_LE(changes[1].at, recorder.now());
  }
  ledger.add({Category::data}, 1);  // nobody listens any more
}

TEST(LedgerHistory, ChangesOfSeveralThreadsAreAllKept) {
  Ledger ledger;
  Recorder recorder;
  LedgerHistory history(ledger, recorder);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) ledger.add({Category::data}, 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(history.changes().size(), 4000u);
}

TEST(Recorder, ARecordIsFoundByItsSequenceUntilItHasLeftTheList) {
  Recorder recorder(10, 10);
  uint64_t first = recorder.begin({.op = "all_gather", .unit = "layers.0"});
  ASSERT_TRUE(recorder.record(first));
  EXPECT_EQ(recorder.record(first)->unit, "layers.0");
  EXPECT_FALSE(recorder.record(first + 1));
  for (int i = 0; i < 30; ++i) recorder.instant({.op = "reshard"});
  EXPECT_FALSE(recorder.record(first));
}

TEST(Recorder, SecondsOfTwoRecordersAreComparedByTheirZeros) {
  Recorder first, second;
  EXPECT_GE(second.zero(), first.zero());
  double a = first.zero() + first.now(), b = second.zero() + second.now(), c = first.zero() + first.now();
  EXPECT_LE(a, b);
  EXPECT_LE(b, c);
}

TEST(Recorder, KeepsTheNewestRecordsAndSumsAll) {
  Recorder recorder(10, 10);
  for (int i = 0; i < 100; ++i) recorder.instant({.op = "all_gather", .bytes_sent = 2});
  EXPECT_EQ(recorder.total_bytes_sent(), 200);
  std::vector<Record> kept = recorder.records();
  EXPECT_LE(kept.size(), 20u);
  EXPECT_EQ(kept.back().sequence, 99u);
  EXPECT_GE(kept.back().end, kept.back().begin);
}

// Of two optimizers, one after the other.
TEST(Recorder, ForgetsNothingOfTheStepThatRuns) {
  Recorder recorder(10, 2000);
  auto pass = [&] {
    uint64_t first = recorder.begin({.op = "all_gather", .phase = "forward"});
    for (int i = 0; i < 300; ++i) recorder.instant({.op = "reduce_scatter", .phase = "backward"});
    return first;
  };
  for (uint64_t before = pass(), first = 0; first < 2000; before = first) {
    recorder.end_step();
    recorder.instant({.op = "broadcast", .phase = "step"});
    recorder.end_step();
    EXPECT_TRUE(recorder.record(before)) << "the next step has not begun";
    first = pass();
    EXPECT_TRUE(recorder.record(first));
    EXPECT_FALSE(recorder.record(before));
  }
}

TEST(Recorder, KeepsTheNewestOfAStepThatDoesNotEnd) {
  Recorder recorder(10, 100);
  for (size_t least : {25u, 100u}) {  // as in generation, then as in training
    for (int i = 0; i < 1000; ++i) recorder.instant({.op = "all_gather"});
    std::vector<Record> kept = recorder.records();
    EXPECT_GE(kept.size(), least);
    EXPECT_LE(kept.size(), 2 * least);
    EXPECT_EQ(kept.back().sequence, least == 25 ? 999u : 1999u);
    recorder.end_step();
  }
}

}  // namespace
}  // namespace shardgrad
