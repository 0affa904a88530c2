// Device `cuda`: one GPU.

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>

#include <shardgrad/core/context.h>
#include <shardgrad/core/cuda/capture.h>
#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/launching.h>
#include <shardgrad/core/cuda/memory.h>
#include <shardgrad/core/cuda/pinned.h>
#include <shardgrad/core/cuda/stream.h>
#include <shardgrad/core/cuda/survey.h>
#include <shardgrad/core/environment.h>

namespace shardgrad {
namespace {

constexpr size_t kChunk = size_t(64) << 20, kPinnedChunk = size_t(4) << 20;
constexpr int kLeastCapability = 80;  // bf16 on tensor cores; as in cmake/find_cuda.cmake

int attribute(int device, cudaDeviceAttr what) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, what, device), "reading an attribute of the GPU");
  return value;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device device, Context& context, int number, bool check, std::shared_ptr<CudaArena> arena)
      : Backend(device, memory_of(device, check, arena)),
        context_(context),
        number_(number),
        check_(check),
        arena_(std::move(arena)),
        pool_(std::make_shared<CudaEventPool>(device, number)),
        pinned_(make_pinned_allocator(context, pool_,
                                      std::make_shared<CudaArena>(number, CudaArena::Kind::pinned_host, kPinnedChunk))),
        compute_(std::make_unique<CudaStream>(context, concat(device, "/compute"), pool_, false, check)),
        host_copies_(make_stream(concat(device, "/copies of host streams"))) {}

  Stream& compute() override { return *compute_; }
  std::unique_ptr<Stream> make_stream(std::string name) override {
    return std::make_unique<CudaStream>(context_, std::move(name), pool_, true, check_);
  }
  const Ref<Allocator>& host_memory() override { return pinned_; }
  std::unique_ptr<Capture> make_capture() override {
    SG_CHECK(!check_,
             "a step cannot be captured where SHARDGRAD_CHECK=1 waits for each piece of work; unset it, or run ",
             "the step without StepGraph");
    return make_cuda_capture(*this, Ref<CaptureMemory>(static_cast<CaptureMemory*>(memory().get())));
  }

  DeviceInfo info() const override {
    DeviceInfo info;
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, number_), "reading the GPU's properties");
    use_gpu(number_);
    check_cuda(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "reading the GPU's memory");
    info.name = properties.name;
    info.capability = properties.major * 10 + properties.minor;
    info.memory_requests = arena_->requests();
    info.number = number_;
    char address[32] = {};
    check_cuda(cudaDeviceGetPCIBusId(address, sizeof(address), number_), "reading where the GPU is");
    info.address = address;
    return info;
  }

  uint64_t begin_range(const char* what, const std::string& of) override {
    return nvtxRangeStartA(concat(what, ' ', of).c_str()) + 1;
  }
  void end_range(uint64_t range) override { nvtxRangeEnd(range - 1); }

  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    Access accesses[] = {{to, bytes, true}, {from, bytes, false}};
    if (stream.native())
      return stream.run(
          "copy", [&] { queue_copy(stream, to, from, bytes); }, accesses);
    // A stream of the host: when its turn comes, the copy is made and waited for.
    auto work = [this, to, from, bytes] {
      host_copies_->run("copy", [&] { queue_copy(*host_copies_, to, from, bytes); });
      host_copies_->synchronize();
    };
    stream.run("copy", work, accesses);
  }

 private:
  static Ref<Allocator> memory_of(Device device, bool check, std::shared_ptr<CudaArena> arena) {
    if (check) return make_ref<WatchedAllocator>(device, std::move(arena));
    return make_ref<CaptureMemory>(make_caching_allocator(device, Reuse::ordered, arena), Reuse::ordered, arena);
  }

  static void queue_copy(const Stream& stream, void* to, const void* from, size_t bytes) {
    auto* handle = static_cast<cudaStream_t>(stream.native());
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle), concat("copying ", bytes, " bytes"));
  }

  Context& context_;
  int number_;
  bool check_;
  std::shared_ptr<CudaArena> arena_;
  std::shared_ptr<CudaEventPool> pool_;
  Ref<Allocator> pinned_;
  std::unique_ptr<Stream> compute_, host_copies_;
};

