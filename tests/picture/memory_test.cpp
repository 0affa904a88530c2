// Bytes over time: what a history says, how it is stacked, and the words about the plan's peak.

#include <shardgrad/picture/memory.h>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

#include "tests/picture/marks.h"

namespace shardgrad::picture::testing {
namespace {

constexpr Category::Kind kShard = Category::named<"parameter_shard">, kGathered = Category::named<"gathered_parameter">;
constexpr int64_t kMiB = 1 << 20;

std::vector<LedgerChange> gathered_and_released() {
  return {{0.002, {kGathered}, 4 * kMiB}, {0.006, {kGathered}, -4 * kMiB}};
}

TEST(Memory, AHistoryIsWhatEachOwnerHadFromEachMomentOn) {
  BytesOverTime bytes = bytes_over_time({{kShard, kMiB}}, gathered_and_released());
  EXPECT_EQ(bytes.moments, (std::vector{0.002, 0.002, 0.006}));
  ASSERT_EQ(bytes.owners.size(), 2u);
  EXPECT_EQ(bytes.owners[0].name, "gathered_parameter");
  EXPECT_EQ(bytes.owners[0].bytes, (std::vector<int64_t>{0, 4 * kMiB, 0}));
  EXPECT_EQ(bytes.owners[1].bytes, (std::vector<int64_t>{kMiB, kMiB, kMiB}));
  EXPECT_EQ(bytes_over_time({{kShard, kMiB}}, gathered_and_released(), true).moments, (std::vector<double>{0, 1, 2}));
}

TEST(Memory, ChangesOfSeveralThreadsStandInTheOrderOfTheirMoments) {
  std::vector<LedgerChange> changes = gathered_and_released();
  std::swap(changes[0], changes[1]);
  EXPECT_EQ(bytes_over_time({}, changes).moments, (std::vector{0.002, 0.002, 0.006}));
  EXPECT_TRUE(bytes_over_time({}, {}).moments.empty());
}

// 5 MiB high: ticks 0 to 5, 52 coordinates each. In order of changes: 0, 1, 2, and room for the last.
TEST(Memory, TheStackIsMadeOfStairs) {
  Memory memory{{"a", "Memory", ""}, bytes_over_time({{kShard, kMiB}}, gathered_and_released(), true), true};
  std::string text = draw(memory);
  double left = 12 + width_of("5") + 8, third = (548 - left) / 3, a = left + third, b = left + 2 * third;
  std::vector<double> tops;
  double top = 12 + 20 + 20 + 20 + 8 + 26, bottom = top + 260, low = bottom - 52;
  auto stairs = [&](std::vector<Point> points) { return path_of(points) + "Z"; };
  std::vector<std::string> paths = paths_in(text);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0], stairs({{left, low}, {548, low}, {548, bottom}, {left, bottom}})) << "level";
  EXPECT_EQ(paths[1],
            stairs({{left, low}, {a, low}, {a, top}, {b, top}, {b, low}, {548, low}, {548, low}, {left, low}}));
}

TEST(Memory, ThePeakIsComparedWithThePlanToTheByte) {
  Memory memory{{"a", "Memory", ""}, bytes_over_time({{kShard, kMiB}}, gathered_and_released())};
  EXPECT_TRUE(says(draw(memory), ">Peak 5.00 MiB.<"));
  memory.predicted = 5 * kMiB;
  EXPECT_TRUE(says(draw(memory), ">Peak 5.00 MiB == predicted, to the byte.<"));
  memory.predicted = 5 * kMiB - 1;
  EXPECT_TRUE(says(draw(memory), ">Peak 5.00 MiB, 1 B above the predicted 5.00 MiB.<"));
  memory.predicted = 6 * kMiB;
  std::string text = draw(memory);
  EXPECT_TRUE(says(text, ">Peak 5.00 MiB, 1.00 MiB below the predicted 6.00 MiB.<"));
  EXPECT_TRUE(says(text, ">predicted peak<"));
}

TEST(Memory, OfManyChangesThePeakStays) {
  BytesOverTime bytes{{}, {{"a", {}}}};
  for (int i = 0; i < 10000; ++i) {
    bytes.moments.push_back(i * 1e-4);
    bytes.owners[0].bytes.push_back(i == 4321 ? 5 * kMiB : kMiB);
  }
  std::string text = draw(Memory{{"a", "Memory", ""}, bytes});
  double top = 12 + 20 + 20 + 20 + 8 + 26;
  EXPECT_TRUE(says(paths_in(text).at(0), " " + coordinate(top) + "L"));
  EXPECT_LT(paths_in(text)[0].size(), 60000u);
}

