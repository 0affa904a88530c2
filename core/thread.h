#pragma once
// Threads of the library. Their stacks are large whatever `ulimit -s` and a host program's attributes say: kernels and
// functions of a user run on them. Linux gives a stack memory as it is used.

#include <pthread.h>

#include <cstddef>
#include <functional>

namespace shardgrad {

inline constexpr size_t kThreadStack = size_t(8) << 20;  ///< bytes, at least

/// As std::jthread: joined when it is destroyed.
class Thread {
 public:
  Thread() = default;
  /// Throws Error(missing) where the system gives no thread.
  explicit Thread(std::function<void()> body);
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();

  bool joinable() const { return started_; }
  void join();
  void detach();

 private:
  pthread_t handle_{};
  bool started_ = false;
};

}  // namespace shardgrad
