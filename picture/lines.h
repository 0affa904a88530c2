#pragma once
// Numbers over steps: loss, accuracy, learning rate, norm.

#include <optional>
#include <string>
#include <vector>

#include <shardgrad/picture/svg.h>
#include <shardgrad/picture/text.h>

namespace shardgrad::picture {

/// One line. A value that is not finite (on a logarithmic scale: not positive) interrupts it and is marked by a cross
/// below.
struct Series {
  std::string name;
  std::vector<Point> points;  ///< x: the step, finite; in any order
};

struct Lines {
  Caption caption;
  std::string x_name = "step", y_name;
  Unit unit = Unit::plain;  ///< of the values
  bool log = false;         ///< equal factors are equally far apart
  std::vector<Series> series;
};

/// Throws Error(input) for a step that is not finite.
std::string draw(const Lines& lines);

}  // namespace shardgrad::picture
