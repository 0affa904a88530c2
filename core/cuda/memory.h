#pragma once
// Where the caching allocator gets the memory of a GPU, and pinned host memory. Asking the driver is slow and stops the
// GPU, so it is done for large chunks that are kept to the end; blocks are cut from them.

#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/free_list.h>

namespace shardgrad {

class CudaArena final : public MemorySource {
 public:
  enum class Kind { device, pinned_host };
  /// Chunks have at least `chunk` bytes.
  CudaArena(int device, Kind kind, size_t chunk) : device_(device), kind_(kind), chunk_(chunk) {}
  ~CudaArena() override;
  void* take(size_t bytes) override;
  void give(void* data, size_t bytes) noexcept override;
  /// Memory that the driver gives for this alone, with exactly `bytes` bytes, and takes back. Null: there is none.
  void* take_alone(size_t bytes);
  void give_alone(void* data) noexcept;
  int64_t requests() const override;
  std::string remedy() const override;

 private:
  struct Chunk {
    uintptr_t begin;
    size_t bytes;
  };
  void* ask(size_t bytes);
  bool grow(size_t bytes);
  void release_unused() noexcept;
  void hand_back(uintptr_t data) const noexcept;

  int device_;
  Kind kind_;
  size_t chunk_;
  mutable std::mutex mutex_;
  std::vector<Chunk> chunks_;
  FreeList free_;
  int64_t requests_ = 0;
};

/// For SHARDGRAD_CHECK=1: every block is one of the driver's and has no byte more than was asked for, so that tools
/// which watch the driver (compute-sanitizer) see where it ends. Slow.
class WatchedAllocator final : public Allocator {
 public:
  WatchedAllocator(Device device, std::shared_ptr<CudaArena> arena) : Allocator(device), arena_(std::move(arena)) {}
  MemoryBlock allocate(size_t bytes, Stream& stream) override;
  void free(MemoryBlock block, Stream& stream) noexcept override;
  void discard(MemoryBlock block) noexcept override;

 private:
  std::shared_ptr<CudaArena> arena_;
  std::atomic<size_t> live_{0};
};

}  // namespace shardgrad
