#pragma once
// Where the caching allocator gets the memory of a GPU, and pinned host memory. Asking the driver is slow and stops the
// GPU, so it is done for large chunks that are kept to the end; blocks are cut from them.

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <vector>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/free_list.h>

namespace shardgrad {

class CudaArena final : public MemorySource {
 public:
  enum class Kind { device, pinned_host };
  /// Chunks have at least `chunk` bytes; with 0 every block is asked of the driver by itself, so that tools which watch
  /// the driver (compute-sanitizer) see its bounds.
  CudaArena(int device, Kind kind, size_t chunk) : device_(device), kind_(kind), chunk_(chunk) {}
  ~CudaArena() override;
  void* take(size_t bytes) override;
  void give(void* data, size_t bytes) noexcept override;
  bool divisible() const override { return chunk_ > 0; }
  int64_t requests() const override;
  std::string remedy() const override;

 private:
  struct Chunk {
    uintptr_t begin;
    size_t bytes;
  };
  bool grow(size_t bytes);
  void release_unused() noexcept;
  cudaError_t ask(void** data, size_t bytes) const;
  void hand_back(uintptr_t data) const noexcept;

  int device_;
  Kind kind_;
  size_t chunk_;
  mutable std::mutex mutex_;
  std::vector<Chunk> chunks_;
  FreeList free_;
  int64_t requests_ = 0;
};

}  // namespace shardgrad
