#include <shardgrad/picture/replay.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/overlap.h>

namespace shardgrad::picture {

namespace {

/// One step, from its first record on.
class Replay {
 public:
  explicit Replay(const Cost& cost) : cost_(cost) {}

  /// `next`: the next computation, if there is one.
  void compute(Record& record, const Record* next) {
    close_before(record.begin);
    bool contains = next && next->begin < record.end;
    if (contains)
      open_.push_back({&record, record.end});
    else
      record.end = now_ + seconds_of(record);
    record.begin = now_;
    if (!contains) now_ = record.end;
  }
  void wait(Record& record) {
    close_before(record.begin);
    record.begin = now_;
    if (auto call = ends_.find({record.group, record.number}); call != ends_.end()) now_ = std::max(now_, call->second);
    record.end = now_;
  }
  void send(Record& record) {
    double &free = lanes_[record.lane], &before = units_[record.unit];
    record.begin = std::max({now_, free, record.unit.empty() ? 0 : before});
    free = before = record.end = record.begin + seconds_of(record);
    if (record.number) ends_[{record.group, record.number}] = record.end;
  }
  void pass(Record& record) {
    close_before(record.begin);
    record.begin = record.end = now_;
  }
  void close_before(double moment) {
    for (; !open_.empty() && open_.back().end <= moment; open_.pop_back()) open_.back().record->end = now_;
  }

 private:
  double seconds_of(const Record& record) const {
    double seconds = cost_(record);
    SG_CHECK(std::isfinite(seconds) && seconds >= 0, "picture: ", record.op, " of unit '", record.unit, "' is to take ",
             seconds, " seconds");
    return seconds;
  }
  struct Open {
    Record* record;
    double end;  // by the clock
  };
  const Cost& cost_;
  double now_ = 0;  // how far computation is
  std::vector<Open> open_;
  std::map<std::string, double> lanes_, units_;  // until when they send
  std::map<std::pair<uint64_t, uint64_t>, double> ends_;
};

}  // namespace

std::vector<Record> replayed(std::vector<Record> records, const Cost& cost) {
  std::ranges::stable_sort(records, {}, &Record::sequence);
  std::vector<Record*> computing;
  for (Record& record : records) {
    SG_CHECK(record.begin <= record.end, "picture: '", record.op, "' of unit '", record.unit, "' has not ended");
    if (doing(record) == Doing::computing) computing.push_back(&record);
  }
  Replay replay(cost);
  size_t next = 0;
  for (Record& record : records) switch (doing(record)) {
      case Doing::computing:
        ++next;
        replay.compute(record, next < computing.size() ? computing[next] : nullptr);
        break;
      case Doing::waiting:
        replay.wait(record);
        break;
      case Doing::communicating:
        replay.send(record);
        break;
      case Doing::nothing:
        replay.pass(record);
    }
  replay.close_before(INFINITY);
  return records;
}

}  // namespace shardgrad::picture
