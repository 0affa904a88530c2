#include <shardgrad/core/cuda/stream.h>

#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/launching.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {

static thread_local Device launching = kCuda;
Device launching_device() { return launching; }

void use_gpu(int gpu) {
  int chosen = 0;
  if (cudaGetDevice(&chosen) != cudaSuccess || chosen != gpu) cudaSetDevice(gpu);
}

namespace {

class CudaEvent final : public Event::State {
 public:
  CudaEvent(std::shared_ptr<CudaEventPool> pool, cudaStream_t stream, std::string name)
      : pool_(std::move(pool)), name_(std::move(name)) {
    failure_ = pool_->get(event_);
    if (failure_ == cudaSuccess) failure_ = cudaEventRecord(event_, stream);
  }
  ~CudaEvent() override {
    if (event_) pool_->put(event_);
  }
  bool done() const override { return status() != cudaErrorNotReady; }
  void host_wait() const override {
    constexpr int kSpins = 500;
    use_gpu(pool_->gpu());  // a thread that never chose one would open GPU 0 as well
    for (int polls = 0;; ++polls) {
      cudaError_t now = status();
      if (now == cudaSuccess) return;
      if (now != cudaErrorNotReady) throw_cuda(now, concat("waiting for stream ", name_));
      if (Context* context = Context::current()) context->check_abort();
      if (polls > kSpins) usleep(20);
    }
  }
  cudaEvent_t handle() const { return event_; }
  cudaError_t failure() const { return failure_; }

 private:
  cudaError_t status() const {
    if (failure_ != cudaSuccess) return failure_;
    cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) cudaGetLastError();  // no error: a later launch must not be blamed
    return status;
  }
  std::shared_ptr<CudaEventPool> pool_;
  std::string name_;
  cudaEvent_t event_ = nullptr;
  cudaError_t failure_ = cudaSuccess;
};

}  // namespace

// Every piece of work that is queued has a ticket. Between two of them all points are the same, and share an event, or
// a mark: many blocks are freed one after the other.
class CudaTail : public std::enable_shared_from_this<CudaTail> {
 public:
  CudaTail(std::shared_ptr<CudaEventPool> pool, cudaStream_t stream, std::string name, HappensBefore* checker, int id)
      : pool_(std::move(pool)), stream_(stream), name_(std::move(name)), checker_(checker), id_(id) {}

  Event record();
  Event mark();
  /// An event with all work up to this ticket before it.
  Event after(uint64_t ticket);
  /// The stream has done all its work, and goes.
  void end() {
    std::lock_guard lock(mutex_);
    stream_ = nullptr;
    event_ = {};
    mark_ = {};
  }
  /// Throws Error(input) where another thread than the one that captures the stream is to use it: what it queued would
  /// become part of the step.
  void check_free(bool captures) {
    SG_CHECK(captured_ == captures, "stream ", name_, " is used by another thread while a step of it is captured ",
             "(StepGraph); let this thread wait until then");
  }
  void begin_launch() { ++launching_; }
  void end_launch() {
    ++queued_;
    --launching_;
  }
  void queued() { ++queued_; }
  /// From now on the stream's work is recorded, or no longer. It has done all that was queued before; what another
  /// thread asks for meanwhile has happened, and must not become part of what is recorded.
  void capture(bool on) {
    std::lock_guard lock(mutex_);
    captured_ = on;
    event_ = {};
    mark_ = {};
    ++queued_;
  }

 private:
  struct Last {
    Event event;
    uint64_t ticket = 0;
    bool between = false;  // when it was recorded, nobody was about to queue work: all up to the ticket is before it
  };
  // Work that is about to be queued may free memory before it is. It counts as queued before it ends, so whether there
  // is any comes first.
  bool is_now(const Last& last) const { return launching_ == 0 && last.event.state() && last.ticket == queued_; }
  template <class State> Event noted(Ref<State> state, uint64_t ticket, Last& last) {
    if (checker_) state->clock = checker_->record(id_);
    last = {Event(std::move(state)), ticket, false};
    return last.event;
  }
  std::shared_ptr<CudaEventPool> pool_;
  std::mutex mutex_;
  cudaStream_t stream_;  // null once it has gone
  std::atomic<bool> captured_{false};
  std::string name_;
  HappensBefore* checker_;
  int id_;
  std::atomic<uint64_t> queued_{0};
  std::atomic<int> launching_{0};  // pieces of work between before_launch and after_launch
  Last event_, mark_;
};

