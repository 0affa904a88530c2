// Moving blocks: the panels are the ranks' calls in the order in which they made them, and each block and line is of a
// rank that a record names.

#include <shardgrad/picture/blocks.h>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

#include "tests/picture/marks.h"
#include "tests/picture/samples.h"

namespace shardgrad::picture::testing {
namespace {

using Groups = std::vector<std::vector<int>>;

TEST(Moves, TheOrderIsOfTheCallsAndNotOfTheClocks) {
  std::vector<RankRecords> ranks{{0, {call("all_gather", 1, 2), call("reduce_scatter", 2, 2)}},
                                 {1, {call("all_gather", 1, 2), call("reduce_scatter", 2, 2)}}};
  ranks[1].records[0].begin = 9;  // by its clock it has come late
  ranks[0].records[1].begin = -5;
  Moves all = moves_of(ranks);
  ASSERT_EQ(all.moves.size(), 2u);
  EXPECT_EQ(all.moves[0].op, "all_gather");
  EXPECT_EQ(all.moves[1].op, "reduce_scatter");
  EXPECT_EQ(all.moves[0].groups, (Groups{{0, 1}}));
  EXPECT_EQ(all.moves[0].bytes_sent, 400) << "half of 200 elements of 4 bytes";
}

// hybrid on four ranks: rows {0, 1} and {2, 3} gather beside each other, and then columns add up.
TEST(Moves, GroupsThatMakeTheSameCallMoveSideBySide) {
  std::vector<RankRecords> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back({rank, {call("all_gather", 1, 2, rank < 2 ? 1 : 2), call("all_reduce", 1, 2, 3 + rank % 2)}});
  Moves all = moves_of(ranks);
  ASSERT_EQ(all.moves.size(), 2u);
  EXPECT_EQ(all.moves[0].groups, (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(all.moves[1].groups, (Groups{{0, 2}, {1, 3}}));
}

TEST(Moves, ACallThatNotAllRanksHaveARecordOfIsLeftOutAndCounted) {
  std::vector<RankRecords> ranks{{0, {call("all_gather", 1, 3)}}, {1, {call("all_gather", 1, 3)}}};
  EXPECT_EQ(moves_of(ranks).moves.size(), 0u) << "what a rank sends is of three ranks";
  EXPECT_EQ(moves_of(ranks).left_out, 1u);
  Record broadcast = call("broadcast", 1, 2);
  EXPECT_EQ(moves_of({{0, {broadcast}}, {1, {broadcast}}}).left_out, 1u) << "whose it is has no record";
  Record barrier = record("barrier", "", 0, 1, 1);
  barrier.bytes_sent = 0;
  EXPECT_EQ(moves_of({{0, {barrier}}}).left_out, 0u) << "it moves nothing";
}

// A label is the caller's, and may name its rank.
TEST(Moves, AUnitIsNamedAsTheFirstRankDoes) {
  Record here = call("all_reduce", 1, 2), there = here;
  here.unit = "of rank 0", there.unit = "of rank 1";
  std::vector<Move> moves = moves_of({{0, {here}}, {1, {there}}}).moves;
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].unit, "of rank 0");
}

TEST(Moves, ACollectiveThatIsAnotherOneOnAnotherRankIsRefused) {
  EXPECT_THROW(moves_of({{0, {call("all_gather", 1, 2)}}, {1, {call("reduce_scatter", 1, 2)}}}), Error);
}

struct Counts {
  size_t solid, pale, lines;
  bool operator==(const Counts&) const = default;
};

Counts drawn(const std::string& op, int ranks) {
  std::string text = draw(Blocks{{"a", "", ""}, ranks_that(op, ranks)});
  std::string body = text.substr(text.find("</style>"));
  size_t solid = 0;
  for (int i = 0; i < ranks; ++i) solid += boxes_in(body, kInks[i]).size();
  size_t pale = count_of(body, "fill-opacity=\"0.4\"");
  return {solid - pale - size_t(ranks), pale, count_of(body, "<line")};  // less the legend's
}

TEST(Blocks, AGatherBringsEachPartToAllRanks) {
  EXPECT_EQ(drawn("all_gather", 3), (Counts{3 + 9, 0, 6}))
      << "one of each rank, then all on each; a line from rank to rank";
}

TEST(Blocks, AReductionLeavesEachRankItsPartOfTheSum) {
  EXPECT_EQ(drawn("reduce_scatter", 3), (Counts{3, 9, 6}))
      << "all gradients of each, not summed, then a part of the sum";
  EXPECT_EQ(drawn("all_reduce", 3), (Counts{9, 9, 6}));
}

TEST(Blocks, ALineHasTheColourOfTheBlockThatItBrings) {
  auto goes_down = [](const std::string& op, const std::string& ink) {
    std::string text = draw(Blocks{{"a", "", ""}, ranks_that(op, 2)}), line = concat("<line class=\"s-", ink, "\"");
    EXPECT_EQ(count_of(text, line), 1u);
    return std::stod(values_of(text, line, "y1").at(0)) < std::stod(values_of(text, line, "y2").at(0));
  };
  EXPECT_TRUE(goes_down("all_gather", "blue")) << "part 0 goes from rank 0 to rank 1";
  EXPECT_FALSE(goes_down("all_gather", "orange"));
  EXPECT_FALSE(goes_down("reduce_scatter", "blue")) << "and in a reduction it comes from rank 1";
  EXPECT_TRUE(goes_down("reduce_scatter", "orange"));
}

TEST(Blocks, APanelSaysThePhaseBesideAUnitThatLeavesRoomForIt) {
  auto text_of = [](const std::string& unit) {
    std::vector<RankRecords> ranks = ranks_that("all_gather", 2);
    for (RankRecords& rank : ranks) rank.records[0].unit = unit, rank.records[0].phase = "forward";
    return draw(Blocks{{"a", "", ""}, ranks});
  };
  EXPECT_TRUE(says(text_of("L0"), ">L0, forward<"));
  EXPECT_TRUE(says(text_of("transformer"), ">transformer<"));
}

TEST(Blocks, ItSaysWhatIsSentAndWhatHasNoRoom) {
  EXPECT_TRUE(says(draw(Blocks{{"a", "", ""}, ranks_that("all_gather", 2)}), "A rank sends 400 B in 1 collective."));
  EXPECT_TRUE(says(draw(Blocks{{"a", "", ""}, ranks_that("all_gather", 9, 17)}),
                   "The first 16 are drawn. Ranks from 8 on are not drawn."));
  EXPECT_TRUE(says(draw(Blocks{{"a", "", ""}, {}}), "nothing was gathered or reduced"));
}

}  // namespace
}  // namespace shardgrad::picture::testing
