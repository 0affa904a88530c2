#pragma once
// Sums over rows or columns, in two passes: chunks of a fixed size, then the chunks in their order. So a sum has one
// order, whatever the GPU. Sums of floats accumulate in f64, of integers modulo 2^64.
//
// A `Term` adds what one element contributes: term(outer, row or position, column, sums). A `Finish` gets the sums of
// one output: finish(output, sums).

#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// The type that sums of T accumulate in.
template <class T> using Sums = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

constexpr int64_t kChunk = 4096;     ///< elements of a row that one block adds
constexpr int64_t kChunkRows = 256;  ///< rows of a column that one block adds
constexpr int kTileRows = 8;

/// Calls visit(i) for this thread's places below `count`: eight without a test between them, so that what they load is
/// on its way at a time.
template <class Visit> __device__ void each_of_thread(int count, const Visit& visit) {
  constexpr int together = 8;
  int step = int(blockDim.x), i = int(threadIdx.x);
  for (; i < count - (together - 1) * step; i += together * step) {
    SG_UNROLL
    for (int k = 0; k < together; ++k) visit(i + k * step);
  }
  for (; i < count; i += step) visit(i);
}

inline int64_t chunks_of(int64_t n, int64_t chunk) { return std::max<int64_t>(1, (n + chunk - 1) / chunk); }

/// Adds what has been summed before: the second pass. Sums lie as (outer, chunk, column, sum).
template <class A, int count> struct Partials {
  const A* from;
  int64_t chunks, cols;
  __device__ void operator()(int64_t outer, int64_t chunk, int64_t col, A* sums) const {
    for (int k = 0; k < count; ++k) sums[k] += from[((outer * chunks + chunk) * cols + col) * count + k];
  }
};
/// Keeps the sums for the second pass.
template <class A, int count> struct Keep {
  A* to;
  __device__ void operator()(int64_t output, const A* sums) const {
    for (int k = 0; k < count; ++k) to[output * count + k] = sums[k];
  }
};

// Block outer · chunks + chunk adds the positions [chunk · length, …) of n, and finishes the output of its own number.
template <class A, int count, class Term, class Finish>
__global__ void row_sums_kernel(Term term, Finish finish, int64_t n, int64_t length, int64_t chunks) {
  A sums[count] = {};
  unsigned outer = blockIdx.x / unsigned(chunks);  // there are no more chunks than blocks
  int64_t begin = blockIdx.x % unsigned(chunks) * length, end = begin + length < n ? begin + length : n;
  each_of_thread(int(end - begin), [&](int i) { term(outer, begin + i, 0, sums); });
  for (int k = 0; k < count; ++k) sums[k] = block_reduce<Sum>(sums[k]);
  if (threadIdx.x == 0) finish(blockIdx.x, sums);
}

/// output o = Σ over i < n of term(o, i, 0)
template <class A, int count, class Term, class Finish>
void sum_rows(const Launch& how, Term term, Finish finish, int64_t outer, int64_t n) {
  int64_t chunks = chunks_of(n, kChunk);
  if (chunks == 1)
    return launch<row_sums_kernel<A, count, Term, Finish>>(how, {blocks_for(outer, 1), threads_for(n)}, term, finish, n,
                                                           kChunk, chunks);
  Scratch scratch(how, size_t(outer * chunks) * count * sizeof(A));
  A* partials = scratch.as<A>();
  launch<row_sums_kernel<A, count, Term, Keep<A, count>>>(how, {blocks_for(outer * chunks, 1), kBlock}, term,
                                                          Keep<A, count>{partials}, n, kChunk, chunks);
  Partials<A, count> second{partials, chunks, 1};
  launch<row_sums_kernel<A, count, Partials<A, count>, Finish>>(how, {blocks_for(outer, 1), threads_for(chunks)},
                                                                second, finish, chunks, chunks, int64_t(1));
}

