#include <shardgrad/picture/lines.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>
#include <shardgrad/picture/thin.h>

namespace shardgrad::picture {

namespace {

constexpr double kLinesHeight = 220;
constexpr size_t kDotsUpTo = 24;  // so few points are dots too
constexpr size_t kLineColumns = 500;

bool drawable(const Lines& lines, double y) { return std::isfinite(y) && (!lines.log || y > 0); }

std::vector<Point> in_order(const Series& series) {
  for (const Point& point : series.points)
    SG_CHECK(std::isfinite(point.x), "picture: '", series.name, "' has a value at step ", point.x);
  std::vector<Point> points = series.points;
  std::ranges::stable_sort(points, {}, &Point::x);
  return points;
}

struct Ranges {
  Range x, y;
  bool whole = true;  // all steps are whole numbers
  size_t left_out = 0;
};

Ranges ranges_of(const Lines& lines) {
  Ranges all;
  for (const Series& series : lines.series)
    for (const Point& point : series.points) {
      all.x.add(point.x);
      all.whole = all.whole && point.x == std::floor(point.x);
      if (drawable(lines, point.y))
        all.y.add(point.y);
      else
        ++all.left_out;
    }
  return all;
}

std::string what_is_left_out(const Lines& lines, const Ranges& ranges) {
  if (ranges.left_out == 0) return "";
  return concat("× ", std::to_string(ranges.left_out), ranges.left_out == 1 ? " value is" : " values are",
                lines.log ? " not positive or not finite." : " not finite.");
}

void draw_crosses(Svg& svg, const Plot& plot, Ink ink, const std::vector<double>& steps) {
  double y = plot.box.y + plot.box.height - 6, last = -10;
  for (double step : steps) {
    double x = plot.x.place(step);
    if (x - last < 6) continue;
    last = x;
    svg.line(ink, {x - 3, y - 3}, {x + 3, y + 3}, {1.5, nullptr});
    svg.line(ink, {x - 3, y + 3}, {x + 3, y - 3}, {1.5, nullptr});
  }
}

// Pieces between gaps; those of a single point are dots.
void draw_series(Svg& svg, const Lines& lines, const Plot& plot, const Series& series, Key key) {
  std::vector<Point> points = in_order(series), piece, dots;
  std::vector<double> missing;
  bool few = points.size() <= kDotsUpTo;
  auto placed = [&](std::vector<Point> some) {
    for (Point& point : some) point = {plot.x.place(point.x), plot.y.place(point.y)};
    return some;
  };
  auto end_piece = [&] {
    if (piece.size() > 1) svg.path(key.ink, placed(thinned(piece, kLineColumns)), {few ? 2.0 : 1.5, key.dashes});
    if (piece.size() == 1 || few) dots.insert(dots.end(), piece.begin(), piece.end());
    piece.clear();
  };
  for (const Point& point : points) {
    if (drawable(lines, point.y)) {
      piece.push_back(point);
      continue;
    }
    missing.push_back(point.x);
    end_piece();
  }
  end_piece();
  for (const Point& dot : placed(thinned(dots, kLineColumns))) svg.dot(key.ink, dot);
  draw_crosses(svg, plot, key.ink, missing);
}

std::string last_value(const Lines& lines, const Series& series) {
  std::vector<Point> points = in_order(series);
  for (size_t i = points.size(); i-- > 0;)
    if (drawable(lines, points[i].y))
      return concat(series.name.empty() ? "The line" : series.name, " ends at ", said(points[i].y, lines.unit), ".");
  return concat(series.name.empty() ? "The line" : series.name, " has no value.");
}

}  // namespace

std::string draw(const Lines& lines) {
  std::vector<Key> keys;
  constexpr const char* dashes[] = {nullptr, "6 3", "2 3", "8 3 2 3"};
  for (size_t i = 0; i < lines.series.size(); ++i)
    keys.push_back({ink_of(i), lines.series[i].name, dashes[i / kDataInks % 4], true});
  Ranges ranges = ranges_of(lines);
  bool alone = keys.size() == 1 && (keys[0].name.empty() || keys[0].name == lines.y_name);
  Head head(lines.caption, what_is_left_out(lines, ranges), alone ? std::vector<Key>() : keys);
  double top = head.bottom() + 26, bottom = top + kLinesHeight;
  Svg svg(lines.caption, kWidth, bottom + kBelow);
  head.draw(svg);
  Axis y = lines.log ? log_axis(ranges.y, {bottom, top}) : linear_axis(ranges.y, {bottom, top}, {.unit = lines.unit});
  double left = kMargin + room_for(y), right = kWidth - kMargin;
  Axis x = linear_axis(ranges.x, {left, right}, {.whole = ranges.whole, .between_ticks = false});
  Plot plot{{left, top, right - left, kLinesHeight}, x, y};
  if (ranges.y.empty()) {
    say_empty(svg, plot.box, ranges.left_out ? "there is no finite value" : "there are no values");
    return svg.str();
  }
  draw_axes(svg, plot, lines.x_name, lines.y_name);
  for (size_t i = 0; i < keys.size(); ++i) draw_series(svg, lines, plot, lines.series[i], keys[i]);
  for (const Series& series : lines.series) svg.tell(last_value(lines, series));
  return svg.str();
}

}  // namespace shardgrad::picture
