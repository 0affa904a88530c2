// sum_to. Sums are cut into chunks of a fixed size, whatever the number of threads, so that they have one order.

#include <cstring>
#include <optional>
#include <vector>

#include <shardgrad/kernels/cpu/broadcast.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/reduce.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kChunkRows = 256, kColumnBlock = 512;

void put_at(OutView y, int64_t i, double value) {
  dispatch_floats(y.dtype, [&]<class T>() { put_sum(y.as<T>()[i], Compute<T>(value), y.beta != 0); });
}

// (outer, reduced) -> (outer)
void sum_rows(const Launch& launch, OutView y, View x, int64_t outer, int64_t reduced) {
  auto sum = loops().reduce.sum[int(x.dtype)];
  size_t row = size_t(reduced) * size_of(x.dtype);
  if (outer == 1) {
    auto chunk = [&](int64_t begin, int64_t n) { return sum(x.as<char>() + begin * size_of(x.dtype), n); };
    return put_at(y, 0, sum_chunks(launch.threads, reduced, chunk));
  }
  parallel_for(launch.threads, outer, grain_for(reduced), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const char* values = x.as<char>() + i * row;
      auto chunk = [&](int64_t from, int64_t n) { return sum(values + from * size_of(x.dtype), n); };
      put_at(y, i, sum_chunks(1, reduced, chunk));
    }
  });
}

// y[o, c] for one block of columns: the sum of `rows` rows that begin at x, in floats (doubles for f64).
void sum_block(OutView y, int64_t at, DType dtype, const void* x, int64_t rows, int64_t cols, int64_t stride) {
  alignas(64) double acc[kColumnBlock] = {};
  bool wide = dtype == DType::f64;
  loops().reduce.add_rows[int(dtype)](acc, x, rows, cols, stride);
  auto cast = loops().elementwise.cast[int(y.dtype)][int(wide ? DType::f64 : DType::f32)];
  cast(y.as<char>() + at * size_of(y.dtype), acc, cols, y.beta != 0);
}

// (outer, rows, cols) -> (outer, cols)
void sum_columns(const Launch& launch, OutView y, View x, int64_t outer, int64_t rows, int64_t cols) {
  int64_t chunks = (rows + kChunkRows - 1) / kChunkRows, blocks = (cols + kColumnBlock - 1) / kColumnBlock;
  DType dtype = x.dtype, partial_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
  const char* source = x.as<char>();
  int64_t stride = rows * cols;  // from one outer index to the next
  std::optional<Workspace> workspace;
  if (chunks > 1) {
    size_t size = size_of(partial_dtype);
    workspace.emplace(kCpu, size_t(outer * chunks * cols) * size);
    char* partials = workspace->as<char>();
    parallel_for(launch.threads, outer * chunks, grain_for(kChunkRows * cols), [&](int64_t begin, int64_t end) {
      std::memset(partials + begin * cols * size, 0, size_t((end - begin) * cols) * size);
      for (int64_t i = begin; i < end; ++i) {
        int64_t first = i % chunks * kChunkRows, count = std::min(kChunkRows, rows - first);
        const char* from = x.as<char>() + (i / chunks * rows + first) * cols * size_of(dtype);
        loops().reduce.add_rows[int(dtype)](partials + i * cols * size, from, count, cols, cols);
      }
    });
    add_parts(launch.threads, partial_dtype, partials, outer, chunks, cols);
    source = partials;
    dtype = partial_dtype;
    stride = chunks * cols;
    rows = 1;
  }
  parallel_for(launch.threads, outer * blocks, grain_for(rows * kColumnBlock), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t o = i / blocks, first = i % blocks * kColumnBlock, count = std::min(kColumnBlock, cols - first);
      sum_block(y, o * cols + first, dtype, source + (o * stride + first) * size_of(dtype), rows, count, cols);
    }
  });
}

// Any pattern of kept and reduced dimensions, one output element after the other.
template <class T> void sum_any(const Launch& launch, OutView y, const T* x, const Broadcast<1>& dims) {
  using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  struct Walk {
    int64_t extent, stride;
  };
  std::vector<Walk> kept, reduced;
  int64_t stride = 1;
  for (int d = dims.ndim - 1; d >= 0; --d, stride *= dims.extent[d + 1])
    (dims.stride[0][d] ? kept : reduced).push_back({dims.extent[d], stride});
  int64_t count = 1;
  for (const Walk& walk : reduced) count *= walk.extent;
  auto offset = [](const std::vector<Walk>& walks, int64_t index) {
    int64_t at = 0;
    for (const Walk& walk : walks) at += index % walk.extent * walk.stride, index /= walk.extent;
    return at;
  };
  parallel_for(launch.threads, y.numel(), grain_for(count), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* from = x + offset(kept, i);
      Acc acc = 0;
      for (int64_t r = 0; r < count; ++r) acc += convert<Acc>(from[offset(reduced, r)]);
      put_sum(y.as<SumOf<T>>()[i], Compute<T>(acc), y.beta != 0);
    }
  });
}

void sum_to(const Launch& launch, OutView y, View x) {
  if (y.numel() == x.numel())
    return (x.dtype == y.dtype ? kernels::copy : kernels::cast).find(DeviceKind::cpu, x.dtype)(launch, y, x);
  if (y.numel() == 0) return;
  if (x.numel() == 0) {
    if (y.beta == 0) std::memset(y.data, 0, y.bytes());
    return;
  }
  Broadcast<1> dims(x.shape, {&y.shape});
  const auto& n = dims.extent;
  auto kept = [&](int d) { return dims.stride[0][d] != 0; };
  bool fast = is_floating(x.dtype);
  if (fast && dims.ndim == 1) return sum_rows(launch, y, x, 1, n[0]);
  if (fast && dims.ndim == 2 && kept(0)) return sum_rows(launch, y, x, n[0], n[1]);
  if (fast && dims.ndim == 2) return sum_columns(launch, y, x, 1, n[0], n[1]);
  if (fast && dims.ndim == 3 && kept(0)) return sum_columns(launch, y, x, n[0], n[1], n[2]);
  dispatch(x.dtype, [&]<class T>() { sum_any<T>(launch, y, x.as<T>(), dims); });
}

const Each registered(kernels::sum_to, kAll, sum_to);

}  // namespace
}  // namespace shardgrad::cpu
