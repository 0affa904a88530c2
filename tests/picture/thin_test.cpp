// Thinning: few points, and no extreme is lost.

#include <shardgrad/picture/thin.h>

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace shardgrad::picture {
namespace {

TEST(Thin, OfAColumnTheFirstTheExtremesAndTheLastAreKept) {
  std::vector<Point> points;
  for (double y : {5., 6., 9., 4., 1., 2., 3.}) points.push_back({double(points.size() + 1), y});
  EXPECT_EQ(kept_of(points, 1), (std::vector<size_t>{0, 2, 4, 6}));
  EXPECT_EQ(kept_of(points, 100).size(), 7u) << "all, where each has a column";
}

TEST(Thin, TenThousandPointsKeepEveryExtremeOfEveryColumn) {
  std::vector<Point> points;
  for (int i = 0; i < 10000; ++i) points.push_back({double(i), std::sin(i * 0.37) * (i % 97)});
  points[1234].y = 1e6, points[8765].y = -1e6;
  std::vector<Point> kept = thinned(points, 100);
  EXPECT_LE(kept.size(), 400u);
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &Point::x));
  for (int column = 0; column < 100; ++column) {
    auto inside = [&](const Point& p) { return std::min(int(p.x / 9999 * 100), 99) == column; };
    auto highest = [&](const std::vector<Point>& all) {
      double y = -1e9;
      for (const Point& p : all) y = inside(p) ? std::max(y, p.y) : y;
      return y;
    };
    auto lowest = [&](const std::vector<Point>& all) {
      double y = 1e9;
      for (const Point& p : all) y = inside(p) ? std::min(y, p.y) : y;
      return y;
    };
    EXPECT_EQ(highest(kept), highest(points)) << column;
    EXPECT_EQ(lowest(kept), lowest(points)) << column;
  }
}

TEST(Thin, FewPointsAndPointsOfOneStepAreNoProblem) {
  EXPECT_TRUE(thinned({}, 10).empty());
  std::vector<Point> same{{3, 1}, {3, 7}, {3, 2}, {3, 2}, {3, 5}};
  EXPECT_EQ(kept_of(same, 10), (std::vector<size_t>{0, 1, 4}));
}

}  // namespace
}  // namespace shardgrad::picture
