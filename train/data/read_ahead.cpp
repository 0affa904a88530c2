#include <shardgrad/train/data/read_ahead.h>

#include <utility>

namespace shardgrad::data {

ReadAhead::ReadAhead() : thread_([this] { loop(); }) {}

ReadAhead::~ReadAhead() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

void ReadAhead::begin(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

std::exception_ptr ReadAhead::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  return std::exchange(failure_, nullptr);
}

void ReadAhead::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return work_ || ending_; });
    if (ending_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace shardgrad::data
