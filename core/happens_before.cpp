#include <shardgrad/core/happens_before.h>

#include <algorithm>

namespace shardgrad {

HappensBefore::HappensBefore() { add_stream("host"); }

int HappensBefore::add_stream(std::string name) {
  std::lock_guard lock(mutex_);
  names_.push_back(std::move(name));
  clocks_.emplace_back();
  return int(names_.size()) - 1;
}

static uint64_t at(const VectorClock& clock, int id) { return size_t(id) < clock.size() ? clock[size_t(id)] : 0; }

static void merge(VectorClock& into, const VectorClock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void HappensBefore::split_at(uintptr_t address) {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return;
  --it;
  if (it->first == address || it->second.end <= address) return;
  Range upper = it->second;
  it->second.end = address;
  ranges_.emplace(address, std::move(upper));
}

void HappensBefore::check(const VectorClock& clock, const std::vector<Touch>& touches, int id, const char* label,
                          const char* verb) {
  for (const Touch& touch : touches) {
    if (touch.stream == id || at(clock, touch.stream) >= touch.tick) continue;
    fail_as(ErrorKind::internal, "race: '", label, "' on stream ", names_[size_t(id)], " is not ordered after '",
            touch.label, "' on stream ", names_[size_t(touch.stream)], ", which ", verb,
            " the same memory; an event wait is missing between the two streams");
  }
}

void HappensBefore::work(int id, const char* label, std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  VectorClock& clock = clocks_[size_t(id)];
  if (clock.size() < names_.size()) clock.resize(names_.size());
  if (id != 0) merge(clock, clocks_[0]);  // queueing comes after everything the host has done
  uint64_t tick = ++clock[size_t(id)];
  for (const Access& access : accesses) {
    if (access.bytes == 0) continue;
    uintptr_t begin = reinterpret_cast<uintptr_t>(access.begin), end = begin + access.bytes;
    split_at(begin);
    split_at(end);
    uintptr_t cursor = begin;
    for (auto it = ranges_.lower_bound(begin); cursor < end;) {
      if (it == ranges_.end() || it->first > cursor) {  // untouched so far
        uintptr_t stop = it == ranges_.end() ? end : std::min(end, it->first);
        it = ranges_.emplace(cursor, Range{stop, {}, {}}).first;
      }
      Range& range = it->second;
      check(clock, range.writes, id, label, "writes");
      if (access.write) {
        check(clock, range.reads, id, label, "reads");
        range.writes.assign(1, Touch{id, tick, label});
        range.reads.clear();
      } else {
        auto mine = std::ranges::find(range.reads, id, &Touch::stream);
        if (mine != range.reads.end())
          *mine = {id, tick, label};
        else
          range.reads.push_back({id, tick, label});
      }
      cursor = range.end;
      ++it;
    }
  }
}

VectorClock HappensBefore::record(int id) {
  std::lock_guard lock(mutex_);
  return clocks_[size_t(id)];
}

void HappensBefore::wait(int id, const VectorClock& clock) {
  std::lock_guard lock(mutex_);
  merge(clocks_[size_t(id)], clock);
}

void HappensBefore::forget(const void* begin, size_t bytes) {
  std::lock_guard lock(mutex_);
  uintptr_t first = reinterpret_cast<uintptr_t>(begin), last = first + bytes;
  split_at(first);
  split_at(last);
  ranges_.erase(ranges_.lower_bound(first), ranges_.lower_bound(last));
}

}  // namespace shardgrad
