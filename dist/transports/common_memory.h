#pragma once
// Memory that all ranks of a group see as one: each rank owns and writes its slice, and everybody reads the whole. An
// all-gather into it copies nothing, for every slice is where it belongs; it only waits until all slices are written:
//
//     rank 0 writes slice 0, rank 1 writes slice 1
//     all_gather(whole, own slice)       both are written: both ranks read the whole
//     barrier                            both have read it: each may write its slice again
//
// Ranks of one node can have it, in the node's heap. One of them lends the memory, and takes it back when all have let
// go of it.

#include <atomic>
#include <cstddef>
#include <memory>

#include <shardgrad/core/allocator.h>

namespace shardgrad::dist {

class CommonMemory {
 public:
  /// What lies before the slices.
  struct alignas(128) Head {
    std::atomic<int> holders{0};  ///< ranks that have not let go
  };
  static size_t bytes_of(int size, size_t slice_bytes) { return sizeof(Head) + size_t(size) * slice_bytes; }

  /// `memory`: a Head and `size` slices, which all ranks see; null on device meta, where blocks have no memory.
  CommonMemory(std::shared_ptr<Head> memory, int rank, int size, size_t slice_bytes)
      : memory_(std::move(memory)), rank_(rank), size_(size), slice_bytes_(slice_bytes) {}
  ~CommonMemory() {
    if (memory_) memory_->holders.fetch_sub(1);
  }
  CommonMemory(const CommonMemory&) = delete;

  MemoryBlock whole() const { return {slice_of(0), size_t(size_) * slice_bytes_}; }
  MemoryBlock slice() const { return {slice_of(rank_), slice_bytes_}; }

 private:
  std::byte* slice_of(int rank) const {
    return memory_ ? reinterpret_cast<std::byte*>(memory_.get() + 1) + size_t(rank) * slice_bytes_ : nullptr;
  }
  std::shared_ptr<Head> memory_;
  int rank_, size_;
  size_t slice_bytes_;
};

/// Hands out this rank's slice, once; `common` lives as long.
Ref<Allocator> slice_allocator(Device device, std::shared_ptr<CommonMemory> common);

}  // namespace shardgrad::dist
