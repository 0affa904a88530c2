#include <shardgrad/core/cuda/capture.h>

#include <utility>

#include <shardgrad/core/backend.h>
#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/launching.h>

namespace shardgrad {
namespace {

cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

CudaStream& cuda(Stream& stream) { return static_cast<CudaStream&>(stream); }

class CudaCapture final : public Capture {
 public:
  CudaCapture(Backend& backend, Ref<CaptureMemory> memory) : Capture(backend, std::move(memory)) {}
  ~CudaCapture() override {
    let_go();
    if (ready_) cudaGraphExecDestroy(ready_);
    if (graph_) cudaGraphDestroy(graph_);
  }

  Event record(Stream& stream) override {
    const std::shared_ptr<CudaEventPool>& pool = cuda(stream).events();
    cudaEvent_t event = nullptr;
    check_cuda(pool->get(event), "making an event");
    Ref<Event::State> point = make_ref<Point>(replayed(), pool, event);  // gives the event back, whatever comes
    check_cuda(cudaEventRecord(event, native(stream)), concat("recording an event on stream ", stream.name()));
    return Event(std::move(point));
  }

 private:
  struct Point final : RecordedEvent {
    Point(std::shared_ptr<Replayed> of, std::shared_ptr<CudaEventPool> pool, cudaEvent_t event)
        : RecordedEvent(std::move(of)), pool(std::move(pool)), event(event) {}
    ~Point() override { pool->put(event); }
    std::shared_ptr<CudaEventPool> pool;
    cudaEvent_t event;
  };

  // Other threads go on as ever meanwhile, and may ask the driver for memory: what would harm is refused by us.
  void begin_on(Stream& stream) override {
    use_gpu(cuda(stream).events()->gpu());
    cuda(stream).capture(true);
    cudaError_t status = cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeRelaxed);
    if (status == cudaSuccess) return;
    cuda(stream).capture(false);
    throw_cuda(status, "beginning to capture a step");
  }

  void join(Stream& stream) override {
    if (!stream.native()) refuse_in_capture(concat("stream ", stream.name(), " of the host"), "use it outside");
    if (cuda(stream).events() != cuda(compute()).events())
      refuse_in_capture(concat("stream ", stream.name(), " of another GPU"), "use it outside");
    stream.synchronize();
    cuda(stream).capture(true);
  }

  void wait_for(Stream& stream, const RecordedEvent& event) override {
    check_cuda(cudaStreamWaitEvent(native(stream), static_cast<const Point&>(event).event, 0),
               concat("stream ", stream.name(), " waiting for an event"));
  }

  void finish() override {
    cudaError_t status = cudaStreamEndCapture(native(compute()), &graph_);
    leave();
    check_cuda(status, "capturing a step");
    check_cuda(cudaGraphInstantiate(&ready_, graph_, 0), "making a graph of a captured step");
  }

  void forget() noexcept override {
    if (!left_) {
      if (cudaStreamEndCapture(native(compute()), &graph_) != cudaSuccess) graph_ = nullptr;
      cudaGetLastError();  // a later launch must not be blamed
    }
    leave();
  }

  void leave() noexcept {
    if (!std::exchange(left_, true))
      for (Stream* stream : streams()) cuda(*stream).capture(false);
  }

  void run() override {
    compute().run("replay of a step", [this] { check_cuda(cudaGraphLaunch(ready_, native(compute())), "replaying"); });
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t ready_ = nullptr;
  bool left_ = false;  // no stream is captured any more
};

}  // namespace

std::unique_ptr<Capture> make_cuda_capture(Backend& backend, Ref<CaptureMemory> memory) {
  return std::make_unique<CudaCapture>(backend, std::move(memory));
}

}  // namespace shardgrad