// Block ((outer · chunks + chunk) · across + part) of 32 × 8 threads adds the rows [chunk · length, …) of 32 columns: a
// thread every eighth row, then the first 32 threads add up the eight.
template <class A, int count, class Term, class Finish>
__global__ void column_sums_kernel(Term term, Finish finish, int64_t rows, int64_t cols, int64_t length, int64_t chunks,
                                   int64_t across) {
  __shared__ A tile[count][kTileRows][32];
  int64_t part = blockIdx.x / across, col = blockIdx.x % across * 32 + threadIdx.x;
  int64_t outer = part / chunks, chunk = part % chunks;
  int64_t end = (chunk + 1) * length < rows ? (chunk + 1) * length : rows;
  A sums[count] = {};
  if (col < cols)
    for (int64_t r = chunk * length + threadIdx.y; r < end; r += kTileRows) term(outer, r, col, sums);
  for (int k = 0; k < count; ++k) tile[k][threadIdx.y][threadIdx.x] = sums[k];
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  for (int y = 1; y < kTileRows; ++y)
    for (int k = 0; k < count; ++k) sums[k] += tile[k][y][threadIdx.x];
  finish(part * cols + col, sums);
}

/// The first of two passes: what the rows of each chunk add, as `Partials` has it.
template <class A, int count, class Term>
void sum_chunks_of_columns(const Launch& how, Term term, A* partials, int64_t outer, int64_t rows, int64_t cols) {
  int64_t chunks = chunks_of(rows, kChunkRows), across = blocks_for(cols, 32);
  Config config{blocks_for(outer * chunks * across, 1), dim3(32, kTileRows)};
  launch<column_sums_kernel<A, count, Term, Keep<A, count>>>(how, config, term, Keep<A, count>{partials}, rows, cols,
                                                             kChunkRows, chunks, across);
}

/// output o · cols + c = Σ over r < rows of term(o, r, c)
template <class A, int count, class Term, class Finish>
void sum_columns(const Launch& how, Term term, Finish finish, int64_t outer, int64_t rows, int64_t cols) {
  int64_t chunks = chunks_of(rows, kChunkRows);
  int64_t across = blocks_for(cols, 32), one = 1;
  Config config{blocks_for(outer * across, 1), dim3(32, kTileRows)};
  if (chunks == 1)
    return launch<column_sums_kernel<A, count, Term, Finish>>(how, config, term, finish, rows, cols, kChunkRows, chunks,
                                                              across);
  Scratch scratch(how, size_t(outer * chunks * cols) * count * sizeof(A));
  A* partials = scratch.as<A>();
  sum_chunks_of_columns<A, count>(how, term, partials, outer, rows, cols);
  Partials<A, count> second{partials, chunks, cols};
  launch<column_sums_kernel<A, count, Partials<A, count>, Finish>>(how, config, second, finish, chunks, cols, chunks,
                                                                   one, across);
}

/// The second pass of sum_columns as a part of another kernel, which spares a launch: its blocks from `first_block` on
/// do that, a thread for each column, in the order of column_sums_kernel.
template <class A, int count, class Finish> struct SecondPass {
  static constexpr int64_t kMostChunks = 64;  ///< more would take longer than what the other blocks do beside it
  Partials<A, count> partials;
  Finish finish;
  unsigned first_block = 0;

  /// Adds the blocks to those of the other kernel.
  void add_to(Config& config) {
    first_block = config.grid.x;
    int64_t blocks = blocks_for(partials.cols, int64_t(config.block.x) * config.block.y);
    config.grid.x = blocks_for(first_block + blocks, 1);
  }
  __device__ void run() const {
    int64_t col =
        int64_t(blockIdx.x - first_block) * (blockDim.x * blockDim.y) + threadIdx.y * blockDim.x + threadIdx.x;
    if (col >= partials.cols) return;
    A sums[count] = {};
    for (int first = 0; first < kTileRows; ++first) {
      A part[count] = {};
      for (int64_t chunk = first; chunk < partials.chunks; chunk += kTileRows) partials(0, chunk, col, part);
      for (int k = 0; k < count; ++k) sums[k] += part[k];
    }
    finish(col, sums);
  }
};

/// Writes one sum, times a factor, to an element of y where y is wanted.
template <class T> struct Write {
  T* y;
  bool accumulate;
  double factor = 1;
  template <class A> __device__ void operator()(int64_t output, const A* sums) const {
    if constexpr (std::is_integral_v<T>)
      store(y + output, sums[0], accumulate);
    else
      store(y + output, Compute<T>(sums[0] * factor), accumulate);
  }
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
