#pragma once
// Stream-ordered memory. A block freed on a stream may be handed out again at once for use on the same stream: its
// order keeps the uses apart. For another stream the allocator waits for the free to be reached:
//
//     free(block, compute)        records E on compute
//     allocate(bytes, comm)       may return the same memory after comm.wait(E)
//
// So reuse is decided when work is queued, and no caller counts uses.

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <shardgrad/core/device.h>
#include <shardgrad/core/ref.h>
#include <shardgrad/core/stream.h>

namespace shardgrad {

inline constexpr size_t kAlignment = 64;  ///< bytes; every block begins at a multiple

struct Block {
  void* data = nullptr;
  size_t bytes = 0;  ///< as asked for
};

class Allocator : public RefCounted {
 public:
  explicit Allocator(Device device) : device_(device) {}
  /// Uninitialised memory for use on `stream`. bytes > 0. Throws Error when there is none.
  virtual Block allocate(size_t bytes, Stream& stream) = 0;
  /// Gives memory back; `stream` is the last one to use it.
  virtual void free(Block block, Stream& stream) noexcept = 0;
  /// Gives memory back when no stream is left that could use it.
  virtual void discard(Block block) noexcept = 0;
  Device device() const { return device_; }

 private:
  Device device_;
};

/// How a caching allocator treats a free block whose last use has not been reached yet.
enum class Reuse {
  when_done,  ///< host memory for inline compute: take other memory instead of waiting
  ordered,    ///< asynchronous devices: take it, and make the stream wait; freed memory is poisoned in stream order
};

/// Where a caching allocator gets its memory: the operating system, or a region set aside for a purpose.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least `bytes` bytes aligned to kAlignment, or null when there is no more. Safe to call from several threads.
  virtual void* take(size_t bytes) = 0;
  virtual void give(void* data, size_t bytes) noexcept = 0;
  /// What to do when there is no more; ends an error message.
  virtual std::string remedy() const { return ""; }
};
std::shared_ptr<MemorySource> system_memory();

/// Keeps freed blocks in size classes and hands them out again; asks the source only when none fits. The memory it
/// holds stays within 1.1 times the largest sum of live blocks plus 16 MiB.
Ref<Allocator> make_caching_allocator(Device device, Reuse reuse,
                                      std::shared_ptr<MemorySource> source = system_memory());
/// For device meta: blocks without memory.
Ref<Allocator> make_null_allocator(Device device);

}  // namespace shardgrad
