#include <shardgrad/core/backend.h>

#include <dlfcn.h>

#include <cstring>
#include <mutex>

#include <shardgrad/core/context.h>
#include <shardgrad/core/host_capture.h>
#include <shardgrad/core/memory_apart.h>

namespace shardgrad {
namespace {

// Devices cpu, acc, sim and meta; they differ in the kind of compute stream and in the allocator.
class HostBackend final : public Backend {
 public:
  HostBackend(Device device, Context& context, Ref<Allocator> memory, bool inline_compute)
      : Backend(device, std::move(memory)), context_(context) {
    std::string name = concat(device, "/compute");
    compute_ = inline_compute ? make_inline_stream(context, name) : make_thread_stream(context, name);
  }
  Stream& compute() override { return *compute_; }
  std::unique_ptr<Stream> make_stream(std::string name) override { return make_thread_stream(context_, name); }
  std::unique_ptr<Capture> make_capture() override {
    if (!is_emulated(device().kind)) return Backend::make_capture();
    return make_host_capture(*this, Ref<CaptureMemory>(static_cast<CaptureMemory*>(memory().get())));
  }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    if (device() == kMeta) return;
    Access accesses[] = {{to, bytes, true}, {from, bytes, false}};
    stream.run(
        "copy", [=] { std::memcpy(to, from, bytes); }, accesses);
  }

 private:
  Context& context_;
  std::unique_ptr<Stream> compute_;
};

// An emulated device's, of which steps may be captured.
std::unique_ptr<Backend> make_emulated(Device device, Context& context, Ref<Allocator> own,
                                       std::shared_ptr<MemorySource> source, size_t large) {
  auto memory = make_ref<CaptureMemory>(std::move(own), Reuse::poisoned, std::move(source), large);
  return std::make_unique<HostBackend>(device, context, std::move(memory), false);
}

// Device sim has its kernels in a library of their own, which enters them into the kernel table as it is loaded.
void load_simulator() {
  static std::once_flag loaded;
  std::call_once(loaded, [] {
    if (!dlopen("libshardgrad_sim_kernels.so", RTLD_NOW | RTLD_LOCAL))
      fail_as(ErrorKind::missing, "device sim: its kernels cannot be loaded: ", dlerror(),
              "; build them with: cmake --build BUILD_FOLDER --target shardgrad_sim_kernels");
  });
}

}  // namespace

const Ref<Allocator>& Backend::host_memory() { return device_ == kMeta ? memory_ : context().backend(kCpu).memory(); }

std::unique_ptr<Capture> Backend::make_capture() {
  fail("a step cannot be captured on device ", device_, ", which ",
       has_values(device_) ? "runs it in the caller's thread and would gain nothing" : "computes nothing",
       "; run it without StepGraph, or on device cuda or sim");
}

std::unique_ptr<Backend> make_backend(Device device, Context& context) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return std::make_unique<HostBackend>(device, context, make_caching_allocator(device, Reuse::when_done), true);
    case DeviceKind::sim:
      load_simulator();
      return make_emulated(device, context, make_allocator_apart(device, Reuse::poisoned), memory_apart(), kNeverCut);
    case DeviceKind::acc:
      return make_emulated(device, context, make_caching_allocator(device, Reuse::poisoned), system_memory(), 0);
    case DeviceKind::meta:
      return std::make_unique<HostBackend>(device, context, make_null_allocator(device), true);
    case DeviceKind::cuda:
      return make_cuda_backend(device, context);
  }
  fail_as(ErrorKind::internal, "there is no device of kind ", int(device.kind));
}

}  // namespace shardgrad
