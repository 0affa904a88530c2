#pragma once
// From numbers to places: which round numbers an axis has, and where a value stands between them.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/picture/text.h>

namespace shardgrad::picture {

/// The smallest and the largest of some values, of which those that are not finite do not count.
class Range {
 public:
  void add(double value);
  bool empty() const { return !(low_ <= high_); }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_ = 1, high_ = 0;
};

struct Tick {
  double value = 0;
  std::string text;
};

/// An axis of values from low to high, drawn from one coordinate to the other.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double from = 0, to = 1;  ///< coordinates of low and high
  std::string unit;         ///< what its ticks are in
  std::vector<Tick> ticks;  ///< in order, between low and high
  /// The coordinate of a value; those outside are at the ends.
  double place(double value) const;
};

struct AxisOptions {
  Unit unit = Unit::plain;
  bool from_zero = false;     ///< 0 belongs to it
  bool whole = false;         ///< ticks are whole numbers
  bool between_ticks = true;  ///< begins and ends at a tick; else at the range's own ends
  int most = 6;               ///< intervals between ticks
};
/// An axis on which the whole range is, with ticks at 1, 2 or 5 times a power of ten of its unit. An empty range is
/// taken to be 0 to 1; a single value gets room on both sides.
Axis linear_axis(const Range& range, std::pair<double, double> places, AxisOptions options = {});
/// The same for positive values, with equal room for equal factors.
Axis log_axis(const Range& range, std::pair<double, double> places, int most = 6);

}  // namespace shardgrad::picture
