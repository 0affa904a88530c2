#pragma once
// A device's memory where steps may be captured (core/capture.h). A captured step has the addresses that it was
// recorded with, so nobody else may get them while it can be replayed:
//
//   - While a thread captures it allocates from a pool that grows and gives nothing back.
//   - A block of the device's own memory that the step uses, such as a batch or a parameter, is held back when it is
//     freed, until the capture goes.

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <shardgrad/core/allocator.h>

namespace shardgrad {

class CaptureMemory final : public Allocator {
 public:
  /// `own` is the device's memory; pools take theirs from `source`.
  CaptureMemory(Ref<Allocator> own, Reuse reuse, std::shared_ptr<MemorySource> source, size_t large = 0);
  ~CaptureMemory() override;
  MemoryBlock allocate(size_t bytes, Stream& stream) override;
  void free(MemoryBlock block, Stream& stream) noexcept override;
  void discard(MemoryBlock block) noexcept override;

  /// A new pool's number: the calling thread, which captures, allocates from it.
  size_t open();
  /// The step uses this memory.
  void note(size_t pool, std::span<const Access> accesses);
  bool uses(size_t pool, const MemoryBlock& block) const;
  /// Whether it is the pool's.
  bool has(size_t pool, const void* data) const;
  /// The bytes of a block that the step has used and freed, and not got from the pool; 0 where there is none.
  size_t dropped(size_t pool) const;
  /// The capture is over: blocks that it freed and does not use are free. What is kept for its replays is in the ledger
  /// from now on, as step_graph.
  void close(size_t pool, Stream& stream) noexcept;
  /// The capture goes, and nothing of it runs any more.
  void end(size_t pool, Stream& stream) noexcept;

 private:
  class Source;
  struct Pool;
  Pool& at(size_t pool) const;
  static void hold(Pool& pool, const MemoryBlock& block);
  void tidy() noexcept;
  Ref<Allocator> own_;
  Reuse reuse_;
  std::shared_ptr<MemorySource> source_;
  size_t large_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Pool>> pools_;  // those of captures that went, too, while blocks of theirs live on
  std::atomic<bool> any_{false};
};

}  // namespace shardgrad
