// sum_to. Sums are cut into chunks of a fixed size, whatever the number of threads, so that they have one order. Over
// ranges that lie side by side: chunks of kSumChunk elements in f64, one after the other. Over rows, where the last
// dimension is kept: chunks of kChunkRows rows in f32, in pairs. Integers are exact, modulo 2^64.

#include <cstring>

#include <shardgrad/kernels/cpu/broadcast.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/reduce.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kChunkRows = 256, kColumnBlock = 512, kSideBySide = 1024;

/// A walk over some dimensions of x, the last one fastest.
struct Walk {
  int ndim = 0;
  int64_t extent[kMaxDims] = {}, stride[kMaxDims] = {}, count = 1;
  void add(int64_t n, int64_t step) {
    extent[ndim] = n;
    stride[ndim++] = step;
    count *= n;
  }
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int d = 0; d + 1 < ndim; ++d) {
      at += i % extent[d] * stride[d];
      i /= extent[d];
    }
    return ndim > 0 ? at + i * stride[ndim - 1] : 0;
  }
};

template <class T> using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

template <class T> Total<T> sum_range(DType dtype, const T* x, int64_t n) {
  if constexpr (std::is_integral_v<T>)
    return uint64_t(loops().reduce.sum_integers[int(dtype) - kFloatCount](x, n));
  else
    return loops().reduce.sum[int(dtype)](x, n);
}

/// The last dimension is summed: of each result's ranges, which have `length` elements, a chunk is some whole ones or a
/// part of one. Neighbours are summed together, so that x is read in long runs.
template <class T> struct RangeSums {
  OutView y;
  const T* x;
  DType dtype;
  Walk kept, ranges;
  int64_t length;

  int64_t whole = std::max<int64_t>(1, kSumChunk / length), parts = (length + kSumChunk - 1) / kSumChunk;
  int64_t chunks = (ranges.count + whole - 1) / whole * parts;
  int64_t block = std::max<int64_t>(1, kSideBySide / length), blocks = (kept.count + block - 1) / block;

  /// Adds a chunk of the results [begin, end) to their sums.
  void add(int64_t chunk, int64_t begin, int64_t end, Total<T>* sums) const {
    int64_t at = chunk % parts * kSumChunk, n = std::min(kSumChunk, length - at);
    int64_t first = chunk / parts * whole, last = std::min(first + whole, ranges.count);
    Total<T> of_chunk[kSideBySide];
    std::fill_n(of_chunk, end - begin, Total<T>(0));
    for (int64_t r = first; r < last; ++r) {
      const T* from = x + ranges.offset(r) + at;
      for (int64_t k = begin; k < end; ++k) of_chunk[k - begin] += sum_range(dtype, from + kept.offset(k), n);
    }
    for (int64_t k = 0; k < end - begin; ++k) sums[k] += of_chunk[k];
  }
  void put(int64_t k, Total<T> sum) const { put_sum(y.as<SumOf<T>>()[k], Compute<T>(sum), y.beta != 0); }

  void run(int threads) const {
    int64_t cost = whole * std::min(length, kSumChunk) * block;
    if (threads > 1 && chunks > 1 && blocks < 4 * threads && chunks * cost * blocks > 2 * kSerialElements)
      return run_chunks(threads, cost);
    parallel_for(threads, blocks, grain_for(chunks * cost), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        Total<T> sums[kSideBySide];
        int64_t first = b * block, last = std::min(first + block, kept.count);
        std::fill_n(sums, last - first, Total<T>(0));
        for (int64_t chunk = 0; chunk < chunks; ++chunk) add(chunk, first, last, sums);
        for (int64_t k = first; k < last; ++k) put(k, sums[k - first]);
      }
    });
  }

  // Where the results are few, the chunks are divided among threads, and added in the same order.
  void run_chunks(int threads, int64_t cost) const {
    Workspace memory(kCpu, size_t(chunks * kept.count) * sizeof(Total<T>));
    auto* sums = memory.as<Total<T>>();  // (chunks, results)
    parallel_for(threads, chunks * blocks, grain_for(cost), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t first = i % blocks * block, last = std::min(first + block, kept.count);
        Total<T>* to = sums + i / blocks * kept.count + first;
        std::fill(to, to + (last - first), Total<T>(0));
        add(i / blocks, first, last, to);
      }
    });
    for (int64_t k = 0; k < kept.count; ++k) {
      Total<T> sum = 0;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += sums[chunk * kept.count + k];
      put(k, sum);
    }
  }
};

