#include <shardgrad/picture/axis.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace shardgrad::picture {

void Range::add(double value) {
  if (!std::isfinite(value)) return;
  bool first = empty();
  low_ = first ? value : std::min(low_, value);
  high_ = first ? value : std::max(high_, value);
}

// Halves are subtracted, so that the width of -1e308 to 1e308 is a number.
double Axis::place(double value) const {
  if (std::isnan(value)) return from;
  double share = log ? (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low))
                     : (value / 2 - low / 2) / (high / 2 - low / 2);
  return from + (to - from) * (std::isnan(share) ? 0 : std::clamp(share, 0.0, 1.0));
}

namespace {

constexpr double kLeast = 1e-300;

// The least of 1, 2 and 5 times a power of ten that makes at most so many steps.
double round_step(double low, double high, int most) {
  double step = high / most - low / most;
  double power = std::pow(10, std::floor(std::log10(step)));
  for (double digit : {1., 2., 5., 10.})
    if (digit * power >= step * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

// A single value gets a tenth of itself on each side.
std::pair<double, double> widened(double low, double high) {
  double size = std::max(std::abs(low), std::abs(high));
  if (high - low > size * 1e-9 && high - low > kLeast) return {low, high};
  double room = size > kLeast ? size / 10 : 1;
  return {low - room, high + room};
}

}  // namespace

Axis linear_axis(const Range& range, std::pair<double, double> places, AxisOptions options) {
  double low = range.empty() ? 0 : range.low(), high = range.empty() ? 1 : range.high();
  if (options.from_zero) low = std::min(low, 0.0), high = std::max(high, 0.0);
  std::tie(low, high) = low == 0 && high == 0 ? std::pair(0., 1.) : widened(low, high);
  Measure measure = measure_of(options.unit, std::max(std::abs(low), std::abs(high)));
  low /= measure.size, high /= measure.size;
  double step = round_step(low, high, options.most);
  if (options.whole) step = std::max(step, 1.0);
  double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  if (options.between_ticks) {
    double below = std::floor(low / step + 1e-9), above = std::ceil(high / step - 1e-9);
    if (std::isfinite(below * step)) first = below, low = below * step;  // -1.7e308 has no round number below it
    if (std::isfinite(above * step)) last = above, high = above * step;
  }
  Axis axis{low * measure.size, high * measure.size, false, places.first, places.second, measure.name, {}};
  for (double i = first; i <= last; ++i) axis.ticks.push_back({i * step * measure.size, said(i * step, step)});
  return axis;
}

Axis log_axis(const Range& range, std::pair<double, double> places, int most) {
  double low = range.empty() || range.high() <= 0 ? 1 : std::max(range.low(), 1e-307);
  double high = range.empty() || range.high() <= 0 ? 10 : range.high();
  auto first = int(std::floor(std::log10(low) + 1e-12)), last = int(std::ceil(std::log10(high) - 1e-12));
  last = std::min(std::max(last, first + 1), 308);
  first = std::min(first, last - 1);
  Axis axis{std::pow(10, first), std::pow(10, last), true, places.first, places.second, "", {}};
  bool fine = last - first <= 2;
  for (double digit : {5., 2.}) {
    if (fine && axis.low * digit <= low * (1 + 1e-12)) axis.low = std::max(axis.low, std::pow(10, first) * digit);
    if (fine && std::pow(10, last - 1) * digit >= high) axis.high = std::pow(10, last - 1) * digit;
  }
  int stride = std::max(1, (last - first + most - 1) / most);
  for (int power = first; power <= last; power += stride) {
    double decade = std::pow(10, power);
    for (double digit : {1., 2., 5.}) {
      double value = digit * decade;
      if (digit > 1 && !fine) continue;
      if (value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9))
        axis.ticks.push_back({value, said(value, decade)});
    }
  }
  return axis;
}

}  // namespace shardgrad::picture
