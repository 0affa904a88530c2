#include <shardgrad/core/work_queue.h>

#include <thread>
#include <utility>

#include <shardgrad/core/context.h>

namespace shardgrad {

static thread_local Stream* running = nullptr;

Stream* running_stream() { return running; }

namespace {

// The calling thread runs a stream's work.
class RunningScope {
 public:
  explicit RunningScope(Stream& stream) : context_(stream.context()), before_(std::exchange(running, &stream)) {}
  ~RunningScope() { running = before_; }
  RunningScope(const RunningScope&) = delete;

 private:
  ContextScope context_;
  Stream* before_;
};

}  // namespace

WorkQueue::WorkQueue(Stream& stream)
    : stream_(stream), context_(stream.context()), delays_(context_.options().delay_seed + uint64_t(stream.id())) {}

void WorkQueue::push(const char* label, std::function<void()> work, Begin begin) {
  bool wake = true;
  {
    std::lock_guard lock(mutex_);
    pending_.push_back({label, std::move(work), begin});
    ++pushed_;
    if (begin == Begin::at_once)
      due_ = pushed_;
    else
      wake = !std::exchange(watching_, true);
  }
  if (wake) work_ready_.notify_one();
}

// Work of another stream may be what this work waits for, and what would abort another context's waits is not looked at
// by work of this one.
static bool may_run_work_of(const Context& context) {
  Context* mine = Context::current();
  return !running && (!mine || mine == &context);
}

bool WorkQueue::is_for_waiters() const {
  return !running_ && !pending_.empty() && pending_.front().begin == Begin::when_waited_for;
}

void WorkQueue::wait(uint64_t ticket) {
  using namespace std::chrono_literals;
  if (done(ticket) && !failed()) return;
  bool may_run = may_run_work_of(context_);
  Lock lock(mutex_);
  while (completed_ < ticket) {
    if (may_run && is_for_waiters()) {
      RunningScope scope(stream_);
      run_first(lock);
      continue;
    }
    if (!may_run) call_thread(ticket);
    changed_.wait_for(lock, 50ms);
    if (Context* context = Context::current(); context && context->aborted()) {
      lock.unlock();
      context->check_abort();
    }
  }
  if (failure_) std::rethrow_exception(failure_);
}

void WorkQueue::call_thread(uint64_t ticket) {
  if (due_ >= ticket) return;
  due_ = ticket;
  work_ready_.notify_one();
}

void WorkQueue::run_first(Lock& lock) {
  Item item = std::move(pending_.front());
  pending_.pop_front();
  running_ = true;
  bool skip = bool(failure_);
  lock.unlock();
  std::exception_ptr failure;
  if (!skip) failure = execute(item);
  item.work = nullptr;  // drop what the work holds before it counts as done
  lock.lock();
  if (failure) {
    failure_ = failure;
    failed_ = true;
  }
  running_ = false;
  completed_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
  if (completed_ < due_ || closing_) work_ready_.notify_one();
}

std::exception_ptr WorkQueue::execute(Item& item) {
  try {
    if (context_.options().delay_seed != 0) {
      auto limit = uint64_t(context_.options().max_delay.count());
      std::this_thread::sleep_for(std::chrono::microseconds(delays_() % (limit + 1)));
    }
    item.work();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void WorkQueue::serve() {
  RunningScope scope(stream_);
  Lock lock(mutex_);
  while (await_turn(lock)) run_first(lock);
}

// Waits until there is work for the stream's thread; false: there will be none.
bool WorkQueue::await_turn(Lock& lock) {
  for (;;) {
    if (!running_ && completed_ < due_) return true;
    if (!running_ && closing_) return false;
    if (!watching_) {
      work_ready_.wait(lock);
      continue;
    }
    uint64_t completed = completed_, pushed = pushed_;
    if (work_ready_.wait_for(lock, kPatience) != std::cv_status::timeout) continue;
    if (!running_ && completed_ == completed) due_ = pushed_;  // nobody has come for what is pending
    watching_ = pushed_ != pushed || !pending_.empty();
  }
}

void WorkQueue::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    due_ = pushed_;
  }
  work_ready_.notify_one();
}

}  // namespace shardgrad
