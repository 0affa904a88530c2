#pragma once
// The device seam: memory, streams, events and copies of one device. Everything that differs between devices is behind
// this interface, the kernel table (kernels/table.h) and the process groups (dist/group/process_group.h).
//
// Device `acc` is host memory that behaves like an accelerator: every stream, compute too, is a thread; freed memory is
// poisoned and reused in stream order; the happens-before checker is on; the host may not look at memory directly. It
// gives tests on any machine what CUDA has: asynchronous compute, separate memory, and bugs from freeing too early.
// Device `sim` is the same with the kernels of `cuda`. Device `cuda` is one GPU: number
// (rank on its machine) % GPUs.

#include <memory>
#include <string>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/device.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/core/stream.h>

namespace shardgrad::Category {
inline constexpr Kind pinned_host = named<"pinned_host">;  ///< what waits in Backend::host_memory
}

namespace shardgrad {

class Capture;
class Context;

/// A device failed in a piece of work, or refused it.
class DeviceFault : public Error {
 public:
  using Error::Error;
};

/// What a device says of itself; empty or zero where it has nothing to say.
struct DeviceInfo {
  std::string name;
  int capability = 0;                      ///< of a GPU: 10 · major + minor
  int number = 0;                          ///< which GPU of those this process sees
  std::string address;                     ///< of a GPU: where it is plugged in, the same for every process
  size_t total_bytes = 0, free_bytes = 0;  ///< the whole device's
  int64_t memory_requests = 0;             ///< how often memory was asked of the driver so far
};

class Backend {
 public:
  virtual ~Backend() = default;
  Device device() const { return device_; }
  /// The stream that operations run on.
  virtual Stream& compute() = 0;
  /// A further stream that runs beside compute; for communication and copies.
  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;
  const Ref<Allocator>& memory() const { return memory_; }
  /// Host memory that copies to and from this device are fastest with (pinned, for a GPU). What the host gives back is
  /// not used again before the GPU has done all that was queued.
  virtual const Ref<Allocator>& host_memory();
  virtual DeviceInfo info() const { return {}; }
  /// A profiler of this device shows the host's time from here to end_range as "WHAT OF"; ranges may overlap. 0: there
  /// is none.
  virtual uint64_t begin_range(const char*, const std::string&) { return 0; }
  virtual void end_range(uint64_t) {}
  /// Queues a copy of bytes within this device, or between it and host memory.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;
  /// For steps that are recorded once and run again many times (core/step_graph.h). Throws Error(input) where a device
  /// cannot, with the remedy.
  virtual std::unique_ptr<Capture> make_capture();
  /// True when queued work on a thread of the host may read and write this memory: everywhere but on a GPU.
  bool addressable() const { return device_.kind != DeviceKind::cuda; }

 protected:
  Backend(Device device, Ref<Allocator> memory) : device_(device), memory_(std::move(memory)) {}

 private:
  Device device_;
  Ref<Allocator> memory_;
};

std::unique_ptr<Backend> make_backend(Device device, Context& context);

/// The GPUs that this process may use; 0 without a driver, and in builds without CUDA.
int cuda_device_count();
/// Which of them a device `cuda` of the context is: that of its rank on this machine, and those after it.
int cuda_number_of(Device device, const Context& context);
/// Waits until a GPU, by the number that CUDA has for it, has run all that this process has given it, whoever did.
void wait_for_gpu(int number) noexcept;
/// Throws Error(missing) that says what is not there: CUDA in this build, a driver, a GPU, or code for that GPU.
std::unique_ptr<Backend> make_cuda_backend(Device device, Context& context);

}  // namespace shardgrad
