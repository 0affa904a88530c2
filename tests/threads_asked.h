#pragma once
// How many threads kernels ask for. One file of a test program may include this, since it defines what the program has
// once.

#include <dlfcn.h>

#include <algorithm>
#include <atomic>

namespace shardgrad::test {

inline std::atomic<unsigned> most_threads_asked = 1;
inline std::atomic<int> loops_of_threads = 0;  ///< that asked for more than one

inline void forget_threads() { most_threads_asked = 1, loops_of_threads = 0; }

}  // namespace shardgrad::test

// What the compiler makes of a parallel loop calls this (GNU's OpenMP); the program's definition comes before the
// library's, and passes the call on.
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  static auto next =
      reinterpret_cast<void (*)(void (*)(void*), void*, unsigned, unsigned)>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  shardgrad::test::most_threads_asked = std::max<unsigned>(shardgrad::test::most_threads_asked, threads);
  shardgrad::test::loops_of_threads += threads > 1;
  next(body, data, threads, flags);
}
