// permute: a copy with the dimensions in another order.

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::Permutation;

// y's dimensions, merged where they stay neighbours in x, with their strides in x.
struct Moves {
  int ndim = 0;
  int64_t extent[kMaxDims] = {}, stride[kMaxDims] = {};
};

Moves moves_of(const Shape& x, const Permutation& p) {
  int64_t strides[kMaxDims], stride = 1;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= x[d];
  }
  Moves m;
  for (int d = 0; d < x.ndim(); ++d) {
    int64_t n = x[p[size_t(d)]], s = strides[p[size_t(d)]];
    if (n == 1) continue;
    if (m.ndim > 0 && m.stride[m.ndim - 1] == n * s) {
      m.extent[m.ndim - 1] *= n;
      m.stride[m.ndim - 1] = s;
    } else {
      m.extent[m.ndim] = n;
      m.stride[m.ndim++] = s;
    }
  }
  if (m.ndim == 0) m.extent[m.ndim++] = 1;
  return m;
}

// y[i, j] = x[i * row + j * col] in square blocks, so that both sides stay in the cache.
template <class T>
void move_plane(T* y, const T* x, int64_t rows, int64_t cols, int64_t row, int64_t col, bool accumulate) {
  constexpr int64_t block = 32;
  if (col == 1 && !accumulate) {
    for (int64_t i = 0; i < rows; ++i) std::memcpy(y + i * cols, x + i * row, size_t(cols) * sizeof(T));
    return;
  }
  for (int64_t i0 = 0; i0 < rows; i0 += block)
    for (int64_t j0 = 0; j0 < cols; j0 += block)
      for (int64_t i = i0; i < std::min(rows, i0 + block); ++i)
        for (int64_t j = j0; j < std::min(cols, j0 + block); ++j)
          put(y[i * cols + j], x[i * row + j * col], accumulate);
}

template <class T> void permute_typed(const Launch& launch, OutView y, const T* x, const Moves& m) {
  int last = m.ndim - 1;
  int64_t cols = m.extent[last], rows = last > 0 ? m.extent[last - 1] : 1, planes = 1;
  int64_t row = last > 0 ? m.stride[last - 1] : 0;
  for (int d = 0; d < last - 1; ++d) planes *= m.extent[d];
  auto plane_begin = [&](int64_t plane) {
    int64_t at = 0;
    for (int d = last - 2; d >= 0; --d) at += plane % m.extent[d] * m.stride[d], plane /= m.extent[d];
    return at;
  };
  parallel_for(
      launch.threads, planes * rows, grain_for(cols),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {  // i counts rows over all planes
          int64_t first = i % rows, count = std::min(rows - first, end - i);
          move_plane(y.as<T>() + i * cols, x + plane_begin(i / rows) + first * row, count, cols, row, m.stride[last],
                     y.beta != 0);
          i += count;
        }
      },
      32);
}

void permute(const Launch& launch, OutView y, View x, Permutation p) {
  if (x.numel() == 0) return;
  Moves m = moves_of(x.shape, p);
  dispatch(x.dtype, [&]<class T>() { permute_typed(launch, y, x.as<T>(), m); });
}

const Each registered(kernels::permute, kAll, permute);

}  // namespace
}  // namespace shardgrad::cpu
