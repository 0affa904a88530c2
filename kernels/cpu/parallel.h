#pragma once
// Divides a range among OpenMP threads, or runs it here: when built without OpenMP, with one thread, or when the work
// is too small to pay for waking threads. Nothing may depend on where the cuts fall.

#include <algorithm>
#include <cstdint>

#include <shardgrad/core/float_mode.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad::cpu {

/// Elements of cheap work below which threads do not pay.
inline constexpr int64_t kSerialElements = 32768;

/// The number of items of `cost` elements each that one thread should get at least.
inline int64_t grain_for(int64_t cost) { return std::max<int64_t>(1, kSerialElements / std::max<int64_t>(cost, 1)); }

/// Calls fn(begin, end) for disjoint ranges that make up [0, n), cut at multiples of `align`; at least `grain` items
/// per call. fn must not throw when it may run on another thread.
template <class Fn> void parallel_for(int threads, int64_t n, int64_t grain, const Fn& fn, int64_t align = 1) {
#if defined(_OPENMP)
  int64_t parts = std::min<int64_t>(threads, n / std::max<int64_t>(grain, 1));
  if (parts > 1) {
    best_isa();  // what it throws for an unknown SHARDGRAD_ISA is thrown here, and not by another thread
    int64_t each = (((n + parts - 1) / parts + align - 1) / align) * align;
#pragma omp parallel for num_threads(int(parts)) schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part) {
      FlushSubnormals flush;  // as the thread that launched the kernel
      if (part * each < n) fn(part * each, std::min(n, (part + 1) * each));
    }
    return;
  }
#endif
  (void)threads, (void)grain, (void)align;
  if (n > 0) fn(int64_t(0), n);
}

/// parallel_for over n elements of cheap work, cut at cache lines.
template <class Fn> void parallel_elements(int threads, int64_t n, const Fn& fn) {
  parallel_for(threads, n, kSerialElements, fn, 64);
}

}  // namespace shardgrad::cpu
