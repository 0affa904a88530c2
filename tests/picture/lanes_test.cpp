// Lanes and unit states: bars stand where their times are, and the words say what the bars do.

#include <shardgrad/picture/lanes.h>

#include <limits>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/strip.h>

#include "tests/picture/marks.h"
#include "tests/picture/samples.h"

namespace shardgrad::picture::testing {
namespace {

const double kLeft = 12 + width_of("compute") + 8, kRight = 548;

std::string bar(double begin, double end, double seconds, double left = kLeft) {
  double scale = (kRight - left) / seconds;
  return coordinate(left + begin * scale) + "+" + coordinate(left + end * scale - (left + begin * scale));
}

// The example of overlap.h: it computes in [0,4) and [6,10), and the gather lasts from 1 to 6.
TEST(Lanes, BarsAndTheExposedTimeStandWhereTheirTimesAre) {
  std::vector<Record> records{record("forward", "a", 0, 4), record("wait", "a", 4, 6), record("forward", "a", 6, 10),
                              record("all_gather", "a", 1, 6, 1)};
  std::string text = draw(Lanes{{"a", "", ""}, {{3, records, 100}}});
  std::vector<std::string> green = boxes_in(text, "green"), orange = boxes_in(text, "orange"),
                           red = boxes_in(text, "red");
  ASSERT_EQ(green.size(), 3u) << "one is the legend's";
  EXPECT_EQ(green[1], bar(0, 4, 10));
  EXPECT_EQ(green[2], bar(6, 10, 10));
  EXPECT_EQ(orange.at(1), bar(1, 6, 10));
  EXPECT_EQ(red, (std::vector{bar(4, 6, 10)}));
  EXPECT_TRUE(says(text, ">rank 3<"));
  EXPECT_TRUE(says(text, "60 % hidden: ranks computed during 3 s of 5 s of communication."));
}

TEST(Lanes, RanksStandOnOneClock) {
  auto gather = [](double begin) { return std::vector{record("all_gather", "a", begin, begin + 2, 1)}; };
  std::string text = draw(Lanes{{"a", "", ""}, {{0, gather(1), 100}, {1, gather(5), 98}}});
  std::vector<std::string> orange = boxes_in(text, "orange");
  EXPECT_EQ(orange.at(1), bar(0, 2, 4));
  EXPECT_EQ(orange.at(2), bar(2, 4, 4));
}

TEST(Lanes, StreamsThatRunAtTheSameTimeHaveALaneEach) {
  std::vector<Record> records{record("all_gather", "a", 0, 4, 1), record("reduce_scatter", "a", 3, 8, 2)};
  auto y_of = [&](const char* ink) {
    return values_of(draw(Lanes{{"a", "", ""}, {{0, records}}}), concat("<rect class=\"f-", ink, "\""), "y").back();
  };
  EXPECT_EQ(y_of("orange"), y_of("red")) << "one stream";
  records[1].lane = "reductions";
  EXPECT_NE(y_of("orange"), y_of("red"));
  records[1].begin = 4;
  EXPECT_EQ(y_of("orange"), y_of("red")) << "two, one after the other";
}

TEST(Lanes, ABarThatHasRoomSaysItsUnitUnlessAnotherStandsOnIt) {
  std::vector<Record> records{record("forward", "outer", 0, 100), record("forward", "first", 0, 50),
                              record("forward", "second", 50, 51)};
  std::string text = draw(Lanes{{"a", "", ""}, {{0, records}}});
  EXPECT_TRUE(says(text, ">first</text>"));
  EXPECT_FALSE(says(text, ">second</text>")) << "too narrow";
  EXPECT_FALSE(says(text, ">outer</text>")) << "covered by the two";
}

TEST(Lanes, WhatRunsLastsUntilTheEnd) {
  std::vector<Record> records{record("forward", "a", 0, 8), record("all_gather", "a", 2, -1, 1)};
  EXPECT_EQ(boxes_in(draw(Lanes{{"a", "", ""}, {{0, records}}}), "orange").at(1), bar(2, 8, 8));
}

TEST(Lanes, WithoutATraceItIsSaidInsteadOfHiddenZeroPercent) {
  std::string text = draw(Lanes{{"a", "", ""}, {{0, {record("all_gather", "a", 0, 1, 1)}}}});
  EXPECT_TRUE(says(text, "No computation was recorded"));
  EXPECT_TRUE(says(draw(Lanes{{"a", "", ""}, {{0, {record("forward", "a", 0, 1)}}}}), "Nothing was sent."));
  EXPECT_TRUE(says(draw(Lanes{{"a", "", ""}, {}}), "there are no records"));
}

TEST(Lanes, BarsThatCannotBeToldApartBecomeOne) {
  std::string text = all_samples().at("lanes_long");
  EXPECT_LT(count_of(text, "<rect"), 4000u);
  EXPECT_TRUE(says(text, "forward of a, 500 ms and ")) << "the first of many says how many there are";
}

TEST(Lanes, RanksThatHaveNoRoomAreCounted) {
  EXPECT_TRUE(says(all_samples().at("lanes_many"), "84 more ranks are not drawn."));
}

TEST(Lanes, TimesThatAreNoNumbersAreRefusedByName) {
  Record broken = record("all_gather", "a", std::nan(""), 1, 1);
  EXPECT_THROW(draw(Lanes{{"a", "", ""}, {{0, {broken}}}}), Error);
  EXPECT_THROW(draw(Strip{{"a", "", ""}, {broken}}), Error);
  EXPECT_THROW(draw(Lanes{{"a", "", ""}, {{0, {}, std::numeric_limits<double>::infinity()}}}), Error);
}

TEST(Strip, AUnitsStatesStandWhereTheirTimesAre) {
  std::vector<Record> records{record("all_gather", "a", 1, 3, 1), record("forward", "a", 3, 6),
                              record("reshard", "a", 6, 6), record("reduce_scatter", "a", 7, 9, 2)};
  std::string text = draw(Strip{{"a", "", ""}, records});
  double left = 12 + width_of("a") + 10;  // the first moment, 1, is second 0
  EXPECT_EQ(boxes_in(text, "orange").at(1), bar(0, 2, 8, left));
  EXPECT_EQ(boxes_in(text, "sky").at(1), bar(2, 5, 8, left));
  EXPECT_EQ(boxes_in(text, "green").at(1), bar(2, 5, 8, left));
  EXPECT_EQ(boxes_in(text, "grid").at(1), bar(5, 8, 8, left));
  EXPECT_EQ(boxes_in(text, "red").at(1), bar(6, 8, 8, left));
  EXPECT_TRUE(says(text, "At most 1 of 1 unit in memory at a time."));
}

TEST(Strip, UnitsInMemoryAreCountedAtEachMoment) {
  EXPECT_TRUE(
      says(all_samples().at("strip_thousand"), "At most 3 of 1000 units in memory at a time. The first 240 are"))
      << "a unit that is released when another comes is not beside it";
  EXPECT_TRUE(says(all_samples().at("strip_none"), "no record is of a unit"));
}

TEST(Strip, SaysThatUnitsAreLeftOutOnlyWhereSomeAre) {
  for (int count : {240, 241}) {
    std::vector<Record> records;
    for (int i = 0; i < count; ++i) records.push_back(record("forward", concat("u", i), i, i + 1));
    EXPECT_EQ(says(draw(Strip{{"a", "", ""}, records}), "The first 240 are"), count > 240) << count;
  }
}

}  // namespace
}  // namespace shardgrad::picture::testing
