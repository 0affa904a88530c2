#pragma once
// Which thread is inside of something that serves one at a time, such as a sharded model (fsdp/step/schedule.h).

#include <atomic>

#include <shardgrad/core/error.h>

namespace shardgrad {

/// The thread that is inside may enter again, and leaves as often; a second one is refused.
class Turn {
 public:
  /// Enters, and leaves at its end unless it has been kept. While another thread is inside: throws Error(input) with
  /// the parts of `refusal`.
  class Hold {
   public:
    template <class... Parts> explicit Hold(Turn& turn, const Parts&... refusal) : turn_(&turn) {
      SG_CHECK(turn.enter(), refusal...);
    }
    ~Hold() {
      if (turn_) turn_->leave();
    }
    Hold(const Hold&) = delete;
    void keep() { turn_ = nullptr; }

   private:
    Turn* turn_;
  };
  /// Leaves at its end.
  class Leave {
   public:
    explicit Leave(Turn& turn) : turn_(turn) {}
    ~Leave() { turn_.leave(); }
    Leave(const Leave&) = delete;

   private:
    Turn& turn_;
  };
  void leave() {
    if (--depth_ == 0) thread_.store(nullptr, std::memory_order_release);
  }
  /// Whether the calling thread is inside.
  bool is_mine() const { return thread_.load(std::memory_order_relaxed) == this_thread(); }

 private:
  static const void* this_thread() {
    static thread_local const char here = 0;
    return &here;
  }
  // False where another thread is inside.
  bool enter() {
    const void* inside = nullptr;
    bool free = thread_.compare_exchange_strong(inside, this_thread(), std::memory_order_acquire);
    if (!free && inside != this_thread()) return false;
    ++depth_;
    return true;
  }
  std::atomic<const void*> thread_{nullptr};
  int depth_ = 0;  // of the thread that is inside
};

}  // namespace shardgrad
