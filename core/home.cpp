#include <shardgrad/core/home.h>

#include <utility>

namespace shardgrad {

void Home::close() {
  uint32_t visits = visits_.fetch_or(kClosed, std::memory_order_acquire) | kClosed;
  for (; visits != kClosed; visits = visits_.load(std::memory_order_acquire)) visits_.wait(visits);
}

void Home::when_gone(std::function<void()> act) {
  {
    std::lock_guard lock(mutex_);
    if (!gone_) return waiting_.push_back(std::move(act));
  }
  act();
}

void Home::set_gone() {
  context_.store(nullptr, std::memory_order_release);
  std::vector<std::function<void()>> waiting;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    waiting.swap(waiting_);
  }
  for (const auto& act : waiting) act();
}

}  // namespace shardgrad
