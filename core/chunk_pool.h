#pragma once
// The large free blocks of a caching allocator. Blocks are cut from the smallest chunk they fit in, and neighbours grow
// together again when they come back, so that buffers of different sizes share memory at different times:
//
//     | gathered 10 MiB | gathered 10 MiB |            forward
//     | gradient shards 5 + 5 + 5 | free  |            optimizer step
//
// A free chunk remembers the last stream that used it. Only chunks of the same stream grow together, so what is handed
// out follows from the order of calls and not from how far the streams have come.

#include <cstddef>
#include <map>
#include <set>

#include <shardgrad/core/allocator.h>

namespace shardgrad {

class ChunkPool {
 public:
  static constexpr size_t kGrain = 4096;  ///< bytes; every block is a multiple of it

  explicit ChunkPool(Reuse reuse) : reuse_(reuse) {}

  /// `bytes` for use on `stream`, or null when no chunk fits. `wait` is set to what the stream has to wait for. Work
  /// that is `running` on the stream gets only what nobody will use any more.
  void* take(size_t bytes, const Stream& stream, bool running, Event& wait);
  /// Gives a block back that `stream` used last; a null event: its last use is over.
  void put(void* data, size_t bytes, const Stream* stream, Event freed);
  /// Adds memory that nobody has used.
  void add(void* data, size_t bytes);
  /// Gives unused chunks back to the source, largest first, while more than `keep` bytes are held. `forget` sees each.
  template <class Forget> void shrink(size_t keep, MemorySource& source, const Forget& forget) {
    while (bytes_ > keep) {
      auto chunk = largest_unused();
      if (chunk == free_.end()) return;
      auto [data, bytes] = std::pair(chunk->first, chunk->second.bytes);
      forget(data, bytes);
      remove(chunk);
      source.give(data, bytes);
    }
  }
  size_t bytes() const { return bytes_; }
  /// Adds the events that chunks still wait for.
  void collect_pending(std::vector<Event>& events) const;

 private:
  struct Chunk {
    size_t bytes;
    const Stream* stream;  // the last to use it; null: no use is pending
    Event freed;
  };
  using Chunks = std::map<std::byte*, Chunk>;
  void forget_done();
  Chunks::iterator merge(Chunks::iterator left);
  Chunks::iterator largest_unused();
  void remove(Chunks::iterator chunk);

  Reuse reuse_;
  Chunks free_;
  size_t bytes_ = 0;
};

}  // namespace shardgrad
