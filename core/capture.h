#pragma once
// A step's work on a device, recorded once and run again many times: a CUDA graph. core/step_graph.h is for users; this
// is the seam between it, the devices, and those who have numbers that change from step to step.
//
// While a thread captures, what it queues on the device's compute stream, and on streams that wait for it, is recorded
// and does not run. A replay runs it all, in the order of the streams, with the same addresses and the same numbers:
//
//   - Memory is allocated from a pool of the capture (core/capture_memory.h), which nobody else gets.
//   - Numbers that are others in each step lie in device memory. Who launches a kernel with one asks for it here, and
//     says what it is at each replay; all of them are sent by one copy before it.
//   - What the host has to do in each step, such as counting it, is said here likewise, and so is what must be as it
//     was for a replay to be the step.
//   - What the host would have to know of the step while it runs is refused where it is asked for. Who changes
//     something of the host in a step says how it is taken back, for a step that is refused is not made.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <shardgrad/core/device.h>
#include <shardgrad/core/stream.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::Category {
inline constexpr Kind step_graph = named<"step_graph">;  ///< what a capture keeps for its replays
}

namespace shardgrad {

class Backend;
class CaptureMemory;

/// A step cannot be captured, or a replay would not be the step any more.
class CaptureRefused final : public Error {
 public:
  explicit CaptureRefused(const std::string& what) : Error(ErrorKind::input, what) {}
};

/// Throws CaptureRefused: `what` cannot be part of a captured step, and what to do. Only while the thread captures.
[[noreturn]] void refuse_in_capture(const std::string& what, const std::string& remedy);

class Capture {
 public:
  /// The calling thread's, while it captures; else null.
  static Capture* current() { return detail::capture; }
  virtual ~Capture();
  Capture(const Capture&) = delete;
  Device device() const { return device_; }
  /// Of CaptureMemory.
  size_t pool() const { return *pool_; }

  // --- for core/step_graph.h ---

  /// Waits until the device has done all it was given. From now on the calling thread captures, until one of the other
  /// two. Throws Error(input) where it does so already.
  void begin();
  /// What was recorded can be replayed.
  void end();
  /// What was recorded is forgotten, and what the step has changed on the host taken back.
  void give_up() noexcept;
  /// Queues the step once more. The first one is the step that was captured, whose numbers are known.
  void replay();
  /// Waits for the last replay and gives the memory back; before the end of an object of a derived class.
  void let_go() noexcept;

  /// Calls `hook` when a capture begins, whichever it is, before the step has changed anything; made while the program
  /// loads.
  struct AtBegin {
    explicit AtBegin(void (*hook)(Capture& capture));
  };

  // --- for who launches ---

  /// `count` numbers of 8 bytes in memory of the device, one lot's behind those of the one before: what is at `now`,
  /// and in each replay but the first what `write` writes.
  Tensor numbers(const void* now, int64_t count, DType dtype, std::function<void(std::byte*)> write);
  /// Likewise numbers that have a key: who asks for the same key again gets the same, which are written again then. An
  /// empty `write` is for who knows that somebody has asked before; throws Error(input) where nobody has.
  Tensor numbers_of(uint64_t key, const void* now, int64_t count, DType dtype, std::function<void(std::byte*)> write);
  /// Throws Error(input) where a replay would not be the step any more, and why: before anything of that replay is
  /// done.
  void check_replay(std::function<void()> check) { checks_.push_back(std::move(check)); }
  /// The host does this before each replay but the first, in the order in which it was said, numbers included.
  void before_replay(std::function<void()> work) { before_.push_back(std::move(work)); }
  /// Likewise when the replay is queued.
  void after_replay(std::function<void()> work) { after_.push_back(std::move(work)); }
  /// Looks at what the step leaves, once all of it is recorded. May refuse it.
  void at_end(std::function<void()> look) { at_end_.push_back(std::move(look)); }
  /// Takes back what the step has changed on the host, the last change first, if it is refused.
  void on_give_up(std::function<void()> undo) { undo_.push_back(std::move(undo)); }
  /// `object` goes with the capture at the earliest: the step uses what it holds.
  void keep(Ref<RefCounted> object) { kept_alive_.push_back(std::move(object)); }
  /// Whether nobody has asked for `key`, which stays until the step is recorded, in this step.
  bool is_first(const void* key) { return met_.insert(key).second; }
  /// The step makes `object`, which a replay neither makes nor looks at.
  void note_made(const void* object) { made_.insert(object); }
  bool has_made(const void* object) const { return made_.contains(object); }
  /// Whether the step has allocated this memory, and not found it.
  bool has_allocated(const Storage& storage) const;
  /// Whether work that was recorded so far uses this memory.
  bool uses(const Storage& storage) const;
  /// A write that backward must know of (Storage::bump_version): each replay makes it as well, and it is counted then.
  void note_write(Ref<Storage> storage, size_t begin, size_t end);

