#include <shardgrad/core/recorder.h>

#include <chrono>

namespace shardgrad {

double Recorder::monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Recorder::now() const { return monotonic_seconds() - epoch_; }

uint64_t Recorder::begin(Record record) {
  std::lock_guard lock(mutex_);
  if (!tracing_ && records_.size() >= 2 * capacity_)  // drop in bulk: amortised constant time
    records_.erase(records_.begin(), records_.end() - std::ptrdiff_t(capacity_));
  record.sequence = next_++;
  record.begin = now();
  bytes_sent_ += record.bytes_sent;
  records_.push_back(std::move(record));
  return next_ - 1;
}

// Null where it has left the list, which has no gaps.
static auto with_sequence(auto& records, uint64_t sequence) {
  uint64_t first = records.empty() ? 0 : records[0].sequence, index = sequence - first;
  return sequence >= first && index < records.size() ? &records[index] : nullptr;
}

void Recorder::start(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  if (Record* record = with_sequence(records_, sequence)) record->begin = now();
}

void Recorder::end(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  if (Record* record = with_sequence(records_, sequence)) record->end = now();
}

void Recorder::instant(Record record) { end(begin(std::move(record))); }

std::vector<Record> Recorder::records() const {
  std::lock_guard lock(mutex_);
  return records_;
}

std::optional<Record> Recorder::record(uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  const Record* found = with_sequence(records_, sequence);
  return found ? std::optional(*found) : std::nullopt;
}

void Recorder::clear() {
  std::lock_guard lock(mutex_);
  records_.clear();
}

void Recorder::set_tracing(bool on) { tracing_ = on; }

int64_t Recorder::total_bytes_sent() const {
  std::lock_guard lock(mutex_);
  return bytes_sent_;
}

}  // namespace shardgrad
