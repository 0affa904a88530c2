#pragma once
// A storage's identity is stable, its memory is not. Tensors, views and values saved for backward keep pointing at a
// storage while release() gives its memory back and materialize() brings memory again: that is how a unit's parameters
// come and go with no pointer swapped. Reading a released storage throws, naming its owner and the remedy.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/core/ref.h>

namespace shardgrad {

class Context;

class Storage final : public RefCounted {
 public:
  /// A storage of `bytes` bytes from `memory`, resident at once unless `released`.
  static Ref<Storage> make(size_t bytes, Ref<Allocator> memory, Tag tag, bool released = false);
  /// A resident storage on the memory of `base`, which stays its owner: released, it can only not be read through this
  /// one. For values that are out of date for a while. Its bytes are entered under base's tag alone.
  static Ref<Storage> window(Ref<Storage> base);
  /// The same for `whole`, memory that base's is a part of: what belongs to others is read through the window only.
  static Ref<Storage> window(Ref<Storage> base, MemoryBlock whole);
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
  Tag tag() const { return {category_, unit_}; }

  /// Gets memory for use on `stream`; its contents are undefined. Requires a released storage.
  void materialize(Stream& stream);
  /// Gives the memory back; `stream` is the last to use it. Requires a resident storage that nobody leases.
  void release(Stream& stream);

  /// The program's epoch when it was made. Epochs are few, so that a storage costs a look at their count and no more.
  uint64_t epoch() const { return epoch_; }
  /// Begins an epoch. What the calling thread has made, or got from another thread, is of an earlier one; what it makes
  /// from now on is not.
  static uint64_t begin_epoch();

  /// Counts writes that backward must know of: those that reached the value at byte `offset`. A value saved at one
  /// version is refused at another. Values side by side count together unless count_writes_apart told where they begin.
  uint64_t version(size_t offset = 0) const { return rare_ ? version_at(offset) : version_; }
  /// Counts a write to bytes [begin, end).
  void bump_version(size_t begin = 0, size_t end = SIZE_MAX);
  /// Values begin at these bytes, in rising order; each counts the writes to it alone from now on.
  void count_writes_apart(const std::vector<size_t>& begins);
  /// Takes the place of `old`: what was saved for backward of it is refused.
  void succeed(const Storage& old);
  /// Takes the place of others for a while: what was saved of one of them is refused for another, however often each
  /// was written to.
  void stand_in() { version_ |= uint64_t(1) << 63; }

  /// While leased by a holder of raw pointers (DLPack, a user's cache), release() throws and names the holder.
  void lease(std::string holder);
  void end_lease();
  /// How often it has been leased: whose writes no version counts.
  uint64_t leased() const { return rare_ ? rare_->leased : 0; }
  /// Who leases it, or null.
  const std::string* holder() const { return rare_ && rare_->leases > 0 ? &rare_->holder : nullptr; }

  /// Says who owns this storage and what to do when it is used while released.
  void set_note(std::string note) { rare().note = std::move(note); }
  const std::string* note() const { return rare_ && rare_->note ? &*rare_->note : nullptr; }
  /// Changes in place by anybody but its owner would be lost, and are refused with the note.
  void set_read_only() { rare().read_only = true; }
  bool read_only() const { return rare_ && rare_->read_only; }
  /// Values are on their way into it: until they are there it cannot be read.
  void set_arriving(bool on) { arriving_ = on; }
  bool readable() const { return resident_ && !arriving_; }
  /// Asked when a tensor is to be read that is not readable; may make it so. Empty: nobody is asked.
  void on_missing(std::function<void()> bring_back) { rare().bring_back = std::move(bring_back); }
  /// Whether it is readable, if need be after asking.
  bool bring_back() {
    if (!readable() && rare_ && rare_->bring_back) rare_->bring_back();
    return readable();
  }

 private:
  Storage(Context& context, size_t bytes, Ref<Allocator> memory, Tag tag);
  [[noreturn]] void throw_released() const;
  MemoryBlock allocate(Stream& stream);
  uint64_t version_at(size_t offset) const;
  struct Value {
    size_t begin;
    uint64_t version = 0;
  };
  // What few storages have. The others, of which an operation makes one, stay small.
  struct Rare {
    Ref<Storage> base = {};          // of a window
    MemoryBlock seen = {};           // through a window
    std::vector<Value> values = {};  // that count apart
    std::optional<std::string> note = {};
    std::function<void()> bring_back = {};
    bool read_only = false;
    std::atomic<int> leases = 0;  // ended by any thread
    uint64_t leased = 0;
    std::string holder = {};  // the last one to lease
  };
  Rare& rare() {
    if (!rare_) rare_ = std::make_unique<Rare>();
    return *rare_;
  }
  bool is_window() const { return rare_ && rare_->base; }
  uint16_t unit_;
  bool resident_ = false, arriving_ = false;
  Category::Kind category_;
  size_t bytes_;
  MemoryBlock block_{};
  Ref<Allocator> memory_;
  std::shared_ptr<Ledger> ledger_;
  uint64_t version_ = 0, epoch_;
  std::unique_ptr<Rare> rare_;
};

/// The stream that tensor memory of `device` is allocated and freed on now: the running stream, or compute.
Stream& current_stream(Device device);

}  // namespace shardgrad
