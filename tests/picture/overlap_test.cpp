// How much communication is hidden, exactly: numbers here are seconds that a double holds without rounding.

#include <shardgrad/picture/overlap.h>

#include <gtest/gtest.h>

#include "tests/picture/marks.h"

namespace shardgrad::picture {
namespace {

using Intervals = std::vector<Interval>;

Record span(const char* op, double begin, double end) {
  Record record{.op = op};
  record.begin = begin, record.end = end;
  return record;
}

TEST(Overlap, OfTheExampleAtTheHeadOfTheFile) {
  std::vector<Record> records{span("forward", 0, 4), span("wait", 4, 6), span("forward", 6, 10),
                              span("all_gather", 1, 6)};
  Overlap found = overlap_of(records, 10);
  EXPECT_EQ(found.computing, (Intervals{{0, 4}, {6, 10}}));
  EXPECT_EQ(found.exposed, (Intervals{{4, 6}}));
  EXPECT_EQ(found.communication, 5);
  EXPECT_EQ(found.hidden, 3);
  EXPECT_EQ(found.share(), 0.6);
}

TEST(Overlap, TimesAreHalfOpen) {
  Overlap found = overlap_of(std::vector{span("all_gather", 0, 2), span("forward", 2, 3)}, 3);
  EXPECT_EQ(found.hidden, 0);
  EXPECT_EQ(found.exposed, (Intervals{{0, 2}}));
}

TEST(Overlap, ACallInACallComputesOnceAndItsWaitsAreNoComputation) {
  std::vector<Record> records{span("forward", 0, 16), span("wait", 2, 4), span("forward", 4, 8),
                              span("all_gather", 1, 4)};
  Overlap found = overlap_of(records, 16);
  EXPECT_EQ(found.computing, (Intervals{{0, 2}, {4, 16}}));
  EXPECT_EQ(found.hidden, 1);
  EXPECT_EQ(found.exposed, (Intervals{{2, 4}}));
}

TEST(Overlap, WhatTwoStreamsSendAtOnceCountsOnce) {
  Overlap found =
      overlap_of(std::vector{span("all_gather", 0, 4), span("reduce_scatter", 2, 8), span("backward", 1, 6)}, 8);
  EXPECT_EQ(found.communication, 8);
  EXPECT_EQ(found.hidden, 5);
  EXPECT_EQ(found.exposed, (Intervals{{0, 1}, {6, 8}}));
}

TEST(Overlap, WhatHasNotEndedLastsUntilNow) {
  Overlap found = overlap_of(std::vector{span("all_gather", 2, -1), span("forward", 0, 4)}, 6);
  EXPECT_EQ(found.communication, 4);
  EXPECT_EQ(found.hidden, 2);
  found = overlap_of(std::vector{span("all_gather", 2, 5), span("forward", 4, -1)}, 6);
  EXPECT_EQ(found.computing, (Intervals{{4, 6}}));
  EXPECT_EQ(found.hidden, 1);
}

TEST(Overlap, MomentsAndNothingHaveNoShare) {
  EXPECT_EQ(overlap_of({}, 0).share(), std::nullopt);
  Overlap found = overlap_of(std::vector{span("all_gather", 1, 1), span("reshard", 2, 2), span("step", 0, 3)}, 3);
  EXPECT_EQ(found.communication, 0);
  EXPECT_EQ(found.share(), std::nullopt);
  EXPECT_EQ(found.computing, (Intervals{{0, 3}})) << "an optimizer's step computes";
}

TEST(Overlap, CopiesAreCommunicationToo) {
  Overlap found = overlap_of(std::vector{span("upload", 0, 4), span("forward", 2, 6)}, 6);
  EXPECT_EQ(found.communication, 4);
  EXPECT_EQ(found.hidden, 2);
}

TEST(Overlap, IntervalsAreJoinedWhereTheyTouch) {
  EXPECT_EQ(joined({{4, 5}, {1, 2}, {2, 3}, {1, 1.5}, {7, 7}, {9, 8}}), (Intervals{{1, 3}, {4, 5}}));
  EXPECT_EQ(joined({}), Intervals{});
}

TEST(Overlap, WhatIsTakenAwayMayCutEndsMiddlesAndAll) {
  Intervals others{{0, 1}, {2, 3}, {5, 9}};
  EXPECT_EQ(without(Intervals{{0, 10}}, others), (Intervals{{1, 2}, {3, 5}, {9, 10}}));
  EXPECT_EQ(without(Intervals{{2, 3}, {6, 7}}, others), Intervals{});
  EXPECT_EQ(without(Intervals{{1, 2}, {3, 4}}, others), (Intervals{{1, 2}, {3, 4}}));
  EXPECT_EQ(without(Intervals{{4, 6}, {8, 10}}, others), (Intervals{{4, 5}, {9, 10}}));
}

// Each of 32 moments alone, for every way that 2000 draws give.
TEST(Overlap, IsWhatEveryMomentAloneSays) {
  uint64_t state = 1;
  auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Record> records;
    bool computes[32] = {}, waits[32] = {}, sends[32] = {};
    for (uint64_t i = draw(7); i > 0; --i) {
      const char* ops[] = {"forward", "backward", "wait", "all_gather", "reduce_scatter", "download"};
      uint64_t op = draw(6), begin = draw(32), end = begin + draw(33 - begin);
      records.push_back(span(ops[op], double(begin), double(end)));
      for (uint64_t t = begin; t < end; ++t) (op < 2 ? computes : op == 2 ? waits : sends)[t] = true;
    }
    double communication = 0, hidden = 0;
    for (int t = 0; t < 32; ++t) communication += sends[t], hidden += sends[t] && computes[t] && !waits[t];
    Overlap found = overlap_of(records, 32);
    ASSERT_EQ(found.communication, communication) << round;
    ASSERT_EQ(found.hidden, hidden) << round;
    ASSERT_EQ(length_of(found.exposed), communication - hidden) << round;
  }
}

}  // namespace
}  // namespace shardgrad::picture
