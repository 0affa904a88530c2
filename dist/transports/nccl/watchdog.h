#pragma once
// What NCCL has been asked to do and has not done. A thread watches the oldest of it:
//   - it tells the control channel when a call begins and ends on the GPU, so that the monitor sees late, diverged and
//     dead ranks as on every other transport;
//   - when NCCL reports an error, it ends the job, with the cause that the control channel has found, or NCCL's own;
//   - when the job ends, for whatever reason, or this rank leaves the group in the middle of a call, it aborts the
//     communicator, which frees the GPU of kernels that wait for ranks that will never come.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include <shardgrad/core/stream.h>
#include <shardgrad/core/thread.h>
#include <shardgrad/dist/transports/nccl/communicator.h>
#include <shardgrad/dist/watch/control.h>

namespace shardgrad::dist {

class NcclWatchdog {
 public:
  /// `check` throws when the job ends or this rank leaves.
  NcclWatchdog(NcclCommunicator& communicator, Control& control, Check check);
  /// Tells of what has been done by now; aborts the communicator when that is not all.
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;

  /// The calling thread begins to queue a call, and has queued it: `event` is its end.
  void begin(int lane, const Place& place);
  void queued(Event event);

 private:
  struct InFlight {
    int lane;
    Place place;
    Event event;
    bool queued = false;
  };
  void loop();
  bool advance();
  void report(ncclResult_t error);

  NcclCommunicator& communicator_;
  Control& control_;
  Check check_;
  Context& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InFlight> in_flight_;
  bool stop_ = false;
  Thread thread_;
};

}  // namespace shardgrad::dist
