#pragma once
// Spans of time as bars in a row. Neighbours of one kind that are narrower than can be seen become one bar, so that a
// row has a few thousand of them at most, however long the run was.

#include <string>
#include <vector>

#include <shardgrad/picture/axis.h>
#include <shardgrad/picture/svg.h>

namespace shardgrad::picture {

struct SpanBar {
  double begin = 0, end = 0;
  Ink ink = Ink::grey;
  std::string tip;
  std::string name = {};  ///< in it, where there is room
  size_t count = 1;       ///< spans in it
};

/// In order of their beginnings, those that contain others before them.
std::vector<SpanBar> merged(std::vector<SpanBar> bars, const Axis& time);
/// `row`: where bars go; their x and width are the axis's.
void draw_bars(Svg& svg, std::vector<SpanBar> bars, const Axis& time, double y, double height);

}  // namespace shardgrad::picture
