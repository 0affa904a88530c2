// Lines over steps: where points are, gaps, and what happens to very many.

#include <shardgrad/picture/lines.h>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

#include "tests/picture/marks.h"
#include "tests/picture/samples.h"

namespace shardgrad::picture::testing {
namespace {

// Ticks from 0 to 4 need 17 units at the left; the plot is from 29.08 to 548, and from 90 down to 310.
TEST(Lines, PointsStandWhereTheirNumbersSay) {
  std::string text = lines_of("a", {series("loss", {4, 2, 0})});
  double left = 12 + width_of("4") + 8, top = 12 + 20 + 8 + 26, bottom = top + 220;
  EXPECT_EQ(paths_in(text),
            (std::vector<std::string>{path_of({{left, top}, {(left + 548) / 2, (top + bottom) / 2}, {548, bottom}})}));
  EXPECT_EQ(count_of(text, "<circle"), 3u) << "few points are dots too";
}

TEST(Lines, AGapIsWhereAValueIsNotFiniteAndASinglePointIsADot) {
  const double nan = std::nan("");
  std::string text = lines_of("a", {series("loss", {1, 2, nan, 3, nan, 4, 5})});
  EXPECT_EQ(paths_in(text).size(), 2u);
  EXPECT_TRUE(says(text, "× 2 values are not finite."));
  EXPECT_EQ(count_of(text, "<line class=\"s-blue\""), 4u) << "two crosses";
}

TEST(Lines, OnALogarithmicScaleWhatIsNotPositiveIsAGap) {
  std::string text = lines_of("a", {series("loss", {100, 0, 10, 1})}, true);
  EXPECT_TRUE(says(text, "× 1 value is not positive or not finite."));
  EXPECT_EQ(paths_in(text).size(), 1u);
}

TEST(Lines, TenThousandPointsAreThinnedAndTheirExtremesStay) {
  Series many{"loss", {}};
  for (int i = 0; i < 10000; ++i) many.points.push_back({double(i), i == 5000 ? 100.0 : i == 2500 ? 0.0 : 50 + i % 7});
  std::string text = lines_of("a", {many});
  std::vector<std::string> paths = paths_in(text);
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_LE(count_of(paths[0], "L"), 2000u);
  double top = 12 + 20 + 8 + 26;
  EXPECT_NE(paths[0].find(" " + coordinate(top) + "L"), std::string::npos) << "the highest";
  EXPECT_NE(paths[0].find(" " + coordinate(top + 220) + "L"), std::string::npos) << "the lowest";
}

TEST(Lines, StepsMayComeInAnyOrderButMustBeNumbers) {
  Series series{"loss", {{2, 1}, {0, 3}, {1, 2}}};
  EXPECT_EQ(paths_in(lines_of("a", {series})), paths_in(lines_of("a", {testing::series("loss", {3, 2, 1})})));
  series.points[0].x = std::nan("");
  EXPECT_THROW(lines_of("a", {series}), Error);
}

TEST(Lines, SeveralHaveALegendAndOneHasNone) {
  EXPECT_FALSE(says(lines_of("a", {series("loss", {1, 2})}), ">loss<", 2)) << "only the axis says so";
  std::string text = lines_of("a", {series("train", {1, 2}), series("test", {2, 3})});
  EXPECT_TRUE(says(text, ">train<") && says(text, ">test<"));
  EXPECT_TRUE(says(text, "train ends at 2. test ends at 3.")) << "for who cannot see it";
}

TEST(Lines, NothingToDrawIsSaid) {
  EXPECT_TRUE(says(lines_of("a", {}), "there are no values"));
  EXPECT_TRUE(says(lines_of("a", {series("loss", {std::nan("")})}), "there is no finite value"));
}

TEST(Pictures, AreTheSameEachTime) { EXPECT_EQ(all_samples(), all_samples()); }

}  // namespace
}  // namespace shardgrad::picture::testing
