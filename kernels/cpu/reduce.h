#pragma once
// Sums in a fixed order. Over a range: chunks of one size, their sums, which are doubles, added one after the other.
// Over the rows of a matrix: chunks of one size, their sums added in pairs, so that many rows lose no more than few.

#include <cstring>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {

inline constexpr int64_t kSumChunk = 8192;

/// Σ of chunk(begin, n) -> double over chunks of [0, count). The chunks, not the threads, decide the order. An item
/// costs as much as `cost` cheap elements.
template <class Chunk>
double sum_chunks(int threads, int64_t count, const Chunk& chunk, int64_t size = kSumChunk, int64_t cost = 1) {
  int64_t chunks = (count + size - 1) / size, grain = grain_for(size * cost);
  double total = 0;
  if (threads == 1 || chunks < 2 * grain) {
    for (int64_t i = 0; i < count; i += size) total += chunk(i, std::min(size, count - i));
    return total;
  }
  Workspace workspace(kCpu, size_t(chunks) * sizeof(double));
  double* sums = workspace.as<double>();
  parallel_for(threads, chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = chunk(i * size, std::min(size, count - i * size));
  });
  for (int64_t i = 0; i < chunks; ++i) total += sums[i];
  return total;
}

/// Adds up parts of `width` sums each, which lie as (outer, parts, width) in f32 or f64, by a tree of neighbours. The
/// sums of each outer index are left in its first part.
inline void add_parts(int threads, DType dtype, char* sums, int64_t outer, int64_t parts, int64_t width) {
  auto add_rows = loops().reduce.add_rows[int(dtype)];
  int64_t bytes = width * int64_t(size_of(dtype));
  for (int64_t step = 1; step < parts; step *= 2) {
    int64_t pairs = (parts - step + 2 * step - 1) / (2 * step);
    parallel_for(threads, outer * pairs, grain_for(width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        char* left = sums + (i / pairs * parts + i % pairs * 2 * step) * bytes;
        add_rows(left, left + step * bytes, 1, width, width);
      }
    });
  }
}

inline constexpr int64_t kRowChunk = 128;

/// Sums over the rows of a matrix, `width` of them, in f32 (f64 for f64), in a fixed order: chunks of kRowChunk rows,
/// then the chunks' sums by add_parts.
class RowSums {
 public:
  /// add(sums, first_row, count) adds rows to sums; `cost` is the elements of work per row.
  template <class Add>
  RowSums(int threads, DType dtype, int64_t rows, int64_t width, int64_t cost, const Add& add)
      : size_(dtype == DType::f64 ? 8 : 4),
        chunks_(std::max<int64_t>(1, (rows + kRowChunk - 1) / kRowChunk)),
        memory_(kCpu, size_t(chunks_ * width * size_)) {
    char* sums = memory_.as<char>();
    parallel_for(threads, chunks_, grain_for(kRowChunk * cost), [&](int64_t begin, int64_t end) {
      std::memset(sums + begin * width * size_, 0, size_t((end - begin) * width * size_));
      for (int64_t i = begin; i < end; ++i)
        add(sums + i * width * size_, i * kRowChunk, std::min(kRowChunk, rows - i * kRowChunk));
    });
    add_parts(threads, size_ == 8 ? DType::f64 : DType::f32, sums, 1, chunks_, width);
  }
  void* at(int64_t index) const { return memory_.as<char>() + index * size_; }

 private:
  int64_t size_, chunks_;
  Workspace memory_;
};

}  // namespace shardgrad::cpu
