#pragma once
// The device whose kernels are tested: cpu, or what SHARDGRAD_TEST_DEVICE says. Kernels of cpu and sim work on any
// memory of this process; a GPU reaches the pinned memory that operands are then made of, so that the same code fills
// and reads them.

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <utility>

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

/// Memory that host and device under test both reach; zeros at first.
class ReachableBytes {
 public:
  explicit ReachableBytes(size_t size = 0) : size_(size), data_(take(size)) { std::fill_n(data_, size, '\0'); }
  ReachableBytes(const ReachableBytes& other) : size_(other.size_), data_(take(size_)) {
    std::copy_n(other.data_, size_, data_);
  }
  ReachableBytes& operator=(ReachableBytes other) noexcept {
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~ReachableBytes() {
    if (size_ == 0) return;
    if (test_device() == DeviceKind::cuda)
      PinnedMemory::get().give(data_, size_);
    else
      ::operator delete(data_);
  }
  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  bool operator==(const ReachableBytes& other) const {
    return size_ == other.size_ && (size_ == 0 || std::memcmp(data_, other.data_, size_) == 0);
  }

 private:
  static char* take(size_t size) {
    if (size == 0) return nullptr;
    return static_cast<char*>(test_device() == DeviceKind::cuda ? PinnedMemory::get().take(size)
                                                                : ::operator new(size));
  }
  size_t size_ = 0;
  char* data_ = nullptr;
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
