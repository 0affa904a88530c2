#include <shardgrad/picture/unit_states.h>

#include <algorithm>
#include <map>

namespace shardgrad::picture {

namespace {

struct Moment {
  double at;
  enum { released, begins, ends } what;  // of one moment in this order
  bool operator<(const Moment& other) const { return at != other.at ? at < other.at : what < other.what; }
};

std::vector<UnitSpan> spans_of(std::vector<Moment> events, double begin, double end) {
  std::ranges::stable_sort(events, std::less());
  std::vector<UnitSpan> spans;
  bool released_first = !events.empty() && events[0].what == Moment::released;
  UnitIs now = released_first ? UnitIs::gathered : UnitIs::sharded;
  double since = begin;
  auto become = [&](UnitIs next, double at) {
    at = std::clamp(at, since, std::max(since, end));
    if (next == now) return;
    if (since < at) spans.push_back({now, {since, at}});
    now = next, since = at;
  };
  for (const Moment& event : events) {
    if (event.what == Moment::released) become(UnitIs::sharded, event.at);
    if (event.what == Moment::begins && now == UnitIs::sharded) become(UnitIs::gathering, event.at);
    if (event.what == Moment::ends && now == UnitIs::gathering) become(UnitIs::gathered, event.at);
  }
  if (since < end) spans.push_back({now, {since, end}});
  return spans;
}

}  // namespace

std::vector<UnitStates> unit_states(std::span<const Record> records, double begin, double end) {
  std::vector<UnitStates> units;
  std::vector<std::vector<Moment>> events;
  std::map<std::string, size_t> places;
  for (const Record& record : records) {
    if (record.unit.empty() || record.op == "wait") continue;
    auto [place, is_new] = places.try_emplace(record.unit, units.size());
    if (is_new) units.push_back({.unit = record.unit}), events.emplace_back();
    UnitStates& unit = units[place->second];
    std::vector<Moment>& of_unit = events[place->second];
    Interval time{record.begin, record.end < 0 ? end : record.end};
    if (doing(record) == Doing::computing) unit.computing.push_back(time);
    if (record.op == "reduce_scatter" || record.op == "all_reduce") unit.reducing.push_back(time);
    if (record.op == "reshard") of_unit.push_back({time.begin, Moment::released});
    if (record.op != "all_gather") continue;
    of_unit.push_back({time.begin, Moment::begins});
    if (record.end >= 0) of_unit.push_back({time.end, Moment::ends});
  }
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].spans = spans_of(std::move(events[i]), begin, end);
    units[i].computing = joined(std::move(units[i].computing));
    units[i].reducing = joined(std::move(units[i].reducing));
  }
  return units;
}

}  // namespace shardgrad::picture
