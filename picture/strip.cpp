#include <shardgrad/picture/strip.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>
#include <shardgrad/picture/span_bars.h>
#include <shardgrad/picture/unit_states.h>

namespace shardgrad::picture {

namespace {

constexpr double kMostRow = 24, kMostHeight = 720, kNames = 150;
constexpr size_t kMostUnits = 240;

struct Looks {
  const char* name;
  Ink ink;
  double height;  // of a row; all that stands in a row ends at its line
};
constexpr Looks kLooks[] = {
    {"sharded", Ink::grid, 0.12}, {"gathering", Ink::orange, 0.75}, {"gathered", Ink::sky, 0.75}};
constexpr double kBand = 0.75, kComputing = 0.42, kReducing = 0.22;

Range moments_of(const std::vector<Record>& records) {
  Range moments;
  for (const Record& record : records) {
    SG_CHECK(std::isfinite(record.begin) && std::isfinite(record.end), "picture: '", record.op, "' of unit '",
             record.unit, "' goes from ", record.begin, " to ", record.end);
    moments.add(record.begin);
    if (record.end >= 0) moments.add(record.end);
  }
  return moments;
}

void draw_unit(Svg& svg, const UnitStates& unit, const Axis& time, double y, double row) {
  for (size_t is = 0; is < 3; ++is) {
    std::vector<SpanBar> bars;
    for (const UnitSpan& span : unit.spans)
      if (size_t(span.is) == is)
        bars.push_back(
            {span.time.begin, span.time.end, kLooks[is].ink,
             concat(unit.unit, " ", kLooks[is].name, ", ", said(span.time.end - span.time.begin, Unit::seconds))});
    draw_bars(svg, std::move(bars), time, y + (kBand - kLooks[is].height) * row, kLooks[is].height * row);
  }
  auto draw_inner = [&](const std::vector<Interval>& times, Ink ink, const char* what, double top, double height) {
    std::vector<SpanBar> bars;
    for (const Interval& each : times)
      bars.push_back(
          {each.begin, each.end, ink, concat(unit.unit, " ", what, ", ", said(each.end - each.begin, Unit::seconds))});
    draw_bars(svg, std::move(bars), time, top, height);
  };
  draw_inner(unit.computing, Ink::green, "computes", y + (kBand - kComputing) / 2 * row, kComputing * row);
  draw_inner(unit.reducing, Ink::red, "sends gradients", y + (kBand - kReducing) * row, kReducing * row);
}

std::vector<Key> states_in(const std::vector<UnitStates>& units) {
  bool computing = false, reducing = false, is[3] = {};
  for (const UnitStates& unit : units) {
    for (const UnitSpan& span : unit.spans) is[size_t(span.is)] = true;
    computing = computing || !unit.computing.empty();
    reducing = reducing || !unit.reducing.empty();
  }
  std::vector<Key> keys;
  for (size_t i = 0; i < 3; ++i)
    if (is[i]) keys.push_back({kLooks[i].ink, kLooks[i].name});
  if (computing) keys.push_back({Ink::green, "computes"});
  if (reducing) keys.push_back({Ink::red, "sends gradients"});
  return keys;
}

// The most units whose full parameters are there, or come, at one moment.
size_t most_at_once(const std::vector<UnitStates>& units) {
  std::vector<std::pair<double, int>> steps;
  for (const UnitStates& unit : units)
    for (const UnitSpan& span : unit.spans)
      if (span.is != UnitIs::sharded) steps.insert(steps.end(), {{span.time.begin, 1}, {span.time.end, -1}});
  std::ranges::sort(steps);  // of one moment what goes comes first
  int now = 0, most = 0;
  for (const auto& [at, change] : steps) most = std::max(most, now += change);
  return size_t(most);
}

/// What is drawn: seconds from the first record to the last.
struct Shown {
  std::vector<UnitStates> units;
  double seconds = 0;
  std::string words;
  std::vector<Key> keys;
};

Shown shown_of(const Strip& strip) {
  Range moments = moments_of(strip.records);
  Shown shown;
  if (moments.empty()) return shown;
  std::vector<Record> records = strip.records;
  for (Record& record : records) {
    record.begin -= moments.low();
    if (record.end >= 0) record.end -= moments.low();
  }
  shown.seconds = moments.high() - moments.low();
  shown.units = unit_states(records, 0, shown.seconds);
  shown.keys = states_in(shown.units);
  size_t count = shown.units.size();
  if (count == 0) return shown;
  shown.words = concat("At most ", std::to_string(most_at_once(shown.units)), " of ", std::to_string(count),
                       count == 1 ? " unit" : " units", " in memory at a time.");
  if (count <= kMostUnits) return shown;
  shown.words += concat(" The first ", std::to_string(kMostUnits), " are drawn.");
  shown.units.resize(kMostUnits);
  return shown;
}

}  // namespace

std::string draw(const Strip& strip) {
  auto [units, seconds, words, keys] = shown_of(strip);
  Head head(strip.caption, words, keys);
  double row = std::min(kMostRow, kMostHeight / double(std::max<size_t>(1, units.size())));
  double room = 0, top = head.bottom(), height = units.empty() ? 60 : row * double(units.size());
  std::vector<std::string> names;
  for (const UnitStates& unit : units) names.push_back(unit.unit);
  names = told_apart(std::move(names), kNames);
  for (const std::string& name : names) room = std::max(room, width_of(name));
  double left = kMargin + room + 10, right = kWidth - kMargin;
  Svg svg(strip.caption, kWidth, top + height + kBelow);
  head.draw(svg);
  Plot plot{{left, top, right - left, height}, {}, {}};
  if (units.empty()) {
    say_empty(svg, plot.box, "no record is of a unit");
    return svg.str();
  }
  Range time;
  time.add(0), time.add(seconds);
  plot.x = linear_axis(time, {left, right}, {.unit = Unit::seconds, .between_ticks = false});
  draw_axes(svg, plot, "", "");
  auto stride = size_t(std::ceil(18 / row));  // names that have room
  for (size_t i = 0; i < units.size(); ++i) {
    double y = top + row * double(i);
    if (i % stride == 0) svg.text({left - 8, y + kBand * row / 2 + 5}, names[i], {.anchor = Anchor::end});
    draw_unit(svg, units[i], plot.x, y, row);
  }
  return svg.str();
}

}  // namespace shardgrad::picture
