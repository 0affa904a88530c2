#pragma once
// What tests read of a picture.

#include <ostream>
#include <string>
#include <vector>

#include <shardgrad/picture/svg.h>
#include <shardgrad/picture/text.h>
#include <shardgrad/picture/unit_states.h>

namespace shardgrad::picture {

/// What a failed expectation shows.
inline void PrintTo(const Interval& time, std::ostream* out) { *out << time.begin << " to " << time.end; }
inline void PrintTo(const UnitSpan& span, std::ostream* out) {
  constexpr const char* names[] = {"sharded", "gathering", "gathered"};
  *out << names[size_t(span.is)] << ' ' << span.time.begin << " to " << span.time.end;
}

}  // namespace shardgrad::picture

namespace shardgrad::picture::testing {

inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

inline bool says(const std::string& text, const std::string& part, size_t times = 1) {
  return count_of(text, part) >= times;
}

/// The value of an attribute in each element of this kind and class, in order.
inline std::vector<std::string> values_of(const std::string& text, const std::string& begin, const std::string& name) {
  std::vector<std::string> found;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    size_t from = text.find(" " + name + "=\"", at) + name.size() + 3;
    found.push_back(text.substr(from, text.find('"', from) - from));
  }
  return found;
}

inline std::vector<std::string> paths_in(const std::string& text) { return values_of(text, "<path", "d"); }

inline std::string path_of(const std::vector<Point>& points) {
  std::string text;
  for (const Point& point : points)
    text += (text.empty() ? "M" : "L") + coordinate(point.x) + " " + coordinate(point.y);
  return text;
}

/// Names of the inks for data, in their order.
inline constexpr const char* kInks[] = {"blue", "orange", "green", "red", "pink", "sky", "olive", "grey"};

/// "x+width" of each box of an ink.
inline std::vector<std::string> boxes_in(const std::string& text, const std::string& ink) {
  std::string begin = "<rect class=\"f-" + ink + "\"";
  std::vector<std::string> x = values_of(text, begin, "x"), width = values_of(text, begin, "width");
  for (size_t i = 0; i < x.size(); ++i) x[i] += "+" + width[i];
  return x;
}

}  // namespace shardgrad::picture::testing
