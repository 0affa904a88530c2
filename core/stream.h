#pragma once
// In what order work runs. A stream runs its work one after the other; different streams run at the same time unless
// an event orders them:
//
//     Event ready = communication.record();   // everything queued on `communication` so far
//     compute.wait(ready);                     // later work on `compute` starts after it
//
// Two kinds on the host: the *inline* stream of device `cpu` runs work in the caller's thread at once, and a *thread*
// stream is a FIFO with its own thread (communication everywhere; compute too on devices `acc` and `sim`). A *native*
// stream is one of the device: work runs in the caller's thread at once, and all it does is to launch kernels and
// copies on native(), which run later in the stream's order. Code above core/ rarely asks which kind it has.
//
// An exception inside queued work stops the stream: later work is skipped, and every wait for it rethrows the first
// exception. No wait is uninterruptible: Context::abort wakes them all.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/ref.h>

namespace shardgrad {

class Context;
class Capture;  // capture.h

namespace detail {
/// The step that the calling thread captures, whose streams' work is recorded; else null.
inline constinit thread_local Capture* capture = nullptr;
}  // namespace detail

/// What the calling thread queues in this scope is no part of the step that it captures, unless `on` is false.
class OutsideCapture {
 public:
  explicit OutsideCapture(bool on = true) : before_(detail::capture) {
    if (on) detail::capture = nullptr;
  }
  ~OutsideCapture() { detail::capture = before_; }
  OutsideCapture(const OutsideCapture&) = delete;

 private:
  Capture* before_;
};

/// A byte range that a piece of work touches; what the happens-before checker compares.
struct Access {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool write = false;
};

using VectorClock = std::vector<uint64_t>;

/// A point in a stream's order. Copyable; a default-constructed event has already happened.
class Event {
 public:
  class State : public RefCounted {
   public:
    virtual bool done() const = 0;
    /// Whether host_wait would throw because the work before the event has failed.
    virtual bool failed() const { return false; }
    virtual void host_wait() const = 0;
    /// Of a mark (Stream::mark): the event that it stands for, recorded now if nobody asked before. Null for others.
    virtual Event stands_for() const { return {}; }
    VectorClock clock;  ///< filled when the happens-before checker is on
  };
  Event() = default;
  explicit Event(Ref<State> state) : state_(std::move(state)) {}
  /// True when the work before the event has run.
  bool done() const { return !state_ || state_->done(); }
  /// Blocks the calling thread until done; rethrows the stream's failure; throws when the context is aborted.
  void host_wait() const;
  /// The event that this mark stands for; itself, if it is none.
  Event recorded() const {
    Event other = state_ ? state_->stands_for() : Event();
    return other.state_ ? other : *this;
  }
  const State* state() const { return state_.get(); }

 private:
  Ref<State> state_;
};

/// Times a piece of a stream's work by the clock of the device that runs it.
class StreamTimer {
 public:
  virtual ~StreamTimer() = default;
  /// The piece is what is queued between these two.
  virtual void start() = 0;
  virtual void stop() = 0;
  /// Waits until the piece has run.
  virtual double seconds() = 0;
};

/// When a thread stream begins a piece of work.
enum class Begin {
  at_once,
  /// When somebody waits for it, in the thread that waits (core/work_queue.h), or else after a millisecond or two: for
  /// short work that is mostly waited for as soon as it is queued.
  when_waited_for
};

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Runs `work` in this stream's order. `label` names it in errors and reports; it must be a literal or outlive the
  /// work. `accesses` are the bytes it reads and writes (for the checker).
  template <class Work>
  void run(const char* label, Work&& work, std::span<const Access> accesses = {}, Begin begin = Begin::at_once) {
    if (detail::capture && !inline_) [[unlikely]] {
      note_captured(label, accesses);
      if (!native_) return add_captured(label, std::function<void()>(std::forward<Work>(work)), accesses);
    } else if (checked_) [[unlikely]] {
      note(label, accesses);
    }
    if (inline_) {
      work();
    } else if (native_) {
      {
        Launching launching(*this, label);
        work();
      }
      check_launch(label);
    } else {
      enqueue(label, std::function<void()>(std::forward<Work>(work)), begin);
    }
  }
  /// The point after everything queued so far.
  virtual Event record() = 0;
  /// A point for which hardly anybody will ask: a native stream records no event until somebody does, and that event
  /// may come later than the point.
  virtual Event mark() { return record(); }
  /// Work queued from now on starts after `event`. An inline stream blocks here.
  virtual void wait(const Event& event) = 0;
  /// Calls `note` on some thread of the host when this stream gets there. It must be short, must not throw, and must
  /// use no device. Throws Error(input) in a step that is captured.
  virtual void notify(std::function<void()> note);
  virtual std::unique_ptr<StreamTimer> make_timer();
  /// Blocks the calling thread until everything queued so far has run; rethrows a failure of the work.
  void synchronize() { record().host_wait(); }

  /// Ends with the stream.
  std::weak_ptr<void> life() const { return life_; }
  bool is_inline() const { return inline_; }
  /// The device's own handle (a cudaStream_t); null for streams of the host.
  void* native() const { return native_; }
  const std::string& name() const { return name_; }
  Context& context() const { return context_; }
  int id() const { return id_; }

 protected:
  /// The time in which a native stream's work launches.
  class Launching {
   public:
    Launching(Stream& stream, const char* label) : stream_(stream) { stream.before_launch(label); }
    ~Launching() { stream_.after_launch(); }

   private:
    Stream& stream_;
  };
  Stream(Context& context, std::string name, bool is_inline);
  virtual void enqueue(const char* label, std::function<void()> work, Begin begin);  // thread streams
  virtual void before_launch(const char*) {}                                         // native streams
  virtual void after_launch() noexcept {}    // native streams, also when the work threw
  virtual void check_launch(const char*) {}  // native streams: throws DeviceFault
  void note(const char* label, std::span<const Access> accesses);
  void note_captured(const char* label, std::span<const Access> accesses);
  void add_captured(const char* label, std::function<void()> work, std::span<const Access> accesses);
  /// Where the calling thread captures: whether this stream's work is recorded.
  bool is_captured() const { return detail::capture && captured(); }

  Context& context_;
  std::string name_;
  int id_ = 0;
  bool inline_;
  bool checked_;
  void* native_ = nullptr;

 private:
  bool captured() const;
  std::shared_ptr<void> life_ = std::make_shared<char>();
};

/// Runs work at once in the caller's thread.
std::unique_ptr<Stream> make_inline_stream(Context& context, std::string name);
/// A FIFO queue with its own thread, which carries `context`, as does whoever runs its work.
std::unique_ptr<Stream> make_thread_stream(Context& context, std::string name);

/// The stream whose work the calling thread runs, or null outside queued work.
Stream* running_stream();

}  // namespace shardgrad
