#pragma once
// A storage's identity is stable, its memory is not. Tensors, views and values saved for backward keep pointing at a
// storage while release() gives its memory back and materialize() brings memory again: that is how a unit's parameters
// come and go with no pointer swapped. Reading a released storage throws, naming its owner and the remedy.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/core/ref.h>

namespace shardgrad {

class Storage final : public RefCounted {
 public:
  /// A storage of `bytes` bytes from `memory`, resident at once unless `released`.
  static Ref<Storage> make(size_t bytes, Ref<Allocator> memory, Tag tag, bool released = false);
  /// A resident storage on the memory of `base`, which stays its owner: released, it can only not be read through this
  /// one. For values that are out of date for a while. Its bytes are entered under base's tag alone.
  static Ref<Storage> window(Ref<Storage> base);
  /// The same for `whole`, memory that base's is a part of: what belongs to others is read through the window only.
  static Ref<Storage> window(Ref<Storage> base, Block whole);
  ~Storage() override;

  /// The memory. Throws Error(input) with the owner's note when released. On device meta: null.
  void* data() const {
    if (!resident_) [[unlikely]]
      throw_released();
    return block_.data;
  }
  bool resident() const { return resident_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return memory_->device(); }
  Tag tag() const { return tag_; }

  /// Gets memory for use on `stream`; its contents are undefined. Requires a released storage.
  void materialize(Stream& stream);
  /// Gives the memory back; `stream` is the last to use it. Requires a resident storage that nobody leases.
  void release(Stream& stream);

  /// Grows with every storage that a thread makes: of two made by one thread, the later has the larger number.
  uint64_t serial() const { return serial_; }
  static uint64_t next_serial();

  /// Counts writes that backward must know of. A value saved at one version is refused at another.
  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

  /// While leased by a holder of raw pointers (DLPack, a user's cache), release() throws and names the holder.
  void lease(std::string holder);
  void end_lease();

  /// Says who owns this storage and what to do when it is used while released.
  void set_note(std::string note) { note_ = std::make_unique<std::string>(std::move(note)); }
  const std::string* note() const { return note_.get(); }

 private:
  Storage(size_t bytes, Ref<Allocator> memory, Tag tag);
  [[noreturn]] void throw_released() const;
  Block allocate(Stream& stream);
  size_t bytes_;
  Block block_{};
  Ref<Allocator> memory_;
  Ref<Storage> base_;  // of a window
  Block seen_{};       // through a window
  std::shared_ptr<Ledger> ledger_;
  uint64_t version_ = 0, serial_;
  Tag tag_;
  bool resident_ = false;
  int leases_ = 0;
  std::unique_ptr<std::string> note_, holder_;
};

/// The stream that tensor memory of `device` is allocated and freed on now: the running stream, or compute.
Stream& current_stream(Device device);

}  // namespace shardgrad
