// What records say of a unit's memory.

#include <shardgrad/picture/unit_states.h>

#include <gtest/gtest.h>

#include "tests/picture/marks.h"

namespace shardgrad::picture {
namespace {

Record of_unit(const char* op, const char* unit, double begin, double end) {
  Record record{.op = op, .unit = unit};
  record.begin = begin, record.end = end;
  return record;
}

constexpr UnitIs sharded = UnitIs::sharded, gathering = UnitIs::gathering, gathered = UnitIs::gathered;
using Spans = std::vector<UnitSpan>;

TEST(UnitStates, OfTheExampleAtTheHeadOfTheFile) {
  std::vector<Record> records{of_unit("all_gather", "a", 1, 3), of_unit("forward", "a", 3, 6),
                              of_unit("reshard", "a", 6, 6)};
  std::vector<UnitStates> units = unit_states(records, 0, 8);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].unit, "a");
  EXPECT_EQ(units[0].spans, (Spans{{sharded, {0, 1}}, {gathering, {1, 3}}, {gathered, {3, 6}}, {sharded, {6, 8}}}));
  EXPECT_EQ(units[0].computing, (std::vector<Interval>{{3, 6}}));
}

TEST(UnitStates, AUnitThatStaysIsGatheredAgainWithoutBeingSharded) {
  std::vector<Record> records{of_unit("all_gather", "a", 1, 2), of_unit("all_gather", "a", 5, 6)};
  EXPECT_EQ(unit_states(records, 0, 8)[0].spans, (Spans{{sharded, {0, 1}}, {gathering, {1, 2}}, {gathered, {2, 8}}}));
}

TEST(UnitStates, ATraceThatBeginsInTheMidstOfAStepBeginsWithWhatWasThere) {
  EXPECT_EQ(unit_states(std::vector{of_unit("reshard", "a", 2, 2)}, 0, 3)[0].spans,
            (Spans{{gathered, {0, 2}}, {sharded, {2, 3}}}));
}

TEST(UnitStates, AGatherThatRunsGoesOn) {
  EXPECT_EQ(unit_states(std::vector{of_unit("all_gather", "a", 2, -1)}, 0, 3)[0].spans,
            (Spans{{sharded, {0, 2}}, {gathering, {2, 3}}}));
}

// Released and gathered again at one moment: it has been sharded for no time.
TEST(UnitStates, WhatTakesNoTimeHasNoSpan) {
  std::vector<Record> records{of_unit("all_gather", "a", 0, 1), of_unit("all_gather", "a", 2, 3),
                              of_unit("reshard", "a", 2, 2), of_unit("all_gather", "b", 1, 1)};
  std::vector<UnitStates> units = unit_states(records, 0, 4);
  EXPECT_EQ(units[0].spans, (Spans{{gathering, {0, 1}}, {gathered, {1, 2}}, {gathering, {2, 3}}, {gathered, {3, 4}}}));
  EXPECT_EQ(units[1].spans, (Spans{{sharded, {0, 1}}, {gathered, {1, 4}}}));
}

TEST(UnitStates, UnitsStandInTheOrderOfTheirRecordsAndGradientsApart) {
  std::vector<Record> records{of_unit("backward", "b", 0, 2), of_unit("reduce_scatter", "b", 2, 5),
                              of_unit("backward", "a", 2, 3), of_unit("wait", "c", 0, 1),
                              of_unit("all_gather", "", 0, 1)};
  std::vector<UnitStates> units = unit_states(records, 0, 5);
  ASSERT_EQ(units.size(), 2u) << "a wait is none of a unit's states, and what is of no unit is left out";
  EXPECT_EQ(units[0].unit, "b");
  EXPECT_EQ(units[1].unit, "a");
  EXPECT_EQ(units[0].reducing, (std::vector<Interval>{{2, 5}}));
  EXPECT_EQ(units[0].spans, (Spans{{sharded, {0, 5}}}));
}

}  // namespace
}  // namespace shardgrad::picture
