// Replay: the order is the records', and the times are those that costs say.

#include <shardgrad/picture/replay.h>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

#include "tests/picture/samples.h"

namespace shardgrad::picture::testing {
namespace {

double one_to_three(const Record& record) {
  return record.op == "forward" ? 3 : record.op == "all_gather" ? 2 : record.op == "reduce_scatter" ? 4 : 1;
}

using Times = std::vector<std::pair<double, double>>;

// Sequences are given in the order of the list.
Times times_of(std::vector<Record> records, const Cost& cost = one_to_three) {
  for (size_t i = 0; i < records.size(); ++i) records[i].sequence = i;
  Times times;
  for (const Record& record : replayed(std::move(records), cost)) times.push_back({record.begin, record.end});
  return times;
}

TEST(Replay, ComputationWaitsForWhatItsRecordsWaitFor) {
  EXPECT_EQ(times_of({record("all_gather", "a", 0, 9, 1), record("wait", "a", 0.1, 9, 1), record("forward", "a", 9, 10),
                      record("reshard", "a", 10, 10)}),
            (Times{{0, 2}, {0, 2}, {2, 5}, {5, 5}}))
      << "the example of replay.h";
}

TEST(Replay, WhatIsSentAheadIsHidden) {
  EXPECT_EQ(
      times_of({record("all_gather", "a", 0, 9, 1), record("all_gather", "b", 9, 18, 2), record("wait", "a", 0.1, 9, 1),
                record("forward", "a", 9, 10), record("wait", "b", 10, 18, 2), record("forward", "b", 18, 19)}),
      (Times{{0, 2}, {2, 4}, {0, 2}, {2, 5}, {5, 5}, {5, 8}}));
}

TEST(Replay, AStreamIsInItsOrderAndStreamsAreBesideEachOther) {
  std::vector<Record> records{record("forward", "a", 0, 1), record("reduce_scatter", "a", 1, 2, 1),
                              record("reduce_scatter", "b", 2, 3, 2), record("all_gather", "c", 1, 2, 1, 2)};
  for (size_t i : {1u, 2u}) records[i].lane = "reductions";
  EXPECT_EQ(times_of(records), (Times{{0, 3}, {3, 7}, {7, 11}, {3, 5}})) << "none begins before it was queued";
}

TEST(Replay, AUnitsCollectivesFollowOneAnotherWhateverTheirStreams) {
  std::vector<Record> records{record("reduce_scatter", "a", 0, 1, 1), record("all_reduce", "a", 1, 2, 1, 2),
                              record("all_gather", "b", 1, 2, 1, 3)};
  records[1].lane = "copies", records[2].lane = "gathers";
  EXPECT_EQ(times_of(records)[1].first, times_of(records)[0].second);
  EXPECT_EQ(times_of(records)[2].first, 0);
}

TEST(Replay, WhatContainsOthersLastsAsLongAsThey) {
  EXPECT_EQ(times_of({record("forward", "", 0, 10), record("forward", "a", 1, 2), record("forward", "b", 3, 4),
                      record("step", "", 10, 11)}),
            (Times{{0, 6}, {0, 3}, {3, 6}, {6, 7}}));
}

TEST(Replay, TheClockChangesNothing) {
  std::vector<Record> slow = step_of_rank(0, 0).records, fast = slow;
  slow.pop_back(), fast.pop_back();  // which has not ended
  for (Record& each : fast) each.begin /= 7, each.end /= 7;
  EXPECT_EQ(times_of(slow), times_of(fast));
}

TEST(Replay, WhatHasNotEndedAndCostsThatAreNoneAreRefused) {
  EXPECT_THROW(times_of({record("all_gather", "a", 1, -1, 1)}), Error);
  EXPECT_THROW(times_of({record("forward", "a", 0, 1)}, [](const Record&) { return -1.0; }), Error);
}

}  // namespace
}  // namespace shardgrad::picture::testing
