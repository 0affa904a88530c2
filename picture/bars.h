#pragma once
// What was measured beside what a formula says, such as the bytes that each unit sent.

#include <string>
#include <vector>

#include <shardgrad/picture/svg.h>
#include <shardgrad/picture/text.h>

namespace shardgrad::picture {

struct Pair {
  std::string name;
  double measured = 0, formula = 0;
};

/// Each pair says whether its numbers are equal, or what the difference is. Of pairs that are too many for the picture
/// those that differ most are drawn first, and it says how many are not.
struct Bars {
  Caption caption;
  Unit unit = Unit::plain;
  std::string measured = "measured", formula = "formula";  ///< what the bars are called
  std::vector<Pair> pairs;
};

/// Throws Error(input) for a number that is negative.
std::string draw(const Bars& bars);

}  // namespace shardgrad::picture