TEST(Memory, AnOwnersColourDoesNotDependOnTheOthers) {
  auto ink_of_gathered = [](const BytesOverTime& bytes) {
    std::string text = draw(Memory{{"a", "Memory", ""}, bytes});
    size_t at = text.rfind("<path", text.find("gathered_parameter, at most"));
    return text.substr(at, text.find(" fill", at) - at);
  };
  EXPECT_EQ(ink_of_gathered(bytes_over_time({}, gathered_and_released())),
            ink_of_gathered(bytes_over_time({{kShard, 1}, {Category::named<"mine">, 7}}, gathered_and_released())));
}

TEST(Memory, OfMoreThanEightOwnersTheSmallestAreOne) {
  BytesOverTime bytes{{0, 1}, {}};
  for (int i = 0; i < 12; ++i) bytes.owners.push_back({"owner " + std::to_string(i), {0, 100 - i}});
  std::string text = draw(Memory{{"a", "Memory", ""}, bytes});
  EXPECT_TRUE(says(text, ">owner 6<") && says(text, ">5 others<"));
  EXPECT_FALSE(says(text, ">owner 7<"));
  EXPECT_EQ(paths_in(text).size(), 8u);
}

TEST(Memory, NumbersThatDoNotFitAreRefused) {
  EXPECT_THROW(draw(Memory{{"a", "", ""}, {{0, 1}, {{"x", {1}}}}}), Error);
  EXPECT_THROW(draw(Memory{{"a", "", ""}, {{1, 0}, {{"x", {1, 2}}}}}), Error);
  EXPECT_TRUE(says(draw(Memory{{"a", "", ""}, {}}), "nothing was in memory"));
}

// Each case has half of the axis, after a gap of 10.
TEST(Memories, CasesStandSideBySideOnOneAxisWithTheirPeaks) {
  Memory small{{"a", "small", ""}, bytes_over_time({{kShard, kMiB}}, {}, true), true};
  Memory large{{"a", "large", ""}, bytes_over_time({{kShard, kMiB}}, gathered_and_released(), true), true};
  large.marks = {{0, "forward"}, {2, "backward"}};
  std::string text = draw(Memories{{"a", "Memory", ""}, {small, large}});
  EXPECT_TRUE(says(text, ">1.00 MiB</text>") && says(text, ">5.00 MiB</text>")) << "peaks";
  EXPECT_TRUE(says(text, ">small</text>") && says(text, ">large</text>"));
  double left = 12 + width_of("6") + 8, middle = (left + 548) / 2, third = (548 - middle) / 3;
  std::vector<std::string> paths = paths_in(text);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_TRUE(says(paths[1], concat("L", coordinate(middle + third))))
      << "gathered after a third of its case: " << paths[1];
  EXPECT_EQ(count_of(text, "stroke-dasharray"), 1u) << "the mark at the case's begin is no line";
}

TEST(Memories, AnOwnerThatACaseHasNotIsNothingThere) {
  Memory with{{"a", "with", ""}, bytes_over_time({{kGathered, kMiB}}, {}, true), true};
  Memory without{{"a", "without", ""}, bytes_over_time({{kShard, 3 * kMiB}}, {}, true), true};
  std::string text = draw(Memories{{"a", "Memory", ""}, {with, without}});
  EXPECT_TRUE(says(text, ">1.00 MiB</text>") && says(text, ">3.00 MiB</text>"));
  double left = 12 + width_of("3") + 8, bottom = 12 + 20 + 20 + 20 + 8 + 26 + 260;
  EXPECT_TRUE(paths_in(text).at(0).starts_with(concat("M", coordinate(left), " ", coordinate(bottom), "L")))
      << "the larger owner, which is drawn first, begins with nothing: " << paths_in(text)[0];
  EXPECT_TRUE(says(draw(Memories{{"a", "Memory", ""}, {}}), "nothing was in memory"));
  EXPECT_TRUE(says(draw(Memories{{"a", "Memory", ""}, std::vector<Memory>(8, with)}), "The first 7 are drawn."));
}

}  // namespace
}  // namespace shardgrad::picture::testing
