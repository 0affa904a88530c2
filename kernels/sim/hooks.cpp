// The functions that a compiler calls for every access in code compiled with -fsanitize=thread. They are the
// sanitizer's interface, here with the simulator behind it. Outside a simulated thread they do nothing.

#include <string>

#include <shardgrad/kernels/sim/machine.h>

namespace shardgrad::sim {
namespace {

inline void observe(const void* at, size_t bytes, Access how, const void* from, bool aligned) {
  if (Machine* machine = Machine::running())
    machine->access(reinterpret_cast<uintptr_t>(at), bytes, how, reinterpret_cast<uintptr_t>(from) - 1, aligned);
}

}  // namespace

void note_access(const void* at, size_t bytes, bool write, const void* from) {
  observe(at, bytes, write ? Access::write : Access::read, from, true);
}

void copy_later(void* to, const void* from, size_t bytes, const void* code) {
  Machine::running()->copy_later({static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes,
                                  reinterpret_cast<Code>(code) - 1, 0});
}
void close_copies() { Machine::running()->close_copies(); }
void await_copies(int still_open) { Machine::running()->await_copies(still_open); }

// --- what the compiler checks itself (-fsanitize=bounds,alignment): the layout of what it tells is its own -----------

struct CheckedType {
  uint16_t kind, info;  // of integers: log2 of the bits, and in bit 0 whether they have a sign
  char name[1];
};
struct CheckedPlace {
  const char* file;
  unsigned line, column;
};
struct CheckedIndex {
  CheckedPlace at;
  const CheckedType *array, *index;
};
struct CheckedPointer {
  CheckedPlace at;
  const CheckedType* type;
  uint8_t log_alignment, use;
};

[[noreturn]] void refuse(const CheckedPlace& at, const std::string& what) {
  if (Machine* machine = Machine::running()) machine->fault({machine->places().code_of({at.file, at.line}), what});
  fail_as(ErrorKind::internal, at.file, ':', at.line, ": ", what);
}

}  // namespace shardgrad::sim

using shardgrad::sim::Access;
using shardgrad::sim::observe;
using shardgrad::sim::refuse;

extern "C" {

#define SG_HOOKS(bytes)                                                                                    \
  void __tsan_read##bytes(void* p) { observe(p, bytes, Access::read, __builtin_return_address(0), true); } \
  void __tsan_write##bytes(void* p) { observe(p, bytes, Access::write, __builtin_return_address(0), true); }
SG_HOOKS(1)
SG_HOOKS(2)
SG_HOOKS(4)
SG_HOOKS(8)
SG_HOOKS(16)

#define SG_UNALIGNED_HOOKS(bytes)                                                                                     \
  void __tsan_unaligned_read##bytes(void* p) { observe(p, bytes, Access::read, __builtin_return_address(0), false); } \
  void __tsan_unaligned_write##bytes(void* p) { observe(p, bytes, Access::write, __builtin_return_address(0), false); }
SG_UNALIGNED_HOOKS(2)
SG_UNALIGNED_HOOKS(4)
SG_UNALIGNED_HOOKS(8)
SG_UNALIGNED_HOOKS(16)

void __tsan_read_range(void* p, size_t bytes) { observe(p, bytes, Access::read, __builtin_return_address(0), false); }
void __tsan_write_range(void* p, size_t bytes) { observe(p, bytes, Access::write, __builtin_return_address(0), false); }

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// std::atomic in the host's part of a .cu file: plain atomics.
#define SG_ATOMIC_HOOKS(bits, T)                                                                                    \
  T __tsan_atomic##bits##_load(const volatile T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }         \
  void __tsan_atomic##bits##_store(volatile T* at, T value, int) { __atomic_store_n(at, value, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) {                                                  \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                        \
  }                                                                                                                 \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int) {                                                 \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                                 \
  T __tsan_atomic##bits##_fetch_sub(volatile T* at, T value, int) {                                                 \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T value, int, int) {               \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, T value, int, int) {                 \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
  }
SG_ATOMIC_HOOKS(8, uint8_t)
SG_ATOMIC_HOOKS(32, uint32_t)
SG_ATOMIC_HOOKS(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

void __ubsan_handle_out_of_bounds(const shardgrad::sim::CheckedIndex* index, uintptr_t value) {
  int unused = 64 - (1 << (index->index->info >> 1));
  auto signed_value = static_cast<int64_t>(uint64_t(value) << unused) >> unused;
  std::string number = index->index->info & 1 ? std::to_string(signed_value) : std::to_string(value);
  refuse(index->at, "uses element " + number + " of an array " + index->array->name);
}
void __ubsan_handle_type_mismatch_v1(const shardgrad::sim::CheckedPointer* pointer, uintptr_t) {
  refuse(pointer->at, shardgrad::concat("uses an address that is not a multiple of ", 1 << pointer->log_alignment,
                                        " for ", pointer->type->name));
}

// clang calls these for copies of memory.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  observe(from, bytes, Access::read, __builtin_return_address(0), false);
  observe(to, bytes, Access::write, __builtin_return_address(0), false);
  return __builtin_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  observe(from, bytes, Access::read, __builtin_return_address(0), false);
  observe(to, bytes, Access::write, __builtin_return_address(0), false);
  return __builtin_memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  observe(to, bytes, Access::write, __builtin_return_address(0), false);
  return __builtin_memset(to, value, bytes);
}

}  // extern "C"
