// Who waited for whom, by when ranks came to a collective.

#include <shardgrad/picture/waits.h>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

namespace shardgrad::picture {
namespace {

Record call(uint64_t group, uint64_t number, double begin, double end) {
  Record record{.op = "all_gather"};
  record.group = group, record.number = number, record.begin = begin, record.end = end;
  return record;
}

using Rows = std::vector<std::vector<double>>;

TEST(Waits, OfTheExampleAtTheHeadOfTheFile) {
  Waits waits = who_waited({{0, {call(9, 1, 1, 5)}}, {1, {call(9, 1, 4, 5)}}, {2, {call(9, 1, 2, 5)}}});
  EXPECT_EQ(waits.seconds, (Rows{{0, 3, 0}, {0, 0, 0}, {0, 2, 0}}));
  EXPECT_EQ(waits.calls, 1u);
  EXPECT_EQ(waits.left_out, 0u);
}

TEST(Waits, ClocksOfRanksAreComparedByTheirZeros) {
  Waits waits = who_waited({{0, {call(9, 1, 1, 5)}, 100}, {1, {call(9, 1, 4, 8)}, 98}});
  EXPECT_EQ(waits.seconds, (Rows{{0, 1}, {0, 0}}));
}

TEST(Waits, CallsAreMatchedByGroupAndNumberNotByPlace) {
  Waits waits = who_waited(
      {{0, {call(9, 1, 0, 9), call(7, 1, 1, 9)}}, {1, {call(7, 1, 3, 9), call(9, 1, 4, 9)}}, {2, {call(9, 1, 2, 9)}}});
  EXPECT_EQ(waits.seconds, (Rows{{0, 6, 0}, {0, 0, 0}, {0, 2, 0}})) << "group 7 has no rank 2";
  EXPECT_EQ(waits.calls, 2u);
}

TEST(Waits, ACallThatARankHasNoRecordOfIsLeftOut) {
  Waits waits = who_waited({{0, {call(9, 1, 0, 9), call(9, 2, 10, 19)}}, {1, {call(9, 2, 11, 19)}}});
  EXPECT_EQ(waits.seconds, (Rows{{0, 1}, {0, 0}}));
  EXPECT_EQ(waits.calls, 1u);
  EXPECT_EQ(waits.left_out, 1u);
}

TEST(Waits, NobodyWaitsLongerThanHisCall) {
  Waits waits = who_waited({{0, {call(9, 1, 1, 2)}}, {1, {call(9, 1, 4, 5)}}, {2, {call(9, 1, 3, -1)}}});
  EXPECT_EQ(waits.seconds, (Rows{{0, 1, 0}, {0, 0, 0}, {0, 1, 0}}))
      << "a broadcast's root does not wait; one that runs does";
}

TEST(Waits, SpansThatAreNoCollectivesSayNothing) {
  Record wait = call(9, 1, 0, 5), copy{.op = "upload"};
  wait.op = "wait";
  Waits waits = who_waited({{0, {wait, copy}}, {1, {call(9, 1, 4, 5)}}});
  EXPECT_EQ(waits.calls, 0u);
  EXPECT_EQ(waits.seconds, (Rows{{0, 0}, {0, 0}}));
}

TEST(Waits, ARankIsGivenOnce) {
  EXPECT_THROW(who_waited({{3, {}}, {3, {}}}), Error);
  EXPECT_TRUE(who_waited({}).ranks.empty());
}

}  // namespace
}  // namespace shardgrad::picture
