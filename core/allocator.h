#pragma once
// Stream-ordered memory. A block freed on a stream may be handed out again at once for use on the same stream: its
// order keeps the uses apart. For another stream the allocator waits for the free to be reached:
//
//     free(block, compute)        records E on compute
//     allocate(bytes, comm)       may return the same memory after comm.wait(E)
//
// So reuse is decided when work is queued, and no caller counts uses. Most memory is freed on the stream that it was
// allocated for, and used there again: E is a mark then (Stream::mark), which costs a GPU nothing.

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

struct MemoryBlock {
  void* data = nullptr;
  size_t bytes = 0;                ///< as asked for
  const Stream* stream = nullptr;  ///< that it was allocated for, if somebody noted it
};

class Allocator : public RefCounted {
 public:
  explicit Allocator(Device device) : device_(device) {}
  /// Uninitialised memory for use on `stream`. bytes > 0. Throws OutOfMemory when there is none.
  virtual MemoryBlock allocate(size_t bytes, Stream& stream) = 0;
  /// Gives memory back; `stream` is the last one to use it.
  virtual void free(MemoryBlock block, Stream& stream) noexcept = 0;
  /// Gives memory back when no stream is left that could use it.
  virtual void discard(MemoryBlock block) noexcept = 0;
  /// Bytes that it keeps and that are no block's.
  virtual size_t kept() const { return 0; }
  /// Gives what nobody uses any more back to where it came from.
  virtual void trim() noexcept {}
  Device device() const { return device_; }

 private:
  Device device_;
};

/// How a caching allocator treats a free block whose last use has not been reached yet.
enum class Reuse {
  when_done,  ///< host memory for inline compute: take other memory instead of waiting
  ordered,    ///< asynchronous devices: take it, and make the stream wait
  poisoned,   ///< likewise, for emulated devices: freed memory is poisoned in stream order
};

/// Where a caching allocator gets its memory: the operating system, or a region set aside for a purpose.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least `bytes` bytes aligned to kAlignment, or null when there is no more. Safe to call from several threads.
  virtual void* take(size_t bytes) = 0;
  /// Any part of what was taken may be given back, also one that spans neighbouring pieces.
  virtual void give(void* data, size_t bytes) noexcept = 0;
  /// Takes of large blocks ask for at least this.
  virtual size_t granularity() const { return 0; }
  /// How often memory was asked of the operating system or the driver. A training step must not, after the first.
  virtual int64_t requests() const { return 0; }
  /// What to do when there is no more; ends an error message.
  virtual std::string remedy() const { return ""; }
};
std::shared_ptr<MemorySource> system_memory();

/// Keeps freed blocks and hands them out again: small ones by size class, those of 1 MiB or more cut from chunks that
/// grow together again (chunk_pool.h). The source is asked when nothing fits. The memory held stays within 1.1 times
/// the largest sum of live blocks plus 16 MiB, and what large blocks lose to fragmentation. When the source has no
/// more, the caller waits for the uses that freed blocks still have, which then go back to it.
Ref<Allocator> make_caching_allocator(Device device, Reuse reuse,
                                      std::shared_ptr<MemorySource> source = system_memory());
/// The same for a captured step (capture_memory.h): it asks the source where nothing fits, waits for nobody and keeps
/// all but for trim(). `large`: bytes from which on blocks are cut from chunks; 0: as above.
Ref<Allocator> make_growing_allocator(Device device, Reuse reuse, std::shared_ptr<MemorySource> source, size_t large);
/// No memory is left. Whoever the memory is for adds itself on the way up: the storage its owner and rank, the tensor
/// its operation, dtype and shape.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& what) : Error(ErrorKind::input, what) {}
};
/// Throws OutOfMemory: what was asked for, what is in use, the source's remedy and the ledger's largest owners.
[[noreturn]] void throw_out_of_memory(size_t bytes, Device device, size_t in_use, const MemorySource& source);
/// For device meta: blocks without memory.
Ref<Allocator> make_null_allocator(Device device);

}  // namespace shardgrad
