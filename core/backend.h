#pragma once
// The device seam: memory, streams, events and copies of one device. Everything that differs between devices is behind
// this interface, the kernel table (kernels/table.h) and the process groups (dist/process_group.h).
//
// Device `acc` is host memory that behaves like an accelerator: every stream, compute too, is a thread; freed memory is
// poisoned and reused in stream order; the happens-before checker is on; the host may not look at memory directly. It
// gives tests on any machine what CUDA has: asynchronous compute, separate memory, and bugs from freeing too early.

#include <memory>
#include <string>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/device.h>
#include <shardgrad/core/stream.h>

namespace shardgrad {

class Context;

class Backend {
 public:
  virtual ~Backend() = default;
  Device device() const { return device_; }
  /// The stream that operations run on.
  virtual Stream& compute() = 0;
  /// A further stream that runs beside compute; for communication and copies.
  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;
  const Ref<Allocator>& memory() const { return memory_; }
  /// Queues a copy of bytes within this device, or between it and host memory.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;
  /// True when the host may read this memory after synchronising (cpu only).
  bool host_accessible() const { return device_.kind == DeviceKind::cpu; }

 protected:
  Backend(Device device, Ref<Allocator> memory) : device_(device), memory_(std::move(memory)) {}

 private:
  Device device_;
  Ref<Allocator> memory_;
};

std::unique_ptr<Backend> make_backend(Device device, Context& context);

}  // namespace shardgrad
