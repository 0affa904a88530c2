#pragma once
// Stacks to run simulated threads on, and the switch between them. On x86-64 a switch saves six registers and takes a
// few nanoseconds; elsewhere it is ucontext's, which also asks the kernel for the signal mask.

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(SG_PORTABLE_FIBRES)  // a test sets it
#include <ucontext.h>
#define SG_UCONTEXT_FIBRES
#endif

namespace shardgrad::sim {

/// A point of execution that can be left and entered again.
struct Point {
#ifdef SG_UCONTEXT_FIBRES
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
};

/// Makes `point` the beginning of entry(), which must never return, on the given stack.
void prepare(Point& point, void* stack, size_t bytes, void (*entry)());
/// Leaves the running code at `from` and goes on at `to`.
void switch_to(Point& from, Point& to);

/// Stacks of one size in one piece of address space, each with a guard page below, which it gets when it is first used:
/// most threads of the host that run kernels run small blocks. Memory is used as it is touched.
class Stacks {
 public:
  static constexpr size_t kBytes = 64 * 1024;
  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  void* begin(int index) {
    if (index >= guarded_) guard(index + 1);
    return base_ + size_t(index) * (kBytes + kGuard) + kGuard;
  }
  bool contains(uintptr_t address) const { return address - uintptr_t(base_) < bytes_; }

 private:
  static constexpr size_t kGuard = 4096;
  void guard(int count);
  char* base_;
  size_t bytes_;
  int guarded_ = 0;
};

}  // namespace shardgrad::sim