int driver_version() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return driver;
}

// The first number in the list that is no GPU's hides all from there on.
std::string why_none_is_visible() {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  return !list ? "none is visible"
               : concat("none is visible, for CUDA_VISIBLE_DEVICES is '", list,
                        "', which begins with no GPU of this machine; nvidia-smi -L lists them");
}

std::string why_no_device(cudaError_t status) {
  int driver = driver_version(), runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  auto version = [](int number) { return concat(number / 1000, ".", number % 1000 / 10); };
  if (driver == 0) return "no CUDA device: no NVIDIA driver is loaded on this machine";
  if (status == cudaErrorInsufficientDriver)
    return concat("no CUDA device: the NVIDIA driver supports CUDA ", version(driver), ", this build needs ",
                  version(runtime), "; update the driver");
  bool none = status == cudaSuccess || status == cudaErrorNoDevice;
  return concat("no CUDA device: ", none ? why_none_is_visible() : describe(status));
}

int capability_of(int gpu) {
  return attribute(gpu, cudaDevAttrComputeCapabilityMajor) * 10 + attribute(gpu, cudaDevAttrComputeCapabilityMinor);
}

// Why this build has nothing that runs on such a GPU; empty when it has.
std::string why_not_on(int capability) {
  if (capability < kLeastCapability)
    return concat("this machine's GPU has compute capability ", capability / 10, '.', capability % 10,
                  "; device cuda needs 8.0 or newer: use device=cpu");
  if (runs_on(SHARDGRAD_CUDA_ARCHITECTURES, capability)) return "";
  return concat("this build has GPU code for ", SHARDGRAD_CUDA_ARCHITECTURES,
                ", which does not run on this machine's GPU (it needs ", capability,
                "); configure again with -DCMAKE_CUDA_ARCHITECTURES=", capability);
}

// The first call of CUDA, which then reads the variable: of its own accord it has 8 connections to a GPU, and streams
// that share one wait for each other. Compute, copies and groups are more streams than that, ordered by events alone,
// so each gets one of the 32 that a GPU has.
cudaError_t count_gpus(int& count) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return cudaGetDeviceCount(&count);
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (count_gpus(count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

int cuda_number_of(Device device, const Context& context) {
  int local = context.options().local_rank;
  return ((local >= 0 ? local : context.rank()) + device.index) % std::max(cuda_device_count(), 1);
}

void wait_for_gpu(int number) noexcept {
  int before = number;
  cudaGetDevice(&before);  // it is the caller's to choose
  use_gpu(number);
  if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();  // a fault is told by who works there next
  use_gpu(before);
}

CudaSurvey survey_cuda() {
  int count = 0;
  cudaError_t status = count_gpus(count);
  CudaSurvey survey{.built = true, .driver = driver_version()};
  if (status != cudaSuccess || count == 0) survey.why_not = why_no_device(status);
  cudaGetLastError();
  for (int gpu = 0; survey.why_not.empty() && gpu < count; ++gpu) {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, gpu), "reading the GPU's properties");
    int capability = capability_of(gpu);
    survey.gpus.push_back({properties.name, capability, properties.totalGlobalMem, why_not_on(capability)});
  }
  return survey;
}

std::unique_ptr<Backend> make_cuda_backend(Device device, Context& context) {
  int count = 0;
  cudaError_t status = count_gpus(count);
  if (status != cudaSuccess || count == 0) fail_as(ErrorKind::missing, why_no_device(status));
  if (device.index >= count)
    fail_as(ErrorKind::missing, "device ", device, ": this process sees ", count, count == 1 ? " GPU" : " GPUs");
  int number = cuda_number_of(device, context);
  if (std::string why = why_not_on(capability_of(number)); !why.empty()) fail_as(ErrorKind::missing, why);
  bool check = environment_flag(kCheckChoice);
  auto arena = std::make_shared<CudaArena>(number, CudaArena::Kind::device, kChunk);
  return std::make_unique<CudaBackend>(device, context, number, check, std::move(arena));
}

}  // namespace shardgrad
