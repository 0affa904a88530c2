// softmax and log-softmax along a dimension, and their backward.

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kExpCost = 4;  // an exponential costs about as much as this many cheap elements

// Columns that lie side by side, where the dimension is not the last: as many as fill the vectors of a cache line's
// multiple, which go through memory together.
constexpr int64_t kColumns = 64;

// Calls each(offset in elements, columns) for blocks of columns along dim.
template <class Each> void over_columns(const Launch& launch, const Around& around, int64_t cost, const Each& each) {
  int64_t blocks = (around.inner + kColumns - 1) / kColumns;
  int64_t grain = grain_for(cost * around.extent * std::min(kColumns, around.inner));
  parallel_for(launch.threads, around.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t first = i % blocks * kColumns;
      each(i / blocks * around.extent * around.inner + first, std::min(kColumns, around.inner - first));
    }
  });
}

void softmax(const Launch& launch, OutView y, View x, int dim, bool log) {
  if (x.numel() == 0) return;
  Around around(x.shape, dim);
  auto& rows = loops().rows;
  int type = int(x.dtype);
  int64_t n = around.extent, size = int64_t(size_of(x.dtype));
  bool add = y.beta != 0;
  if (around.inner == 1)
    return parallel_for(launch.threads, around.outer, grain_for(kExpCost * n), [&](int64_t begin, int64_t end) {
      int64_t at = begin * n * size;
      rows.softmax[type](y.as<char>() + at, x.as<char>() + at, end - begin, n, log, add);
    });
  over_columns(launch, around, kExpCost, [&](int64_t first, int64_t cols) {
    int64_t at = first * size;
    rows.softmax_columns[type](y.as<char>() + at, x.as<char>() + at, {n, cols, around.inner, log, add});
  });
}

void softmax_backward(const Launch& launch, OutView dx, View dy, View y, int dim, bool log) {
  if (y.numel() == 0) return;
  Around around(y.shape, dim);
  auto& rows = loops().rows;
  int type = int(y.dtype);
  int64_t n = around.extent, size = int64_t(size_of(y.dtype));
  bool add = dx.beta != 0;
  if (around.inner == 1)
    return parallel_for(launch.threads, around.outer, grain_for(n), [&](int64_t begin, int64_t end) {
      int64_t at = begin * n * size;
      rows.softmax_backward[type](dx.as<char>() + at, dy.as<char>() + at, y.as<char>() + at, end - begin, n, log, add);
    });
  over_columns(launch, around, 1, [&](int64_t first, int64_t cols) {
    int64_t at = first * size;
    rows.softmax_columns_backward[type](dx.as<char>() + at, dy.as<char>() + at, y.as<char>() + at,
                                        {n, cols, around.inner, log, add});
  });
}

const Each registered_softmax(kernels::softmax, kFloats, softmax);
const Each registered_softmax_backward(kernels::softmax_backward, kFloats, softmax_backward);

}  // namespace
}  // namespace shardgrad::cpu
