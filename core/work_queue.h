#pragma once
// The work of a thread stream, and who runs it. One piece runs at a time, in the order in which it was queued. Most is
// run by the stream's own thread, which is woken for it. What is queued with Begin::when_waited_for wakes nobody:
// whoever waits for it and finds that nobody runs the queue's work runs it where it stands, which saves two changes of
// threads, several times what a small collective takes by itself:
//
//     queued:     a (at once)   b (when waited for)   c (when waited for)
//     thread:     a
//     waiter:     ..............b  (its wait ends)
//     thread:                                         c, since nobody has come for it for a while
//
// So work is delayed by at most twice kPatience, whether somebody waits for it or not, and two queues whose work waits
// for each other's go on. The thread is woken at most once in kPatience for such work: while more of it comes it looks
// by itself.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>

#include <shardgrad/core/ref.h>
#include <shardgrad/core/stream.h>

namespace shardgrad {

/// Events hold it, so it outlives its stream, but not with work in it.
class WorkQueue : public RefCounted {
 public:
  static constexpr std::chrono::microseconds kPatience{1000};

  explicit WorkQueue(Stream& stream);
  void push(const char* label, std::function<void()> work, Begin begin);
  /// How many pieces have been queued; the newest's ticket.
  uint64_t pushed() const { return pushed_.load(std::memory_order_acquire); }
  bool done(uint64_t ticket) const { return completed_.load(std::memory_order_acquire) >= ticket; }
  /// Whether a piece has failed: those after it are skipped.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Returns when the ticket's piece has run, by this thread or another; rethrows the queue's failure.
  void wait(uint64_t ticket);

  /// The stream's own thread runs work until close() has been called and none is left.
  void serve();
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Item {
    const char* label;
    std::function<void()> work;
    Begin begin;
  };
  bool await_turn(Lock& lock);
  void call_thread(uint64_t ticket);
  bool is_for_waiters() const;
  void run_first(Lock& lock);
  std::exception_ptr execute(Item& item);

  Stream& stream_;
  Context& context_;
  std::mutex mutex_;
  std::condition_variable changed_;     // a piece is done
  std::condition_variable work_ready_;  // there may be something for the stream's thread
  std::deque<Item> pending_;
  std::atomic<uint64_t> pushed_{0}, completed_{0};
  uint64_t due_ = 0;       // up to this ticket it is the stream's thread's to run
  bool running_ = false;   // somebody runs a piece
  bool watching_ = false;  // the stream's thread looks by itself
  bool closing_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};  // it is there
  std::minstd_rand delays_;
};

}  // namespace shardgrad
