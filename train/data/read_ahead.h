#pragma once
// A thread that reads samples for its owner, one piece of work at a time. It treats subnormals as its owner does: a
// thread begins with the floating-point mode of the one that starts it.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

#include <shardgrad/core/thread.h>

namespace shardgrad::data {

class ReadAhead {
 public:
  ReadAhead();
  /// Waits for the work under way.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;

  /// Begins `work`; the work before it has been waited for.
  void begin(std::function<void()> work);
  /// Returns when the work is done, with what it threw.
  std::exception_ptr wait();

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: none is under way
  std::exception_ptr failure_;
  bool ending_ = false;
  Thread thread_;
};

}  // namespace shardgrad::data
