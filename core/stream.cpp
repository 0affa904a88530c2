#include <shardgrad/core/stream.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>
#include <shardgrad/core/thread.h>

namespace shardgrad {
namespace {

thread_local Stream* running = nullptr;

class HostTimer final : public StreamTimer {
 public:
  explicit HostTimer(Stream& stream) : stream_(stream) {}
  void start() override { note(begin_); }
  void stop() override { note(end_); }
  double seconds() override {
    stream_.synchronize();
    return std::chrono::duration<double>(end_ - begin_).count();
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  void note(Time& time) {
    stream_.run("timer", [&time] { time = std::chrono::steady_clock::now(); });
  }
  Stream& stream_;
  Time begin_, end_;
};

class InlineStream final : public Stream {
 public:
  InlineStream(Context& context, std::string name) : Stream(context, std::move(name), true) {}
  Event record() override { return Event(); }
  void wait(const Event& event) override { event.host_wait(); }
};

// What the queue's thread and its events share; it outlives the stream while an event is held.
struct Queue : RefCounted {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  uint64_t completed = 0;
  std::exception_ptr failure;
};

class QueueEvent final : public Event::State {
 public:
  QueueEvent(Ref<Queue> queue, uint64_t ticket) : queue_(std::move(queue)), ticket_(ticket) {}
  bool done() const override {
    std::lock_guard lock(queue_->mutex);
    return queue_->completed >= ticket_;
  }
  bool failed() const override {
    std::lock_guard lock(queue_->mutex);
    return bool(queue_->failure);
  }
  void host_wait() const override {
    using namespace std::chrono_literals;
    std::unique_lock lock(queue_->mutex);
    while (queue_->completed < ticket_) {
      queue_->changed.wait_for(lock, 50ms);
      if (Context* context = Context::current(); context && context->aborted()) {
        lock.unlock();
        context->check_abort();
      }
    }
    if (queue_->failure) std::rethrow_exception(queue_->failure);
  }

 private:
  Ref<Queue> queue_;
  uint64_t ticket_;
};

class ThreadStream final : public Stream {
 public:
  ThreadStream(Context& context, std::string name)
      : Stream(context, std::move(name), false),
        queue_(make_ref<Queue>()),
        delays_(context.options().delay_seed + uint64_t(id_)),
        thread_([this] { loop(); }) {}

  ~ThreadStream() override {
    {
      std::lock_guard lock(queue_->mutex);
      closing_ = true;
    }
    work_ready_.notify_one();
    thread_.join();
    if (checked_ && !running) context_.checker()->end_stream(id_);
  }

  Event record() override {
    Ref<Event::State> state(nullptr);
    {
      std::lock_guard lock(queue_->mutex);
      state = make_ref<QueueEvent>(queue_, queued_);
    }
    if (checked_) state->clock = context_.checker()->record(id_);
    return Event(std::move(state));
  }

  void wait(const Event& event) override {
    if (!event.state()) return;
    if (checked_) context_.checker()->wait(id_, event.state()->clock);
    if (event.done() && !event.state()->failed()) return;
    enqueue("wait", [event] { event.state()->host_wait(); });
  }

 protected:
  void enqueue(const char* label, std::function<void()> work) override {
    {
      std::lock_guard lock(queue_->mutex);
      pending_.push_back({label, std::move(work)});
      ++queued_;
    }
    work_ready_.notify_one();
  }

 private:
  struct Item {
    const char* label;
    std::function<void()> work;
  };

  void loop() {
    ContextScope scope(context_);
    running = this;
    std::unique_lock lock(queue_->mutex);
    for (;;) {
      work_ready_.wait(lock, [this] { return closing_ || !pending_.empty(); });
      if (pending_.empty()) return;
      Item item = std::move(pending_.front());
      pending_.pop_front();
      bool skip = bool(queue_->failure);
      lock.unlock();
      std::exception_ptr failure;
      if (!skip) failure = execute(item);
      item.work = nullptr;  // drop what the work holds before it counts as done
      lock.lock();
      if (failure) queue_->failure = failure;
      ++queue_->completed;
      queue_->changed.notify_all();
    }
  }

  std::exception_ptr execute(Item& item) {
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

  Ref<Queue> queue_;
  std::condition_variable work_ready_;
  std::deque<Item> pending_;
  uint64_t queued_ = 0;
  bool closing_ = false;
  std::minstd_rand delays_;
  Thread thread_;  // last: starts when everything above is ready
};

}  // namespace

Stream::Stream(Context& context, std::string name, bool is_inline)
    : context_(context), name_(std::move(name)), inline_(is_inline), checked_(context.checker() != nullptr) {
  if (checked_ && !is_inline) id_ = context.checker()->add_stream(name_);
}

void Stream::enqueue(const char* label, std::function<void()>) {
  fail_as(ErrorKind::internal, "stream ", name_, " has no queue for '", label, "'");
}

std::unique_ptr<StreamTimer> Stream::make_timer() { return std::make_unique<HostTimer>(*this); }

void Stream::note(const char* label, std::span<const Access> accesses) {
  context_.checker()->work(id_, label, accesses);
}

void Event::host_wait() const {
  if (!state_) return;
  state_->host_wait();
  if (Context* context = Context::current(); context && context->checker() && !running)
    context->checker()->host_wait(state_->clock);
}

std::unique_ptr<Stream> make_inline_stream(Context& context, std::string name) {
  return std::make_unique<InlineStream>(context, std::move(name));
}

std::unique_ptr<Stream> make_thread_stream(Context& context, std::string name) {
  return std::make_unique<ThreadStream>(context, std::move(name));
}

Stream* running_stream() { return running; }

}  // namespace shardgrad
