#pragma once
// Subnormal numbers (below 1.2e-38 in f32) count as zeros of their sign wherever the library computes: they take the
// processor a hundred cycles each and mean nothing to training. The mode belongs to a thread. One that has a Context
// flushes until it has none again, and so do the threads of the library, and OpenMP's while they run a kernel; those
// that have run a product of a library (oneDNN) flush for good.

#include <cstdint>

namespace shardgrad {

/// How this thread treats subnormals, for a scope.
class SubnormalMode {
 public:
  explicit SubnormalMode(bool flush) : before_(mode()) { set_mode(flush ? before_ | kFlush : before_ & ~kFlush); }
  ~SubnormalMode() { set_mode((mode() & ~kFlush) | (before_ & kFlush)); }
  SubnormalMode(const SubnormalMode&) = delete;

  /// For threads that do nothing else.
  static void flush_for_good() { set_mode(mode() | kFlush); }

 private:
#if defined(__SSE2__)
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0x8040;  // results (FTZ) and operands (DAZ)
  static Mode mode() { return __builtin_ia32_stmxcsr(); }
  static void set_mode(Mode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = Mode(1) << 24;  // FZ: both
  static Mode mode() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif
  Mode before_;
};

struct FlushSubnormals : SubnormalMode {
  FlushSubnormals() : SubnormalMode(true) {}
};
/// For oracles.
struct KeepSubnormals : SubnormalMode {
  KeepSubnormals() : SubnormalMode(false) {}
};

}  // namespace shardgrad
