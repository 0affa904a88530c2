// Pairs of bars, and the matrix of waits.

#include <shardgrad/picture/bars.h>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/waits.h>

#include "tests/picture/marks.h"
#include "tests/picture/samples.h"

namespace shardgrad::picture::testing {
namespace {

TEST(Bars, EachPairSaysWhetherItIsEqual) {
  std::string text = draw(
      Bars{{"a", "", ""}, Unit::bytes, "measured", "formula", {{"x", 1536, 1536}, {"y", 2048, 1536}, {"z", 0, 1}}});
  EXPECT_TRUE(says(text, ">== 1.50 KiB<"));
  EXPECT_TRUE(says(text, ">512 B more<"));
  EXPECT_TRUE(says(text, ">1 B less<"));
  EXPECT_TRUE(says(text, ">2 of 3 differ.<"));
  EXPECT_TRUE(says(text, "x: == 1.50 KiB. y: 512 B more. z: 1 B less.")) << "for who cannot see it";
  EXPECT_TRUE(says(draw(Bars{{"a", "", ""}, Unit::bytes, "a", "b", {{"x", 1, 1}}}), ">All 1 are equal.<"));
  Bars unknown{{"a", "", ""}, Unit::bytes, "a", "b", {{"x", 1, 1}, {"y", std::nan(""), 1}}};
  EXPECT_TRUE(says(draw(unknown), ">1 of 2 differs.<")) << "what is no number is equal to none";
}

TEST(Bars, AreAsLongAsTheirNumbers) {
  std::string text = draw(Bars{{"a", "", ""}, Unit::plain, "measured", "formula", {{"x", 4, 1}}});
  double left = 12 + width_of("x") + 10, right = 548 - width_of("3 more", 15) - 10, length = right - left;
  EXPECT_EQ(boxes_in(text, "blue").at(1), coordinate(left) + "+" + coordinate(length));
  EXPECT_EQ(boxes_in(text, "orange").at(1), coordinate(left) + "+" + coordinate(length / 4));
}

TEST(Bars, OfVeryManyThoseThatDifferAreDrawn) {
  std::string text = all_samples().at("bars_thousand");
  EXPECT_TRUE(says(text, "10 of 1000 differ. The 40 that differ most are drawn."));
  for (int i = 9; i < 1000; i += 100) EXPECT_TRUE(says(text, ">unit " + std::to_string(i) + "<")) << i;
}

TEST(Bars, NegativeOnesAreRefusedByName) {
  EXPECT_THROW(draw(Bars{{"a", "", ""}, Unit::plain, "a", "b", {{"x", -1, 1}}}), Error);
  EXPECT_TRUE(says(all_samples().at("bars_strange"), ">not finite<"));
  EXPECT_TRUE(says(all_samples().at("bars_none"), "there is nothing to compare"));
}

Waits waits_of(std::vector<std::vector<double>> seconds) {
  Waits waits{{}, std::move(seconds), 5, 0};
  for (size_t i = 0; i < waits.seconds.size(); ++i) waits.ranks.push_back(int(i));
  return waits;
}

TEST(WaitsPicture, SaysForWhomRanksWaitedMost) {
  std::string text = draw(WaitsPicture{{"a", "", ""}, waits_of({{0, 0.003}, {0.001, 0}})});
  EXPECT_TRUE(says(text, "In 5 collectives ranks waited 4 ms, 75 % of it for rank 1."));
  EXPECT_TRUE(says(text, ">3.00<") && says(text, ">1.00<"));
  EXPECT_TRUE(says(text, ">waited for rank …, in ms<"));
  EXPECT_EQ(values_of(text, "<rect class=\"f-red\"", "fill-opacity"), (std::vector<std::string>{"0.7", "0.23"}));
}

TEST(WaitsPicture, WithoutWaitsSaysSo) {
  EXPECT_TRUE(says(draw(WaitsPicture{{"a", "", ""}, waits_of({{0, 0}, {0, 0}})}), "no rank waited for another."));
  EXPECT_TRUE(says(draw(WaitsPicture{{"a", "", ""}, {}}), "no collective has a record of all its ranks"));
}

TEST(WaitsPicture, OfManyRanksDrawsThoseThatMatter) {
  std::vector<std::vector<double>> seconds(100, std::vector<double>(100));
  seconds[7][93] = 1;
  std::string text = draw(WaitsPicture{{"a", "", ""}, waits_of(seconds)});
  EXPECT_TRUE(says(text, "The 16 of 100 ranks with the longest waits are drawn."));
  EXPECT_TRUE(says(text, "rank 7 waited 1 s for rank 93"));
}

TEST(WaitsPicture, WhatIsNoSquareIsRefused) {
  EXPECT_THROW(draw(WaitsPicture{{"a", "", ""}, waits_of({{0, 1}, {1}})}), Error);
  EXPECT_THROW(draw(WaitsPicture{{"a", "", ""}, waits_of({{0, -1}, {1, 0}})}), Error);
  EXPECT_THROW(draw(WaitsPicture{{"a", "", ""}, waits_of({{0, std::nan("")}, {1, 0}})}), Error);
}

}  // namespace
}  // namespace shardgrad::picture::testing
