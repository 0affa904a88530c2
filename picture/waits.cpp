#include <shardgrad/picture/waits.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/overlap.h>

namespace shardgrad::picture {

namespace {

struct Arrival {
  size_t who;
  double begin, end;
};
using Arrivals = std::map<std::pair<uint64_t, uint64_t>, std::vector<Arrival>>;  // by group and number

Arrivals calls_of(const std::vector<RankRecords>& ranks) {
  Arrivals calls;
  for (size_t who = 0; who < ranks.size(); ++who)
    for (const Record& record : ranks[who].records) {
      if (record.number == 0 || doing(record) != Doing::communicating) continue;
      double end = record.end < 0 ? std::numeric_limits<double>::infinity() : ranks[who].zero + record.end;
      calls[{record.group, record.number}].push_back({who, ranks[who].zero + record.begin, end});
    }
  return calls;
}

void count(const std::vector<Arrival>& arrivals, Waits& waits) {
  auto last = std::ranges::max_element(arrivals, {}, &Arrival::begin);
  for (const Arrival& each : arrivals) {
    double until = std::min(last->begin, std::max(each.begin, each.end));
    if (each.who != last->who) waits.seconds[each.who][last->who] += until - each.begin;
  }
  ++waits.calls;
}

}  // namespace

Waits who_waited(const std::vector<RankRecords>& ranks) {
  Waits waits;
  std::set<int> seen;
  for (const RankRecords& rank : ranks) {
    SG_CHECK(seen.insert(rank.rank).second, "picture: the records of rank ", rank.rank, " are given twice");
    waits.ranks.push_back(rank.rank);
  }
  waits.seconds.assign(ranks.size(), std::vector<double>(ranks.size()));
  Arrivals calls = calls_of(ranks);
  std::map<uint64_t, size_t> members;  // of each group: the ranks that have any record of it
  for (const auto& [call, arrivals] : calls) members[call.first] = std::max(members[call.first], arrivals.size());
  for (const auto& [call, arrivals] : calls)
    if (arrivals.size() == members[call.first] && arrivals.size() > 1)
      count(arrivals, waits);
    else
      ++waits.left_out;
  return waits;
}

}  // namespace shardgrad::picture
