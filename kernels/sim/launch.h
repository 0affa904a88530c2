#pragma once
// What the simulator runs: a grid of a kernel. It runs in the calling thread, blocks one after another, a block's
// threads as fibres, to the end. Used through kernels/cuda/launch.h.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 index) : x(index.x), y(index.y), z(index.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// Of this library; null where it has no such functions.
extern "C" {
[[gnu::weak, gnu::visibility("hidden")]] extern const char* const __start___patchable_function_entries[];
[[gnu::weak, gnu::visibility("hidden")]] extern const char* const __stop___patchable_function_entries[];
}

namespace shardgrad::sim {

/// Grid, block, and bytes of dynamic shared memory.
struct Config {
  dim3 grid, block;
  size_t shared = 0;
};

// What this compiler puts into local variables that their code does not set (-ftrivial-auto-var-init=pattern).
#ifdef __clang__
constexpr uint64_t kUnsetLocal = ~uint64_t(0);
#else
constexpr uint64_t kUnsetLocal = 0xfefefefefefefefeu;
#endif

/// A kernel that some launch() of this program names. Entered while the program loads, so that a test can tell which
/// kernels never ran.
class KernelRecord {
 public:
  KernelRecord(const char* pretty, const void* entry, std::span<const char* const> bounded, uint64_t unset_local);
  const std::string& name() const { return name_; }
  /// The most threads of a block that its __launch_bounds__ allows; 0 where it has none.
  int most_threads() const { return most_threads_; }
  /// What its floats hold that nobody has set.
  uint64_t unset_local() const { return unset_local_; }
  uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }
  void count() { launches_.fetch_add(1, std::memory_order_relaxed); }
  /// All of them, as a linked list.
  static const KernelRecord* first();
  const KernelRecord* next() const { return next_; }

 private:
  std::string name_;
  int most_threads_;
  uint64_t unset_local_;
  std::atomic<uint64_t> launches_{0};
  const KernelRecord* next_;
};

template <auto Kernel> const char* pretty_name() { return __PRETTY_FUNCTION__; }
/// The library's functions with __launch_bounds__ (language.h): where the bytes before each of them begin. In every
/// library that asks, its own: another one's function of this name would see hidden symbols that are not its caller's.
[[gnu::visibility("hidden"), gnu::always_inline]] inline std::span<const char* const> bounded_functions() {
  return {__start___patchable_function_entries, __stop___patchable_function_entries};
}
template <auto Kernel> struct RecordOf {
  static inline KernelRecord record{pretty_name<Kernel>(), reinterpret_cast<const void*>(Kernel), bounded_functions(),
                                    kUnsetLocal};
};

/// Runs body(data) once for every thread of the grid; `bytes` is the size of data, the kernel's arguments. Throws
/// Error(internal) on the first fault.
void run_grid(KernelRecord& kernel, const Config& config, void (*body)(const void*), const void* data, size_t bytes);

template <class Body> void run_kernel(KernelRecord& kernel, const Config& config, const Body& body) {
  run_grid(
      kernel, config, [](const void* data) { (*static_cast<const Body*>(data))(); }, &body, sizeof(body));
}

}  // namespace shardgrad::sim
