#pragma once
// Fewer points for the same picture. A column of pixels shows of the points in it no more than where the line comes in,
// how far down and up it goes, and where it leaves: those four are kept, at their own values, so no extreme is lost.
//
//     x in one column     1 2 3 4 5 6 7
//     y                   5 6 9 4 1 2 3      kept: 5 (first), 9 (highest), 1 (lowest), 3 (last)

#include <span>
#include <vector>

#include <shardgrad/picture/svg.h>

namespace shardgrad::picture {

/// At most four points for each of so many equal columns between the first x and the last. The points stand in order of
/// x, and all are finite.
std::vector<Point> thinned(std::span<const Point> points, size_t columns);

/// Which of some values, each with its x, a picture of so many columns needs: the numbers of the kept points, in order.
std::vector<size_t> kept_of(std::span<const Point> points, size_t columns);

}  // namespace shardgrad::picture
