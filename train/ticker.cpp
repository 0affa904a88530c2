#include <shardgrad/train/ticker.h>

#include <utility>

namespace shardgrad::train {

Ticker::Ticker(std::chrono::milliseconds period, std::function<void()> call)
    : thread_([this, period, call = std::move(call)] {
        std::unique_lock lock(mutex_);
        while (!ends_.wait_for(lock, period, [this] { return ended_; })) call();
      }) {}

Ticker::~Ticker() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

}  // namespace shardgrad::train
