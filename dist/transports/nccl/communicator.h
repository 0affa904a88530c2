#pragma once
// One rank's NCCL communicator. It is non-blocking: a call returns at once, also while NCCL is still connecting, and
// whoever waits for it looks at the job meanwhile, so that the failure of another rank ends every wait. Calls come from
// one thread at a time; a second thread may ask for the state, and cancel.

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <shardgrad/dist/os/sockets.h>

namespace shardgrad::dist {

class NcclCommunicator {
 public:
  /// What rank 0 makes and every rank is told: some bytes.
  static std::string unique_id();
  /// Meets the other ranks. `gpu` is the calling process's number for this rank's GPU. Throws Error(missing) with the
  /// reason when NCCL cannot.
  NcclCommunicator(const std::string& id, int size, int rank, int gpu, const Check& check);
  /// Cancels, unless finished.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;

  /// Makes an NCCL call, and returns when what it asks for has been queued. Throws Error(rank_failed) when it fails.
  void run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& call, const Check& check);
  /// ncclSuccess, ncclInProgress, or the error of something that was queued.
  ncclResult_t state();
  /// In words, with what NCCL says about it.
  std::string describe(ncclResult_t result);
  /// The calling thread's CUDA calls go to this rank's GPU.
  void use_gpu() const;
  /// Ends what is in flight on this rank's GPU, now. Later calls fail.
  void cancel() noexcept;
  /// Leaves in good order; gives up, and cancels, when the others do not within some seconds.
  void finish(const Check& check);

 private:
  ncclResult_t completed(ncclResult_t result, const Check& check);
  bool connected();
  /// Runs `end`, at most that long.
  void let_go(ncclResult_t (*end)(ncclComm_t), std::chrono::milliseconds limit, const Check& check);
  int gpu_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
};

/// NCCL sees a rank that died as a broken connection, and often first; the control channel knows its name and reason.
/// Waits for that some seconds: `check` throws it.
void wait_for_cause(const Check& check);

}  // namespace shardgrad::dist
