#pragma once
// How convolutions cut images into parts that fit a cache, and parts among threads.

#include <algorithm>

#include <shardgrad/kernels/cpu/convolution_image.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {

inline constexpr int64_t kCached = 1 << 18;  ///< numbers that a thread works on at a time

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
template <class T> inline constexpr int kType = std::is_same_v<T, double>;  ///< of the loops for f32 and f64

/// Calls run(task, memory) for every task; each thread has memory for `size` numbers.
template <class T, class Run> void for_tasks(int threads, int64_t tasks, int64_t size, const Run& run) {
  if (tasks == 0) return;
  int64_t parts = std::min<int64_t>(threads, tasks), each = round_up(size, 16), share = (tasks + parts - 1) / parts;
  Workspace workspace(kCpu, size_t(parts * each) * sizeof(T));
  parallel_for(int(parts), parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin * share; task < std::min(tasks, end * share); ++task)
      run(task, workspace.as<T>() + begin * each);
  });
}

/// How many places down and across are computed at a time, of which each takes `numbers`.
struct Bands {
  int64_t rows, cols, down, across;
  Bands(const Axis& y, const Axis& x, int64_t numbers, int64_t at_least, int64_t at_most) {
    int64_t places = std::clamp<int64_t>(kCached / std::max<int64_t>(numbers, 1), 64, at_most);
    cols = std::clamp<int64_t>(x.places, 1, places);
    rows = std::clamp<int64_t>(places / cols, 1, std::max<int64_t>(1, y.places));
    rows = std::min(rows, std::max<int64_t>(1, y.places / at_least));
    down = (y.places + rows - 1) / rows;
    across = (x.places + cols - 1) / cols;
  }
  int64_t count() const { return down * across; }
  Band at(int64_t i, const Axis& y, const Axis& x) const {
    int64_t row = i / across * rows, col = i % across * cols;
    return {row, std::min(rows, y.places - row), col, std::min(cols, x.places - col)};
  }
};

}  // namespace shardgrad::cpu
