#pragma once
// Calls something again and again, beside what its owner does.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <shardgrad/core/thread.h>

namespace shardgrad::train {

/// From a thread of its own, every `period`, until it is destroyed; then no call is under way.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds period, std::function<void()> call);
  ~Ticker();
  Ticker(const Ticker&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  Thread thread_;
};

}  // namespace shardgrad::train
