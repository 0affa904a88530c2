#include <shardgrad/core/chunk_pool.h>

#include <iterator>
#include <tuple>

#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {

void* ChunkPool::take(size_t bytes, const Stream& stream, bool running, Event& wait) {
  if (reuse_ == Reuse::when_done) forget_done();
  auto cost = [&](Chunks::iterator chunk) {
    bool foreign = chunk->second.stream && chunk->second.stream != &stream;
    return std::tuple(foreign, chunk->second.bytes);
  };
  auto usable = [&](Chunks::iterator chunk) {
    const auto& [size, last, freed] = chunk->second;
    if (size < bytes) return false;
    if (running) return !last || freed.done();
    return reuse_ != Reuse::when_done || !last || last == &stream;
  };
  auto best = free_.end();
  for (auto chunk = free_.begin(); chunk != free_.end(); ++chunk)
    if (usable(chunk) && (best == free_.end() || cost(chunk) < cost(best))) best = chunk;
  if (best == free_.end()) return nullptr;
  auto [data, chunk] = *best;
  if (chunk.stream && chunk.stream != &stream) wait = chunk.freed;
  remove(best);
  if (chunk.bytes > bytes) {
    free_.emplace(data + bytes, Chunk{chunk.bytes - bytes, chunk.stream, chunk.freed});
    bytes_ += chunk.bytes - bytes;
  }
  return data;
}

void ChunkPool::put(void* data, size_t bytes, const Stream* stream, Event freed) {
  auto chunk = free_.emplace(static_cast<std::byte*>(data), Chunk{bytes, stream, {}}).first;
  bytes_ += bytes;
  if (chunk != free_.begin()) chunk = merge(std::prev(chunk));
  merge(chunk);
  chunk->second.freed = std::move(freed);  // the stream's latest use is the last of them all
}

void ChunkPool::add(void* data, size_t bytes) { put(data, bytes, nullptr, {}); }

void ChunkPool::collect_pending(std::vector<Event>& events) const {
  for (const auto& [data, chunk] : free_)
    if (chunk.stream && !chunk.freed.done()) events.push_back(chunk.freed);
}

// Joins `left` with its right neighbour if it may; returns the chunk where what was right of it lies now.
ChunkPool::Chunks::iterator ChunkPool::merge(Chunks::iterator left) {
  auto right = std::next(left);
  if (right == free_.end() || left->first + left->second.bytes != right->first ||
      left->second.stream != right->second.stream)
    return right == free_.end() ? left : right;
  left->second.bytes += right->second.bytes;
  free_.erase(right);
  return left;
}

// Host memory: chunks whose last use is over by now are like new.
void ChunkPool::forget_done() {
  bool found = false;
  for (auto& [data, chunk] : free_)
    if (chunk.stream && chunk.freed.done()) {
      if (Context* context = Context::current(); context && context->checker() && chunk.freed.state())
        context->checker()->host_wait(chunk.freed.state()->clock);  // whoever gets it next comes after that use
      chunk.stream = nullptr;
      chunk.freed = {};
      found = true;
    }
  if (!found) return;
  for (auto chunk = free_.begin(); std::next(chunk) != free_.end();) chunk = merge(chunk);
}

ChunkPool::Chunks::iterator ChunkPool::largest_unused() {
  auto largest = free_.end();
  for (auto chunk = free_.begin(); chunk != free_.end(); ++chunk) {
    if (chunk->second.stream && !chunk->second.freed.done()) continue;
    if (largest == free_.end() || chunk->second.bytes > largest->second.bytes) largest = chunk;
  }
  return largest;
}

void ChunkPool::remove(Chunks::iterator chunk) {
  bytes_ -= chunk->second.bytes;
  free_.erase(chunk);
}

}  // namespace shardgrad
