#include <shardgrad/picture/overlap.h>

#include <algorithm>

namespace shardgrad::picture {

std::vector<Interval> joined(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& each) { return !(each.begin < each.end); });
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> all;
  for (const Interval& each : intervals)
    if (!all.empty() && each.begin <= all.back().end)
      all.back().end = std::max(all.back().end, each.end);
    else
      all.push_back(each);
  return all;
}

std::vector<Interval> without(std::span<const Interval> some, std::span<const Interval> others) {
  std::vector<Interval> left;
  size_t first = 0;  // of the others that may reach into what is left
  for (Interval each : some) {
    while (first < others.size() && others[first].end <= each.begin) ++first;
    for (size_t i = first; i < others.size() && others[i].begin < each.end; ++i) {
      if (others[i].begin > each.begin) left.push_back({each.begin, others[i].begin});
      each.begin = std::min(others[i].end, each.end);
    }
    if (each.begin < each.end) left.push_back(each);
  }
  return left;
}

double length_of(std::span<const Interval> intervals) {
  double sum = 0;
  for (const Interval& each : intervals) sum += each.end - each.begin;
  return sum;
}

Doing doing(const Record& record) {
  for (const char* op : {"forward", "backward", "recompute", "step"})
    if (record.op == op) return Doing::computing;
  if (record.op == "wait") return Doing::waiting;
  return record.op == "reshard" ? Doing::nothing : Doing::communicating;
}

std::optional<double> Overlap::share() const {
  return communication > 0 ? std::optional(hidden / communication) : std::nullopt;
}

Overlap overlap_of(std::span<const Record> records, double now) {
  std::vector<Interval> computing, communicating, waiting;
  for (const Record& record : records) {
    Interval time{record.begin, record.end < 0 ? now : record.end};
    Doing what = doing(record);
    if (what == Doing::computing) computing.push_back(time);
    if (what == Doing::communicating) communicating.push_back(time);
    if (what == Doing::waiting) waiting.push_back(time);
  }
  Overlap found{without(joined(std::move(computing)), joined(std::move(waiting))), {}, 0, 0};
  communicating = joined(std::move(communicating));
  found.exposed = without(communicating, found.computing);
  found.communication = length_of(communicating);
  found.hidden = found.communication - length_of(found.exposed);
  return found;
}

double last_moment(std::span<const Record> records) {
  double last = 0;
  for (const Record& record : records) last = std::max({last, record.begin, record.end});
  return last;
}

}  // namespace shardgrad::picture
