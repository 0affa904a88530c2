#include <shardgrad/picture/strip.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>
#include <shardgrad/picture/span_bars.h>
#include <shardgrad/picture/unit_states.h>

namespace shardgrad::picture {

namespace {

constexpr double kRow = 24, kBand = 18;
constexpr size_t kMostUnits = 40;

struct Looks {
  const char* name;
  Ink ink;
  double height;  // of the band; bands end at one line
};
constexpr Looks kLooks[] = {
    {"sharded", Ink::grid, 3}, {"gathering", Ink::orange, kBand}, {"gathered", Ink::sky, kBand}};

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

void draw_unit(Svg& svg, const UnitStates& unit, const Axis& time, double y) {
  for (size_t is = 0; is < 3; ++is) {
    std::vector<SpanBar> bars;
    for (const UnitSpan& span : unit.spans)
      if (size_t(span.is) == is)
        bars.push_back(
            {span.time.begin, span.time.end, kLooks[is].ink,
             concat(unit.unit, " ", kLooks[is].name, ", ", said(span.time.end - span.time.begin, Unit::seconds))});
    draw_bars(svg, std::move(bars), time, y + kBand - kLooks[is].height, kLooks[is].height);
  }
  auto draw_inner = [&](const std::vector<Interval>& times, Ink ink, const char* what, double top, double height) {
    std::vector<SpanBar> bars;
    for (const Interval& each : times)
      bars.push_back(
          {each.begin, each.end, ink, concat(unit.unit, " ", what, ", ", said(each.end - each.begin, Unit::seconds))});
    draw_bars(svg, std::move(bars), time, top, height);
  };
  draw_inner(unit.computing, Ink::green, "computes", y + 4, kBand - 8);
  draw_inner(unit.reducing, Ink::red, "sends gradients", y + kBand - 5, 5);
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

}  // namespace

std::string draw(const Strip& strip) {
  Range moments = moments_of(strip.records);
  double begin = moments.empty() ? 0 : moments.low(), end = moments.empty() ? 0 : moments.high();
  std::vector<Record> records = strip.records;
  for (Record& record : records) {
    record.begin -= begin;
    if (record.end >= 0) record.end -= begin;
  }
  std::vector<UnitStates> units = unit_states(records, 0, end - begin);
  std::string words;
  if (!units.empty())
    words = concat("At most ", std::to_string(most_at_once(units)), " of ", std::to_string(units.size()),
                   units.size() == 1 ? " unit" : " units", " in memory at a time.");
  std::vector<Key> keys = states_in(units);
  if (units.size() > kMostUnits) {
    words += concat(" The first ", std::to_string(kMostUnits), " are drawn.");
    units.resize(kMostUnits);
  }
  Head head(strip.caption, words, keys);
  double room = 0, top = head.bottom(), height = units.empty() ? 60 : kRow * double(units.size());
  for (const UnitStates& unit : units) room = std::max(room, width_of(shortened(unit.unit, 150)));
  double left = kMargin + room + 10, right = kWidth - kMargin;
  Svg svg(strip.caption, kWidth, top + height + 30);
  head.draw(svg);
  Plot plot{{left, top, right - left, height}, {}, {}};
  if (units.empty()) {
    say_empty(svg, plot.box, "no record is of a unit");
    return svg.str();
  }
  Range time;
  time.add(0), time.add(end - begin);
  plot.x = linear_axis(time, {left, right}, {.unit = Unit::seconds, .between_ticks = false});
  draw_axes(svg, plot, "", "");
  for (size_t i = 0; i < units.size(); ++i) {
    double y = top + kRow * double(i);
    svg.text({left - 8, y + kBand - 4}, shortened(units[i].unit, 150), {.anchor = Anchor::end});
    draw_unit(svg, units[i], plot.x, y);
  }
  return svg.str();
}

}  // namespace shardgrad::picture
