// From records to moves.

#include <algorithm>
#include <map>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/blocks.h>

namespace shardgrad::picture {

namespace {

struct Call {
  Record record;           // its first rank's
  size_t place = 0;        // among the moves of that rank
  int64_t bytes_sent = 0;  // by all of its ranks
  std::vector<int> ranks;
};

bool moves_blocks(const Record& record) {
  return record.op == "all_gather" || record.op == "reduce_scatter" || record.op == "all_reduce";
}

// Whether its ranks have sent together what so many send: else some have no record of it.
bool is_whole(const Call& call) {
  int64_t times = call.record.op == "all_reduce" ? 2 : 1, others = int64_t(call.ranks.size()) - 1;
  return call.bytes_sent == times * others * call.record.elements * int64_t(size_of(call.record.dtype));
}

class Calls {
 public:
  void add(const RankRecords& rank) {
    std::vector<Record> records = rank.records;
    std::ranges::stable_sort(records, {}, &Record::sequence);
    size_t place = 0;
    for (const Record& record : records) {
      if (record.number == 0 || record.op == "wait") continue;
      bool moves = moves_blocks(record);
      if (!moves && record.bytes_sent > 0) others_.insert({record.group, record.number});
      if (moves) join(rank.rank, record, place++);
    }
  }
  Moves moves() const;

 private:
  void join(int rank, const Record& record, size_t place) {
    auto [found, is_new] = calls_.try_emplace({record.group, record.number}, Call{record, place, 0, {}});
    Call& call = found->second;
    SG_CHECK(call.record.op == record.op, "picture: what rank ", call.ranks.front(), " calls ", call.record.op, " is ",
             record.op, " on rank ", rank);
    call.ranks.push_back(rank);
    call.bytes_sent += record.bytes_sent;
  }
  std::map<std::pair<uint64_t, uint64_t>, Call> calls_;
  std::set<std::pair<uint64_t, uint64_t>> others_;
};

Moves Calls::moves() const {
  Moves found{{}, others_.size()};
  std::vector<Call> calls;
  for (const auto& [key, call] : calls_) calls.push_back(call);
  std::ranges::stable_sort(calls, {}, [](const Call& call) { return std::pair(call.place, call.ranks.front()); });
  const Call* before = nullptr;
  for (const Call& call : calls) {
    const Record& record = call.record;
    if (!is_whole(call)) {
      ++found.left_out;
      continue;
    }
    bool beside =
        before && before->place == call.place && before->record.op == record.op && before->record.unit == record.unit;
    if (!beside)
      found.moves.push_back({record.op, record.unit, record.phase, {}, call.bytes_sent / int64_t(call.ranks.size())});
    found.moves.back().groups.push_back(call.ranks);
    before = &call;
  }
  return found;
}

}  // namespace

Moves moves_of(const std::vector<RankRecords>& ranks) {
  Calls calls;
  for (const RankRecords& rank : ranks) calls.add(rank);
  return calls.moves();
}

}  // namespace shardgrad::picture
