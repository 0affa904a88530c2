#pragma once
// Streams and events of one GPU.

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <shardgrad/core/device.h>
#include <shardgrad/core/stream.h>

namespace shardgrad {

class CudaStream;

/// What the streams of one GPU share: events that are made once and used again, and a list of the streams.
class CudaEventPool {
 public:
  /// `gpu`: the number that CUDA has for the device.
  CudaEventPool(Device device, int gpu) : device_(device), gpu_(gpu) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  cudaError_t get(cudaEvent_t& event);
  void put(cudaEvent_t event) noexcept;
  Device device() const { return device_; }
  int gpu() const { return gpu_; }

  void enter(CudaStream& stream);
  void leave(CudaStream& stream) noexcept;
  /// An event of each stream: when all have happened, nothing that is queued now runs any more.
  std::vector<Event> record_all();

 private:
  Device device_;
  int gpu_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
  std::mutex streams_mutex_;
  std::vector<CudaStream*> streams_;
};

/// How far a stream has come, for marks that may outlive it.
class CudaTail;

class CudaStream final : public Stream {
 public:
  /// An urgent stream's kernels go first where others wait for room on the GPU: transfers, which compute waits for.
  /// With `check`, every piece of work is waited for, so that a fault is thrown where it was launched.
  CudaStream(Context& context, std::string name, std::shared_ptr<CudaEventPool> pool, bool urgent, bool check);
  ~CudaStream() override;
  /// Never throws for a fault of the device: a stream that records after one gives an event whose waits throw it.
  Event record() override;
  Event mark() override;
  /// An event of the host's streams is waited for here and now.
  void wait(const Event& event) override;
  void notify(std::function<void()> note) override;
  std::unique_ptr<StreamTimer> make_timer() override;
  /// Its work is recorded from now on (core/cuda/capture.cpp), or no longer; it has done what was queued.
  void capture(bool on);
  const std::shared_ptr<CudaEventPool>& events() const { return pool_; }

 protected:
  void before_launch(const char* label) override;
  void after_launch() noexcept override;
  void check_launch(const char* label) override;

 private:
  cudaStream_t handle() const { return static_cast<cudaStream_t>(native_); }
  std::shared_ptr<CudaEventPool> pool_;
  bool check_;
  std::shared_ptr<CudaTail> tail_;
};

}  // namespace shardgrad
