#include <shardgrad/core/stream.h>

#include <chrono>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>
#include <shardgrad/core/thread.h>
#include <shardgrad/core/work_queue.h>

namespace shardgrad {
namespace {

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

class QueueEvent final : public Event::State {
 public:
  QueueEvent(Ref<WorkQueue> queue, uint64_t ticket) : queue_(std::move(queue)), ticket_(ticket) {}
  bool done() const override { return queue_->done(ticket_); }
  bool failed() const override { return queue_->failed(); }
  void host_wait() const override { queue_->wait(ticket_); }

 private:
  Ref<WorkQueue> queue_;
  uint64_t ticket_;
};

class ThreadStream final : public Stream {
 public:
  ThreadStream(Context& context, std::string name)
      : Stream(context, std::move(name), false),
        queue_(make_ref<WorkQueue>(*this)),
        thread_([this] { queue_->serve(); }) {}

  ~ThreadStream() override {
    queue_->close();
    thread_.join();
    if (checked_ && !running_stream()) context_.checker()->end_stream(id_);
  }

  Event record() override {
    if (is_captured()) return detail::capture->record(*this);
    Ref<Event::State> state = make_ref<QueueEvent>(queue_, queue_->pushed());
    if (checked_) state->clock = context_.checker()->record(id_);
    return Event(std::move(state));
  }

  void wait(const Event& given) override {
    if (!given.state() || (detail::capture && detail::capture->wait(*this, given))) return;
    Event event = given.recorded();
    if (checked_) context_.checker()->wait(id_, event.state()->clock);
    if (event.done() && !event.state()->failed()) return;
    enqueue(
        "wait", [event] { event.state()->host_wait(); }, Begin::at_once);
  }

 protected:
  void enqueue(const char* label, std::function<void()> work, Begin begin) override {
    queue_->push(label, std::move(work), begin);
  }

 private:
  Ref<WorkQueue> queue_;
  Thread thread_;  // last: starts when everything above is ready
};

}  // namespace

Stream::Stream(Context& context, std::string name, bool is_inline)
    : context_(context), name_(std::move(name)), inline_(is_inline), checked_(context.checker() != nullptr) {
  if (checked_ && !is_inline) id_ = context.checker()->add_stream(name_);
}

void Stream::enqueue(const char* label, std::function<void()>, Begin) {
  fail_as(ErrorKind::internal, "stream ", name_, " has no queue for '", label, "'");
}

std::unique_ptr<StreamTimer> Stream::make_timer() { return std::make_unique<HostTimer>(*this); }

void Stream::note(const char* label, std::span<const Access> accesses) {
  context_.checker()->work(id_, label, accesses);
}

void Stream::note_captured(const char* label, std::span<const Access> accesses) {
  detail::capture->note(*this, label, accesses);
}

void Stream::add_captured(const char* label, std::function<void()> work, std::span<const Access> accesses) {
  detail::capture->add(*this, label, std::move(work), accesses);
}

bool Stream::captured() const { return detail::capture->has(*this); }

void Stream::notify(std::function<void()> note) {
  if (is_captured()) refuse_in_capture("a call of the host (Stream::notify)", "make it after the step");
  run("notify", std::move(note));
}

void Event::host_wait() const {
  if (!state_) return;
  state_->host_wait();
  if (Context* context = Context::current(); context && context->checker() && !running_stream())
    context->checker()->host_wait(state_->clock);
}

std::unique_ptr<Stream> make_inline_stream(Context& context, std::string name) {
  return std::make_unique<InlineStream>(context, std::move(name));
}

std::unique_ptr<Stream> make_thread_stream(Context& context, std::string name) {
  return std::make_unique<ThreadStream>(context, std::move(name));
}

}  // namespace shardgrad
