// How long a stream's work takes, between two events that have times.

#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/launching.h>
#include <shardgrad/core/cuda/stream.h>

namespace shardgrad {
namespace {

struct TimedEvent {
  TimedEvent() { check_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "making a timer"); }
  ~TimedEvent() { cudaEventDestroy(event); }
  TimedEvent(const TimedEvent&) = delete;
  cudaEvent_t event = nullptr;
};

class CudaTimer final : public StreamTimer {
 public:
  explicit CudaTimer(Stream& stream) : stream_(stream) {}
  void start() override { note(begin_); }
  void stop() override { note(end_); }
  double seconds() override {
    stream_.synchronize();
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_.event, end_.event), "reading a timer");
    return 1e-3 * double(milliseconds);
  }

 private:
  void note(const TimedEvent& at) {
    auto native = static_cast<cudaStream_t>(stream_.native());
    stream_.run("timer", [&] { check_cuda(cudaEventRecord(at.event, native), "starting or stopping a timer"); });
  }
  Stream& stream_;
  TimedEvent begin_, end_;
};

}  // namespace

std::unique_ptr<StreamTimer> CudaStream::make_timer() {
  use_gpu(pool_->gpu());
  return std::make_unique<CudaTimer>(*this);
}

}  // namespace shardgrad
