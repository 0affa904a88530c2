#include <shardgrad/core/thread.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <shardgrad/core/error.h>

namespace shardgrad {
namespace {

void* run(void* argument) {
  std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Thread::Thread(std::function<void()> body) {
  auto work = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  size_t stack = 0;
  pthread_attr_getstacksize(&attributes, &stack);
  pthread_attr_setstacksize(&attributes, std::max(stack, kThreadStack));
  int error = pthread_create(&handle_, &attributes, run, work.get());
  pthread_attr_destroy(&attributes);
  if (error != 0)
    fail_as(ErrorKind::missing, "cannot start a thread: ", std::strerror(error),
            ". The limits of this process or container on threads (`ulimit -u`, pids.max) or memory are too low");
  static_cast<void>(work.release());  // the thread's now
  started_ = true;
}

Thread::Thread(Thread&& other) noexcept
    : handle_(std::exchange(other.handle_, {})), started_(std::exchange(other.started_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (started_) join();
  handle_ = std::exchange(other.handle_, {});
  started_ = std::exchange(other.started_, false);
  return *this;
}

Thread::~Thread() {
  if (started_) join();
}

void Thread::join() {
  pthread_join(handle_, nullptr);
  started_ = false;
}

void Thread::detach() {
  pthread_detach(handle_);
  started_ = false;
}

}  // namespace shardgrad
