// flip and triangle: copies of rows, whole or a part, forwards or backwards.

#include <algorithm>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

/// The dimensions, neighbours merged that are both turned round or both not.
struct Turns {
  int ndim = 0;
  int64_t extent[kMaxDims] = {};
  bool turned[kMaxDims] = {};

  Turns(const Shape& shape, unsigned dims) {
    for (int d = 0; d < shape.ndim(); ++d) {
      bool turn = dims >> d & 1;
      if (ndim > 0 && turned[ndim - 1] == turn) {
        extent[ndim - 1] *= shape[d];
      } else {
        extent[ndim] = shape[d];
        turned[ndim++] = turn;
      }
    }
    if (ndim == 0) extent[ndim++] = 1;  // of a scalar
  }
  int64_t cols() const { return extent[ndim - 1]; }
  /// The row that comes to row r. Rows are all dimensions but the last.
  int64_t row(int64_t r) const {
    int64_t from = 0, stride = 1;
    for (int d = ndim - 2; d >= 0; stride *= extent[d--]) {
      int64_t i = d > 0 ? r % extent[d] : r;
      from += (turned[d] ? extent[d] - 1 - i : i) * stride;
      if (d > 0) r /= extent[d];
    }
    return from;
  }
};

// y[0, n) = x[0], x[-1], …
template <class T> void put_backwards(T* y, const T* x, int64_t n, bool accumulate) {
  if (!accumulate)
    for (int64_t i = 0; i < n; ++i) y[i] = x[-i];
  else
    for (int64_t i = 0; i < n; ++i) put(y[i], x[-i], true);
}

void flip(const Launch& launch, OutView y, View x, unsigned dims) {
  if (x.numel() == 0) return;
  Turns turns(x.shape, dims);
  int64_t cols = turns.cols(), rows = x.numel() / cols;
  bool backwards = turns.turned[turns.ndim - 1];
  dispatch(x.dtype, [&]<class T>() {
    auto move = [&](int64_t r, int64_t begin, int64_t end) {
      T* to = y.as<T>() + r * cols + begin;
      const T* from = x.as<T>() + turns.row(r) * cols;
      if (backwards)
        put_backwards(to, from + cols - 1 - begin, end - begin, y.beta != 0);
      else
        put_range(to, from + begin, end - begin, y.beta != 0);
    };
    if (cols < kSerialElements)
      return parallel_for(launch.threads, rows, grain_for(cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) move(r, 0, cols);
      });
    for (int64_t r = 0; r < rows; ++r)  // few long ones
      parallel_elements(launch.threads, cols, [&](int64_t begin, int64_t end) { move(r, begin, end); });
  });
}

void triangle(const Launch& launch, OutView y, View x, int64_t diagonal, bool lower) {
  int64_t rows = x.shape[-2], cols = x.shape[-1];
  if (x.numel() == 0) return;
  dispatch(x.dtype, [&]<class T>() {
    parallel_for(launch.threads, x.numel() / cols, grain_for(cols), [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        int64_t cut = std::clamp<int64_t>(r % rows + diagonal + (lower ? 1 : 0), 0, cols);
        int64_t begin = lower ? 0 : cut, end = lower ? cut : cols;
        T* to = y.as<T>() + r * cols;
        put_range(to + begin, x.as<T>() + r * cols + begin, end - begin, y.beta != 0);
        if (y.beta != 0) continue;
        std::fill(to, to + begin, T{});
        std::fill(to + end, to + cols, T{});
      }
    });
  });
}

const Each registered[] = {{kernels::flip, kAll, flip}};
const Each registered_triangle(kernels::triangle, kAll, triangle);

}  // namespace
}  // namespace shardgrad::cpu
