#include <shardgrad/core/recorder.h>

#include <algorithm>
#include <chrono>

namespace shardgrad {

double Recorder::monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Recorder::now() const { return monotonic_seconds() - epoch_; }

uint64_t Recorder::begin(Record record) {
  std::lock_guard lock(mutex_);
  if (step_is_over_ && record.phase != "step") {
    step_begin_ = next_;
    step_is_over_ = false;
  }
  if (!tracing_) forget();
  record.sequence = next_++;
  record.begin = now();
  bytes_sent_ += record.bytes_sent;
  records_.push_back(std::move(record));
  return next_ - 1;
}

// In bulk: amortised constant time.
void Recorder::forget() {
  size_t of_step = std::min(size_t(next_ - step_begin_), steps_ ? most_of_a_step_ : most_of_a_step_ / 4);
  size_t kept = std::max(capacity_, of_step);
  if (records_.size() >= 2 * kept) records_.erase(records_.begin(), records_.end() - std::ptrdiff_t(kept));
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

void Recorder::end_step() {
  std::lock_guard lock(mutex_);
  step_is_over_ = steps_ = true;
}

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
