#include <shardgrad/picture/lanes.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>
#include <shardgrad/picture/overlap.h>
#include <shardgrad/picture/span_bars.h>

namespace shardgrad::picture {

namespace {

constexpr double kLaneHeight = 18, kLaneGap = 3, kLane = kLaneHeight + kLaneGap, kRankGap = 23;
constexpr size_t kMostRanks = 16;

struct NamedInk {
  const char* op;
  Ink ink;
};
constexpr NamedInk kKinds[] = {{"forward", Ink::green},   {"backward", Ink::blue},     {"recompute", Ink::olive},
                               {"step", Ink::sky},        {"all_gather", Ink::orange}, {"reduce_scatter", Ink::red},
                               {"all_reduce", Ink::pink}, {"upload", Ink::text},       {"download", Ink::faint}};

Ink ink_for(const std::string& op) {
  for (const auto& [name, ink] : kKinds)
    if (op == name) return ink;
  return Ink::grey;
}

// Records on the clock that all ranks share, of which the first moment is 0, each with an end.
struct Run {
  std::vector<RankRecords> ranks;
  size_t left_out = 0;
  double end = 0;
};

void check_times(const RankRecords& rank) {
  SG_CHECK(std::isfinite(rank.zero), "picture: second 0 of rank ", rank.rank, " is ", rank.zero);
  for (const Record& record : rank.records)
    SG_CHECK(std::isfinite(record.begin) && std::isfinite(record.end), "picture: '", record.op, "' of rank ", rank.rank,
             " goes from ", record.begin, " to ", record.end);
}

Run run_of(const Lanes& lanes) {
  Run run{lanes.ranks};
  if (run.ranks.size() > kMostRanks) run.left_out = run.ranks.size() - kMostRanks, run.ranks.resize(kMostRanks);
  Range moments;
  for (const RankRecords& rank : run.ranks) {
    check_times(rank);
    for (const Record& record : rank.records) moments.add(rank.zero + record.begin);
    if (!rank.records.empty()) moments.add(rank.zero + last_moment(rank.records));
  }
  run.end = moments.empty() ? 0 : moments.high() - moments.low();
  for (RankRecords& rank : run.ranks)
    for (Record& record : rank.records) {
      bool running = record.end < 0;
      record.begin += rank.zero - moments.low();
      record.end = running ? run.end : std::max(record.begin, record.end + rank.zero - moments.low());
    }
  return run;
}

std::string hidden_in_words(double hidden, double communication) {
  return concat(percent_of(hidden / communication), " hidden");
}

std::string tip_of(const Record& record) {
  std::string text = record.unit.empty() ? record.op : concat(record.op, " of ", record.unit);
  if (record.bytes_sent > 0) text += concat(", ", said(double(record.bytes_sent), Unit::bytes), " sent");
  return concat(text, ", ", said(record.end - record.begin, Unit::seconds));
}

std::vector<Key> kinds_of(const Run& run, bool exposed) {
  std::map<std::string, bool> seen;
  for (const RankRecords& rank : run.ranks)
    for (const Record& record : rank.records) {
      Doing what = doing(record);
      if (what == Doing::computing || what == Doing::communicating) seen[record.op] = true;
    }
  std::vector<Key> keys;
  for (const auto& [op, ink] : kKinds)
    if (seen.erase(op)) keys.push_back({ink, op});
  if (!seen.empty()) keys.push_back({Ink::grey, seen.size() == 1 ? seen.begin()->first : "other collectives"});
  if (exposed) keys.push_back({Ink::text, "exposed", "3 2", true});
  return keys;
}

// What a rank sends, by the lane that it is drawn in: streams share one unless they run at the same time.
std::vector<std::vector<Record>> network_of(const RankRecords& rank) {
  std::vector<std::string> streams;
  std::vector<std::vector<Record>> lanes;
  std::vector<std::vector<Interval>> times;
  for (const Record& record : rank.records)
    if (doing(record) == Doing::communicating && std::ranges::find(streams, record.lane) == streams.end())
      streams.push_back(record.lane);
  for (const std::string& stream : streams) {
    std::vector<Record> records;
    std::vector<Interval> mine;
    for (const Record& record : rank.records)
      if (doing(record) == Doing::communicating && record.lane == stream)
        records.push_back(record), mine.push_back({record.begin, record.end});
    mine = joined(std::move(mine));
    size_t lane = 0;
    while (lane < lanes.size() && without(times[lane], mine) != times[lane]) ++lane;
    if (lane == lanes.size()) lanes.emplace_back(), times.emplace_back();
    lanes[lane].insert(lanes[lane].end(), records.begin(), records.end());
    times[lane].insert(times[lane].end(), mine.begin(), mine.end());
    times[lane] = joined(std::move(times[lane]));
  }
  return lanes;
}

void draw_lane(Svg& svg, const std::vector<Record>& records, const Axis& time, double y) {
  std::vector<SpanBar> bars;
  for (const Record& record : records)
    bars.push_back({record.begin, record.end, ink_for(record.op), tip_of(record), record.unit});
  draw_bars(svg, std::move(bars), time, y, kLaneHeight);
}

void draw_computing(Svg& svg, const RankRecords& rank, const Axis& time, double y) {
  std::vector<Record> computing;
  std::vector<SpanBar> waits;
  for (const Record& record : rank.records) {
    if (doing(record) == Doing::computing) computing.push_back(record);
    if (doing(record) == Doing::waiting) waits.push_back({record.begin, record.end, Ink::paper, tip_of(record)});
  }
  draw_lane(svg, computing, time, y);
  draw_bars(svg, std::move(waits), time, y, kLaneHeight);
}

// A shade where compute stands still and behind the communication, and a dashed line under it, for those who see no
// colour.
void draw_exposed(Svg& svg, const Overlap& overlap, const Axis& time, double y, double height) {
  std::vector<SpanBar> shades;
  for (const Interval& each : overlap.exposed) shades.push_back({each.begin, each.end, Ink::red, ""});
  for (const SpanBar& shade : merged(std::move(shades), time)) {
    double x = time.place(shade.begin), end = std::max(x + 1, time.place(shade.end));
    svg.rect(Ink::red, {x, y - 3, end - x, height + 6}, "", 0.28);
    svg.line(Ink::text, {x, y + height + 4}, {end, y + height + 4}, {2, "3 2"});
  }
}

/// A rank with what is drawn of it.
struct RankLanes {
  RankRecords rank;
  Overlap overlap;
  std::vector<std::vector<Record>> network;
};

void draw_rank(Svg& svg, const RankLanes& of, size_t lanes, const Plot& plot, double y) {
  svg.text({kMargin, y - 7}, concat("rank ", std::to_string(of.rank.rank)), {.bold = true});
  if (of.overlap.share())
    svg.text({plot.box.x + plot.box.width, y - 7}, hidden_in_words(of.overlap.hidden, of.overlap.communication),
             {.anchor = Anchor::end, .ink = Ink::faint});
  svg.text({kMargin, y + 14}, "compute", {.ink = Ink::faint});
  svg.text({kMargin, y + kLane + 14}, "network", {.ink = Ink::faint});
  draw_computing(svg, of.rank, plot.x, y);
  draw_exposed(svg, of.overlap, plot.x, y, kLane * double(lanes) + kLaneHeight);
  for (size_t i = 0; i < of.network.size(); ++i) draw_lane(svg, of.network[i], plot.x, y + kLane * double(i + 1));
}

std::string overlap_in_words(const Run& run, const std::vector<RankLanes>& ranks) {
  double communication = 0, hidden = 0;
  bool computes = false;
  for (const RankLanes& each : ranks) {
    communication += each.overlap.communication, hidden += each.overlap.hidden;
    computes = computes || !each.overlap.computing.empty();
  }
  std::string text = communication == 0 ? "Nothing was sent."
                     : !computes        ? "No computation was recorded: trace the run to see what hides communication."
                                        : concat(hidden_in_words(hidden, communication), ": ranks computed during ",
                                                 said(hidden, Unit::seconds), " of ", said(communication, Unit::seconds),
                                                 " of communication.");
  if (run.left_out) text += concat(" ", std::to_string(run.left_out), " more ranks are not drawn.");
  return text;
}

}  // namespace

std::string draw(const Lanes& lanes) {
  Run run = run_of(lanes);
  std::vector<RankLanes> ranks;
  bool any = false, exposed = false;
  size_t network = 1;
  for (const RankRecords& rank : run.ranks) {
    ranks.push_back({rank, overlap_of(rank.records, run.end), network_of(rank)});
    any = any || !rank.records.empty();
    exposed = exposed || !ranks.back().overlap.exposed.empty();
    network = std::max(network, ranks.back().network.size());
  }
  Head head(lanes.caption, any ? overlap_in_words(run, ranks) : "", kinds_of(run, exposed));
  double left = kMargin + width_of("compute") + 8, top = head.bottom() + 18;
  double height = kLane * double(network + 1) + kRankGap, rows = any ? height * double(ranks.size()) : 60;
  Svg svg(lanes.caption, kWidth, top + rows - 16 + kBelow);
  head.draw(svg);
  Plot plot{{left, top, kWidth - kMargin - left, rows - 16}, {}, {}};
  if (!any) {
    say_empty(svg, plot.box, "there are no records");
    return svg.str();
  }
  Range time;
  time.add(0), time.add(run.end);
  plot.x = linear_axis(time, {left, kWidth - kMargin}, {.unit = Unit::seconds, .between_ticks = false});
  draw_axes(svg, plot, "", "");
  for (size_t i = 0; i < ranks.size(); ++i) draw_rank(svg, ranks[i], network, plot, top + height * double(i));
  return svg.str();
}

}  // namespace shardgrad::picture
