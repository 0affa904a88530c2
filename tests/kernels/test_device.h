#pragma once
// The device whose kernels are tested: cpu, or what SHARDGRAD_TEST_DEVICE says. Kernels of cpu and sim work on any
// memory of this process; a GPU reaches the pinned memory that operands are then made of, so that the same code fills
// and reads them.

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/backend.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad::test {

inline DeviceKind test_device() {
  const char* wish = std::getenv("SHARDGRAD_TEST_DEVICE");
  DeviceKind kind = wish ? parse_device(wish).kind : DeviceKind::cpu;
  // As the library does when a context asks for the device; these tests use the kernel table alone.
  if (kind == DeviceKind::sim) dlopen("libshardgrad_sim_kernels.so", RTLD_NOW | RTLD_LOCAL);
  return kind;
}

/// Host memory that the GPU reaches, of a context that lasts as long as the program.
class PinnedMemory {
 public:
  static PinnedMemory& get() {
    static auto* memory = new PinnedMemory;
    return *memory;
  }
  void* take(size_t bytes) {
    ContextScope scope(*context_);
    return memory_->allocate(bytes, backend_->compute()).data;
  }
  void give(void* data, size_t bytes) noexcept {
    ContextScope scope(*context_);
    memory_->free({data, bytes}, backend_->compute());
  }

 private:
  PinnedMemory() {
    std::thread([this] {  // a context is at first that of the thread which makes it
      context_ = new Context({.device = kCuda});
      backend_ = &context_->backend(kCuda);
      memory_ = backend_->host_memory();
    })
        .join();
  }
  Context* context_;
  Backend* backend_;
  Ref<Allocator> memory_;
};

/// For containers whose elements host and device under test both reach.
template <class T> struct Reachable {
  using value_type = T;
  Reachable() = default;
  template <class U> Reachable(const Reachable<U>&) {}
  T* allocate(size_t n) {
    size_t bytes = n * sizeof(T);
    return static_cast<T*>(test_device() == DeviceKind::cuda ? PinnedMemory::get().take(bytes) : ::operator new(bytes));
  }
  void deallocate(T* data, size_t n) noexcept {
    if (test_device() == DeviceKind::cuda)
      PinnedMemory::get().give(data, n * sizeof(T));
    else
      ::operator delete(data);
  }
  bool operator==(const Reachable&) const = default;
};

/// The slot's kernel for the device under test, as a function of (threads, operands…) that returns when it has run.
template <class... Params> auto kernel_of(Slot<Params...>& slot, DType key) {
  return [name = slot.name(), kernel = slot.find(test_device(), key)](int threads, Params... operands) {
    if (test_device() != DeviceKind::cuda) return kernel(Launch{threads}, operands...);
    Stream& stream = context().backend(kCuda).compute();
    stream.run(name, [&] { kernel(Launch{threads, stream.native()}, operands...); });
    stream.synchronize();  // which waits for what went through run
  };
}

}  // namespace shardgrad::test
