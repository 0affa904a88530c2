#include <shardgrad/autograd/progress.h>

#include <shardgrad/core/rng.h>

namespace shardgrad {

Draws& Draws::operator=(const Draws& other) {
  std::unordered_map<uint64_t, uint64_t> counts = other.counts();
  std::lock_guard lock(mutex_);
  counts_.swap(counts);
  return *this;
}

uint64_t Draws::next(uint64_t stream) {
  std::lock_guard lock(mutex_);
  return counts_[stream]++;
}

std::unordered_map<uint64_t, uint64_t> Draws::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

uint64_t Progress::next_stream(uint64_t stream) {
  std::array<uint32_t, 4> mixed = philox(stream, step, draws.next(stream));
  return uint64_t(mixed[0]) << 32 | mixed[1];
}

}  // namespace shardgrad