  // --- for streams ---

  /// Whether the stream's work is recorded.
  bool has(const Stream& stream) const;
  /// Work is about to be recorded that uses this memory. Throws Error(input) for a stream whose work is not.
  void note(const Stream& stream, const char* label, std::span<const Access> accesses);
  /// Of a stream of the host: the work itself.
  virtual void add(Stream& stream, const char* label, std::function<void()> work, std::span<const Access> accesses);
  /// The point after all that was recorded of a stream that it has.
  virtual Event record(Stream& stream) = 0;
  /// The stream waits for an event: false where neither is of the capture. A stream that waits for work which is
  /// recorded is recorded itself from there on. Throws Error(input) where one that is recorded is to wait for what is
  /// not: a replay would not wait.
  bool wait(Stream& stream, const Event& event);

 protected:
  struct Replayed;
  /// A point in what is recorded. Later, and for everybody else, it stands for the end of the last replay.
  class RecordedEvent : public Event::State {
   public:
    explicit RecordedEvent(std::shared_ptr<Replayed> of) : of_(std::move(of)) {}
    bool done() const override;
    bool failed() const override;
    void host_wait() const override;
    Event stands_for() const override;
    const Replayed* of() const { return of_.get(); }

   private:
    std::shared_ptr<Replayed> of_;
  };
  Capture(Backend& backend, Ref<CaptureMemory> memory);
  const std::shared_ptr<Replayed>& replayed() const { return replayed_; }
  Stream& compute() const;
  /// Those that are recorded and have not gone, compute first.
  std::vector<Stream*> streams() const;

  /// The compute stream begins to be recorded, or another one, which waits for `event`.
  virtual void begin_on(Stream& compute) = 0;
  virtual void join(Stream& stream) = 0;
  virtual void wait_for(Stream& stream, const RecordedEvent& event) = 0;
  virtual void finish() = 0;
  virtual void forget() noexcept = 0;
  /// Queues what was recorded.
  virtual void run() = 0;

 private:
  void stop() noexcept;
  void undo() noexcept;
  void check_streams() const;
  void check_still() const;
  void send_numbers();

  Context& context_;
  Backend& backend_;
  Device device_;
  Ref<CaptureMemory> memory_;
  std::optional<size_t> pool_;  // its number in memory_, once it has begun
  std::shared_ptr<Replayed> replayed_;
  struct Recorded {
    Stream* stream;
    std::weak_ptr<void> life;
    std::string name;
  };
  std::vector<Recorded> streams_;  // compute first
  std::vector<std::function<void()>> checks_, before_, after_;
  std::vector<std::function<void()>> at_end_, undo_;  // while it is recorded
  std::unordered_set<const void*> met_, made_;
  uint64_t epoch_ = 0;                    // of storages that the step makes
  Tensor block_;                          // of all numbers
  std::vector<std::byte> values_, sent_;  // of the next replay, and of the last one
  std::unordered_map<uint64_t, Tensor> by_key_;
  std::vector<std::pair<Event, Tensor>> on_their_way_;  // numbers in host memory, and when they have been copied
  std::vector<Ref<RefCounted>> kept_alive_;
  bool fresh_ = true;  // no replay yet
  bool open_ = false, gone_ = false;
};

}  // namespace shardgrad
