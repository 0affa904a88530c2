#pragma once
// Sums over a range in a fixed order: chunks of one size, their sums added one after the other.

#include <optional>

#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {

inline constexpr int64_t kSumChunk = 8192;

/// Σ of chunk(begin, n) -> double over chunks of [0, count). The chunks, not the threads, decide the order. An item
/// costs as much as `cost` cheap elements.
template <class Chunk>
double sum_chunks(int threads, int64_t count, const Chunk& chunk, int64_t size = kSumChunk, int64_t cost = 1) {
  int64_t chunks = (count + size - 1) / size, grain = grain_for(size * cost);
  double total = 0;
  if (threads == 1 || chunks < 2 * grain) {
    for (int64_t i = 0; i < count; i += size) total += chunk(i, std::min(size, count - i));
    return total;
  }
  Workspace workspace(kCpu, size_t(chunks) * sizeof(double));
  double* sums = workspace.as<double>();
  parallel_for(threads, chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = chunk(i * size, std::min(size, count - i * size));
  });
  for (int64_t i = 0; i < chunks; ++i) total += sums[i];
  return total;
}

}  // namespace shardgrad::cpu