namespace {

class CudaMark final : public Event::State {
 public:
  CudaMark(std::shared_ptr<CudaTail> tail, uint64_t ticket) : tail_(std::move(tail)), ticket_(ticket) {}
  bool done() const override { return stands_for().done(); }
  void host_wait() const override { stands_for().host_wait(); }
  Event stands_for() const override {
    std::lock_guard lock(mutex_);
    if (tail_) event_ = tail_->after(ticket_);
    tail_ = nullptr;
    return event_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<CudaTail> tail_;  // null once it has been asked
  uint64_t ticket_;                         // of the last work that it stands after
  mutable Event event_;
};

}  // namespace

Event CudaTail::record() {
  std::lock_guard lock(mutex_);
  if (!stream_ || captured_) return {};
  if (is_now(event_)) return event_.event;
  bool between = launching_ == 0;
  uint64_t ticket = queued_;
  Event event = noted(make_ref<CudaEvent>(pool_, stream_, name_), ticket, event_);
  event_.between = between;
  return event;
}

Event CudaTail::after(uint64_t ticket) {
  {
    std::lock_guard lock(mutex_);
    if (event_.event.state() && event_.between && event_.ticket >= ticket) return event_.event;
  }
  return record();
}

Event CudaTail::mark() {
  std::lock_guard lock(mutex_);
  if (!stream_ || captured_) return {};
  if (is_now(event_)) return event_.event;
  if (is_now(mark_)) return mark_.event;
  auto launching = uint64_t(launching_);  // before what is queued: who ends meanwhile counts twice, and none is missed
  uint64_t ticket = queued_;
  return noted(make_ref<CudaMark>(shared_from_this(), ticket + launching), ticket, mark_);
}

CudaEventPool::~CudaEventPool() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaError_t CudaEventPool::get(cudaEvent_t& event) {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
      return cudaSuccess;
    }
  }
  use_gpu(gpu_);
  return cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
}

void CudaEventPool::put(cudaEvent_t event) noexcept {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

void CudaEventPool::enter(CudaStream& stream) {
  std::lock_guard lock(streams_mutex_);
  streams_.push_back(&stream);
}

void CudaEventPool::leave(CudaStream& stream) noexcept {
  std::lock_guard lock(streams_mutex_);
  std::erase(streams_, &stream);
}

std::vector<Event> CudaEventPool::record_all() {
  std::lock_guard lock(streams_mutex_);
  std::vector<Event> events;
  for (CudaStream* stream : streams_) events.push_back(stream->record());
  return events;
}

static cudaStream_t make_native(bool urgent, const std::string& name) {
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams");
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
             concat("making stream ", name));
  return stream;
}

CudaStream::CudaStream(Context& context, std::string name, std::shared_ptr<CudaEventPool> pool, bool urgent, bool check)
    : Stream(context, std::move(name), false), pool_(std::move(pool)), check_(check) {
  use_gpu(pool_->gpu());
  native_ = make_native(urgent, this->name());
  tail_ = std::make_shared<CudaTail>(pool_, handle(), this->name(), checked_ ? context.checker() : nullptr, id_);
  pool_->enter(*this);
}

CudaStream::~CudaStream() {
  pool_->leave(*this);
  cudaStreamSynchronize(handle());  // memory that its work uses may go right after it
  tail_->end();
  cudaStreamDestroy(handle());
  if (checked_ && !running_stream()) context_.checker()->end_stream(id_);
}

Event CudaStream::record() { return is_captured() ? detail::capture->record(*this) : tail_->record(); }
Event CudaStream::mark() { return is_captured() ? detail::capture->record(*this) : tail_->mark(); }

void CudaStream::capture(bool on) { tail_->capture(on); }

void CudaStream::wait(const Event& given) {
  if (detail::capture && given.state() && detail::capture->wait(*this, given)) return;
  tail_->check_free(is_captured());
  Event event = given.recorded();
  if (!event.state()) return;
  if (checked_) context_.checker()->wait(id_, event.state()->clock);
  if (auto* of_device = dynamic_cast<const CudaEvent*>(event.state())) {
    cudaError_t status = of_device->failure();
    if (status == cudaSuccess) status = cudaStreamWaitEvent(handle(), of_device->handle(), 0);
    if (status != cudaSuccess) throw_cuda(status, concat("stream ", name(), " waiting for an event"));
  } else {
    event.state()->host_wait();
  }
  tail_->queued();  // not before: an event recorded meanwhile would be taken for one after the wait
}

void CudaStream::notify(std::function<void()> note) {
  if (is_captured()) return Stream::notify(std::move(note));  // which refuses it
  auto held = std::make_unique<std::function<void()>>(std::move(note));
  auto call = [](void* data) {
    std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(data));
    (*mine)();
  };
  run("notify", [&] { check_cuda(cudaLaunchHostFunc(handle(), call, held.get()), concat("stream ", name())); });
  held.release();  // NOLINT: the callback's now
}

void CudaStream::before_launch(const char* label) {
  tail_->check_free(is_captured());
  tail_->begin_launch();
  use_gpu(pool_->gpu());  // of this thread, which may be any
  launching = pool_->device();
  nvtxRangePushA(label);
}

void CudaStream::after_launch() noexcept {
  nvtxRangePop();
  tail_->end_launch();
}

void CudaStream::check_launch(const char* label) {
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess && check_) status = cudaStreamSynchronize(handle());
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda(status, concat("'", label, "' on stream ", name()), check_);
}

}  // namespace shardgrad
