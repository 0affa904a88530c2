#pragma once
// A context as its memory and its threads see it, which may outlive it: a tensor may be dropped, and a ContextScope may
// end, whenever they like, by any thread.
//
//     home open:     Visit(home): the context's streams are there until the visit ends
//     home closed:   no visit begins; streams run what they still have; what memory is dropped now waits for their end
//     context gone:  nothing is left to order with, and what is dropped goes at once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include <shardgrad/core/ref.h>

namespace shardgrad {

class Context;

class Home final : public RefCounted {
 public:
  /// The context, or null when it has gone.
  Context* context() const { return context_.load(std::memory_order_acquire); }

  /// While it lives the context's devices do not go. Not to be had any more once the home is closed.
  class Visit {
   public:
    explicit Visit(Home& home) : home_(home), begun_(home.enter()) {}
    ~Visit() {
      if (begun_) home_.leave();
    }
    Visit(const Visit&) = delete;
    explicit operator bool() const { return begun_; }

   private:
    Home& home_;
    bool begun_;
  };
  /// Calls `act`, which must not throw, when no stream of the context runs any more: at once, or by its end.
  void when_gone(std::function<void()> act);

  // --- called by the context ----------------------------------------------------------------------------------------
  void open(Context& context) { context_.store(&context, std::memory_order_release); }
  /// Returns when the last visit has ended.
  void close();
  void set_gone();

 private:
  static constexpr uint32_t kClosed = uint32_t(1) << 31;
  bool enter() {
    if ((visits_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) return true;
    leave();
    return false;
  }
  void leave() {
    if (visits_.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) visits_.notify_all();
  }
  std::atomic<Context*> context_{nullptr};
  std::atomic<uint32_t> visits_{0};  // how many there are, and kClosed
  std::mutex mutex_;
  bool gone_ = false;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace shardgrad
