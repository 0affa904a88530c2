#include <shardgrad/kernels/sim/fibre.h>

#include <sys/mman.h>

#include <shardgrad/core/error.h>

namespace shardgrad::sim {

#ifdef SG_UCONTEXT_FIBRES

void prepare(Point& point, void* stack, size_t bytes, void (*entry)()) {
  getcontext(&point.context);
  point.context.uc_stack.ss_sp = stack;
  point.context.uc_stack.ss_size = bytes;
  point.context.uc_link = nullptr;
  makecontext(&point.context, entry, 0);
}
void switch_to(Point& from, Point& to) { swapcontext(&from.context, &to.context); }

#else

// shardgrad_sim_switch(&from, to): saves what a called function must preserve on the stack that is left, and takes it
// back from the one that is entered.
asm(R"(
  .pushsection .text
  .globl shardgrad_sim_switch
  .hidden shardgrad_sim_switch
  .type shardgrad_sim_switch, @function
shardgrad_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size shardgrad_sim_switch, . - shardgrad_sim_switch
  .popsection
)");
extern "C" void shardgrad_sim_switch(void** from, void* to);

void prepare(Point& point, void* stack, size_t bytes, void (*entry)()) {
  // What the first switch finds: six registers, the entry to return to, and a null return address that ends backtraces.
  void** top = reinterpret_cast<void**>(static_cast<char*>(stack) + bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  point.stack_pointer = top;
}
void switch_to(Point& from, Point& to) { shardgrad_sim_switch(&from.stack_pointer, to.stack_pointer); }

#endif

Stacks::Stacks(int count) : bytes_(size_t(count) * (kBytes + kGuard)) {
  void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SG_CHECK(data != MAP_FAILED, "simulator: no address space for the stacks of ", count, " threads");
  base_ = static_cast<char*>(data);
}
void Stacks::guard(int count) {
  for (; guarded_ < count; ++guarded_) mprotect(base_ + size_t(guarded_) * (kBytes + kGuard), kGuard, PROT_NONE);
}
Stacks::~Stacks() { munmap(base_, bytes_); }

}  // namespace shardgrad::sim
