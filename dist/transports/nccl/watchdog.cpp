#include <shardgrad/dist/transports/nccl/watchdog.h>

#include <chrono>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/transports/nccl/nccl.h>

namespace shardgrad::dist {

using namespace std::chrono_literals;

NcclWatchdog::NcclWatchdog(NcclCommunicator& communicator, Control& control, Check check)
    : communicator_(communicator), control_(control), check_(std::move(check)), context_(context()) {
  thread_ = Thread([this] { loop(); });
}

NcclWatchdog::~NcclWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NcclWatchdog::begin(int lane, const Place& place) {
  std::lock_guard lock(mutex_);
  if (in_flight_.empty()) control_.enter(lane, place);
  in_flight_.push_back({lane, place, Event()});
  changed_.notify_one();
}

void NcclWatchdog::queued(Event event) {
  std::lock_guard lock(mutex_);
  in_flight_.back().event = std::move(event);
  in_flight_.back().queued = true;
}

// Takes off what is done. False when nothing is left.
bool NcclWatchdog::advance() {
  while (!in_flight_.empty() && in_flight_.front().queued && in_flight_.front().event.done()) {
    control_.leave(in_flight_.front().lane, in_flight_.front().place.sequence);
    in_flight_.pop_front();
    if (!in_flight_.empty()) control_.enter(in_flight_.front().lane, in_flight_.front().place);
  }
  return !in_flight_.empty();
}

void NcclWatchdog::loop() {
  ContextScope scope(context_);
  try {
    communicator_.use_gpu();
    std::unique_lock lock(mutex_);
    while (!stop_) {
      lock.unlock();
      check_();  // before any CUDA call: it may wait for kernels that only an abort ends
      ncclResult_t state = communicator_.state();
      if (state != ncclSuccess && state != ncclInProgress) report(state);
      lock.lock();
      if (advance())
        changed_.wait_for(lock, 1ms, [this] { return stop_; });
      else
        changed_.wait_for(lock, 50ms, [this] { return stop_ || !in_flight_.empty(); });
    }
    if (advance()) communicator_.cancel();  // the group ends without them
  } catch (...) {                           // the job ends: whoever waits learns why from its context
    communicator_.cancel();
  }
}

void NcclWatchdog::report(ncclResult_t error) {
  wait_for_cause(check_);
  Place place;
  {
    std::lock_guard lock(mutex_);
    if (!in_flight_.empty()) place = in_flight_.front().place;
  }
  std::string where = place.sequence > 0 ? concat(" in ", shardgrad::dist::describe(place)) : "";
  Error failure(ErrorKind::rank_failed, concat(nccl_library(), " failed", where, ": ", communicator_.describe(error)));
  control_.fail(std::make_exception_ptr(failure));
  check_();
}

}  // namespace shardgrad::dist
