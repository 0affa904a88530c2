#pragma once
// The heap of a node: one shared memory with a region for each rank. A rank allocates only from its own region and
// reads those of the others, so a buffer is known to everybody by one number, its offset. Address space for all the
// memory the machine has is reserved at the start for each rank, for the many ranks of a large machine less
// (SharedHeap::region_bytes); pages are made as a region grows, and checked, so that running out of memory is an error
// with a name and never a crash.

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/free_list.h>
#include <shardgrad/dist/bootstrap/shared_memory.h>
#include <shardgrad/dist/transports/common_memory.h>

namespace shardgrad::dist {

/// Hands out pieces of one rank's region.
class HeapRegion final : public MemorySource {
 public:
  HeapRegion(std::shared_ptr<SharedMemory> memory, size_t begin, size_t limit)
      : memory_(std::move(memory)), begin_(begin), limit_(limit) {}
  void* take(size_t bytes) override;
  void give(void* data, size_t bytes) noexcept override;
  std::string remedy() const override;
  /// Makes pages until the region has `bytes` in all. False when memory is short.
  bool grow_to(size_t bytes);

 private:
  static size_t rounded(size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }
  static constexpr size_t kStep = 128;
  bool grow(size_t top);
  std::shared_ptr<SharedMemory> memory_;
  size_t begin_, limit_, top_ = 0;  // bytes [0, top_) of the region have pages
  FreeList free_;                   // offsets in the region
  std::mutex mutex_;
};

/// One rank's view of the heap.
class SharedHeap {
 public:
  SharedHeap(std::shared_ptr<SharedMemory> memory, int rank, int size);
  /// The heap's size for `size` ranks that use at most `limit` bytes each (0: region_bytes).
  static size_t heap_bytes(int size, size_t limit);
  /// Addresses for a rank of `size` on a machine with so much memory: all of it, while all regions together take no
  /// more than a quarter of a process's 128 TiB; with 256 ranks on 2 TiB 128 GiB, sixteen times what each has.
  static size_t region_bytes(int size, size_t machine);

  const std::shared_ptr<HeapRegion>& region() const { return region_; }
  /// True when [data, data + bytes) lies in the heap, so that all ranks see it.
  bool contains(const void* data, size_t bytes) const;
  uint64_t offset_of(const void* data) const { return uint64_t(static_cast<const std::byte*>(data) - memory_->data()); }
  std::byte* at(uint64_t offset) const { return memory_->data() + offset; }
  /// Shared ownership of the whole mapping, pointing at `offset`.
  std::shared_ptr<void> share(uint64_t offset) const { return {memory_, at(offset)}; }
  /// The place where the ranks of the world meet.
  std::shared_ptr<void> world_board() const { return share(0); }
  /// The offset of common memory (dist/transports/common_memory.h) in this rank's region for `holders` ranks; 0 when
  /// there is no room. It comes back when all have let go of it.
  uint64_t lend(size_t bytes, int holders);
  /// Memory for tensors of `device` (cpu, acc or sim) in this rank's region.
  Ref<Allocator> allocator(Device device);

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<HeapRegion> region_;
  std::map<DeviceKind, Ref<Allocator>> allocators_;
  std::map<CommonMemory::Head*, size_t> lent_;  // their bytes
};

/// The heap of this rank's node, or null with the reason, on all nodes alike. Called by all ranks of the bootstrap.
std::shared_ptr<SharedHeap> make_shared_heap(Bootstrap& bootstrap, size_t limit, std::string& reason);

}  // namespace shardgrad::dist