/// The last dimension is kept: each result of the other kept ones (`outer`) is a sum of rows of `cols` elements.
struct ColumnSums {
  OutView y;
  View x;
  Walk outer, rows;
  int64_t cols;

  bool floats = is_floating(x.dtype);
  DType sum_dtype = !floats ? DType::i64 : x.dtype == DType::f64 ? DType::f64 : DType::f32;
  int64_t chunks = (rows.count + kChunkRows - 1) / kChunkRows, blocks = (cols + kColumnBlock - 1) / kColumnBlock;

  /// Adds rows [first, first + count) of n columns; those of the innermost summed dimension in one go.
  void add(void* sums, int64_t from, int64_t first, int64_t count, int64_t n) const {
    for (int64_t r = first, some; r < first + count; r += some) {
      some = std::min(first + count - r, rows.extent[0] - r % rows.extent[0]);
      const char* at = x.as<char>() + (from + rows.offset(r)) * int64_t(size_of(x.dtype));
      loops().reduce.add_rows[int(x.dtype)](sums, at, some, n, rows.stride[0]);
    }
  }
  void put(int64_t at, const void* sums, int64_t n) const {
    char* to = y.as<char>() + at * int64_t(size_of(y.dtype));
    if (floats)
      loops().elementwise.cast[int(y.dtype)][int(sum_dtype)](to, sums, n, y.beta != 0);
    else
      put_range(reinterpret_cast<int64_t*>(to), static_cast<const int64_t*>(sums), n, y.beta != 0);
  }
  /// Calls of(o, first, n) for each block of n columns from `first` of each outer index o.
  template <class Of> void for_blocks(int threads, int64_t cost, const Of& of) const {
    parallel_for(threads, outer.count * blocks, grain_for(cost * kColumnBlock), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t first = i % blocks * kColumnBlock;
        of(i / blocks, first, std::min(kColumnBlock, cols - first));
      }
    });
  }

  void run(int threads) const {
    if (chunks > 1) return run_chunks(threads);
    for_blocks(threads, rows.count, [&](int64_t o, int64_t first, int64_t n) {
      alignas(64) double sums[kColumnBlock] = {};  // or floats, or integers
      add(sums, outer.offset(o) + first, 0, rows.count, n);
      put(o * cols + first, sums, n);
    });
  }

  void run_chunks(int threads) const {
    int64_t size = int64_t(size_of(sum_dtype));
    Workspace memory(kCpu, size_t(outer.count * chunks * cols * size));
    char* sums = memory.as<char>();  // (outer, chunks, cols)
    parallel_for(threads, outer.count * chunks, grain_for(kChunkRows * cols), [&](int64_t begin, int64_t end) {
      std::memset(sums + begin * cols * size, 0, size_t((end - begin) * cols * size));
      for (int64_t i = begin; i < end; ++i) {
        int64_t first = i % chunks * kChunkRows;
        add(sums + i * cols * size, outer.offset(i / chunks), first, std::min(kChunkRows, rows.count - first), cols);
      }
    });
    add_parts(threads, sum_dtype, sums, outer.count, chunks, cols);
    for_blocks(threads, 1, [&](int64_t o, int64_t first, int64_t n) {
      put(o * cols + first, sums + (o * chunks * cols + first) * size, n);
    });
  }
};

void sum_to(const Launch& launch, OutView y, View x) {
  if (y.numel() == x.numel())
    return (x.dtype == y.dtype ? kernels::copy : kernels::cast).find(DeviceKind::cpu, x.dtype)(launch, y, x);
  if (y.numel() == 0) return;
  if (x.numel() == 0) {
    if (y.beta == 0) std::memset(y.data, 0, y.bytes());
    return;
  }
  Broadcast<1> dims(x.shape, {&y.shape});
  int last = dims.ndim - 1;
  Walk kept, summed;
  int64_t stride = dims.extent[last];
  for (int d = last - 1; d >= 0; stride *= dims.extent[d--])
    (dims.stride[0][d] ? kept : summed).add(dims.extent[d], stride);
  if (dims.stride[0][last] != 0) return ColumnSums{y, x, kept, summed, dims.extent[last]}.run(launch.threads);
  dispatch(x.dtype, [&]<class T>() {
    RangeSums<T>{y, x.as<T>(), x.dtype, kept, summed, dims.extent[last]}.run(launch.threads);
  });
}

const Each registered(kernels::sum_to, kAll, sum_to);

}  // namespace
}  // namespace shardgrad::cpu
