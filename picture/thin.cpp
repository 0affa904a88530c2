#include <shardgrad/picture/thin.h>

#include <algorithm>

namespace shardgrad::picture {

std::vector<size_t> kept_of(std::span<const Point> points, size_t columns) {
  std::vector<size_t> kept;
  if (points.empty()) return kept;
  double low = points.front().x / 2, width = points.back().x / 2 - low;
  auto column = [&](size_t i) {
    double share = width > 0 ? (points[i].x / 2 - low) / width : 0;
    return std::min(size_t(share * double(columns)), columns - 1);
  };
  for (size_t begin = 0, end; begin < points.size(); begin = end) {
    for (end = begin + 1; end < points.size() && column(end) == column(begin);) ++end;
    auto part = points.subspan(begin, end - begin);
    auto lowest = size_t(std::ranges::min_element(part, {}, &Point::y) - part.begin());
    auto highest = size_t(std::ranges::max_element(part, {}, &Point::y) - part.begin());
    size_t four[] = {0, std::min(lowest, highest), std::max(lowest, highest), part.size() - 1};
    for (size_t i : four)
      if (kept.empty() || kept.back() < begin + i) kept.push_back(begin + i);
  }
  return kept;
}

std::vector<Point> thinned(std::span<const Point> points, size_t columns) {
  std::vector<Point> kept;
  for (size_t i : kept_of(points, columns)) kept.push_back(points[i]);
  return kept;
}

}  // namespace shardgrad::picture
