#include <shardgrad/autograd/progress.h>

#include <shardgrad/core/rng.h>

namespace shardgrad {

uint64_t Progress::next_stream(uint64_t stream) {
  std::array<uint32_t, 4> mixed = philox(stream, step, draws[stream]++);
  return uint64_t(mixed[0]) << 32 | mixed[1];
}

}  // namespace shardgrad
