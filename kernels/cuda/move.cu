// fill, copy, cast, expand, permute, narrow, paste, flip and triangle: elements that only move. Each moves x in and y
// out once; a permute that is no transpose of matrices may fetch 32 bytes for each element.

#include <shardgrad/kernels/cuda/map.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::Permutation;

template <class T> struct Constant {
  static constexpr bool raw = true;
  T value;
  __device__ T operator()() const { return value; }
};
// The element nearest to value; for integers as casts of floats do.
template <class T> T element_of(double value) {
  if constexpr (std::is_class_v<T>)
    return T(float(value));
  else
    return convert<T>(value);
}
struct Same {
  static constexpr bool raw = true;
  template <class T> __device__ T operator()(T x) const { return x; }
};
/// Sums of floats round once, after the addition, so floats are given on in the computing type.
template <class To> struct Cast {
  static constexpr bool raw = true;
  template <class From> __device__ auto operator()(From x) const {
    return convert<std::conditional_t<std::is_integral_v<To>, To, Compute<To>>>(x);
  }
};

void fill(const Launch& how, OutView y, double value) {
  dispatch(y.dtype, [&]<class T>() { map<Constant<T>, T>(how, Constant<T>{element_of<T>(value)}, y); });
}

void cast(const Launch& how, OutView y, View x) {
  dispatch(y.dtype, [&]<class To>() {
    dispatch(x.dtype, [&]<class From>() { map<Cast<To>, To, From>(how, {}, y, x.as<From>()); });
  });
}

void copy(const Launch& how, OutView y, View x) {
  dispatch(x.dtype, [&]<class T>() { map<Same, T, T>(how, {}, y, x.as<T>()); });
}

/// y[i] = x[from + …] for any strides of x.
void gather_strided(const Launch& how, OutView y, View x, const Broadcast<1>& shape, int64_t from = 0) {
  dispatch(x.dtype, [&]<class T>() { broadcast<Same, T, T>(how, {}, y, shape, x.as<T>() + from); });
}

void expand(const Launch& how, OutView y, View x) { gather_strided(how, y, x, {y.shape, {&x.shape}}); }

// The strides of a row-major tensor.
std::array<int64_t, kMaxDims> strides_of(const Shape& shape) {
  std::array<int64_t, kMaxDims> strides{};
  int64_t stride = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    strides[size_t(d)] = stride;
    stride *= shape[d];
  }
  return strides;
}

// y's dimensions with their strides in x, merged where they stay neighbours there.
Broadcast<1> moves_of(const Shape& x, const Permutation& p) {
  auto strides = strides_of(x);
  Broadcast<1> moves;
  for (size_t d = 0; d < size_t(x.ndim()); ++d) {
    int64_t n = x[p[d]], stride = strides[size_t(p[d])];
    if (n == 1) continue;
    size_t last = size_t(moves.ndim) - 1;
    if (moves.ndim > 0 && moves.stride[0][last] == n * stride) {
      moves.extent[last] *= n;
      moves.stride[0][last] = stride;
    } else {
      moves.extent[size_t(moves.ndim)] = n;
      moves.stride[0][size_t(moves.ndim++)] = stride;
    }
  }
  return moves;
}

constexpr int kSide = 32, kRows = 8;

// y (planes, cols, rows) from x (planes, rows, cols): block (32, 8) takes 32 × 32 elements by way of shared memory, so
// that neighbouring threads read neighbours in x and write neighbours in y. The 33rd column keeps the threads of a warp
// off each other's banks.
template <class T> __global__ void transpose_kernel(T* y, const T* x, int64_t rows, int64_t cols, bool accumulate) {
  __shared__ Compute<T> tile[kSide][kSide + 1];
  int64_t plane = blockIdx.z * rows * cols, row0 = int64_t(blockIdx.y) * kSide, col0 = int64_t(blockIdx.x) * kSide;
  for (int i = int(threadIdx.y); i < kSide; i += kRows) {
    int64_t r = row0 + i, c = col0 + threadIdx.x;
    if (r < rows && c < cols) tile[i][threadIdx.x] = load(x + plane + r * cols + c);
  }
  __syncthreads();
  for (int i = int(threadIdx.y); i < kSide; i += kRows) {
    int64_t c = col0 + i, r = row0 + threadIdx.x;
    if (r < rows && c < cols) store(y + plane + c * rows + r, tile[threadIdx.x][i], accumulate);
  }
}

void permute(const Launch& how, OutView y, View x, Permutation p) {
  if (x.numel() == 0) return;
  Broadcast<1> moves = moves_of(x.shape, p);
  int64_t planes = moves.ndim == 3 ? moves.extent[0] : 1;
  size_t first = moves.ndim == 3 ? 1 : 0;
  int64_t cols = moves.extent[first], rows = moves.extent[first + 1];
  bool transposes =
      (moves.ndim == 2 || moves.ndim == 3) && moves.stride[0][first] == 1 && moves.stride[0][first + 1] == cols;
  if (!transposes || planes > 65535 || rows > 65535 * kSide) return gather_strided(how, y, x, moves);
  Config config{{blocks_for(cols, kSide), blocks_for(rows, kSide), unsigned(planes)}, {kSide, kRows}};
  dispatch(x.dtype,
           [&]<class T>() { launch<transpose_kernel<T>>(how, config, y.as<T>(), x.as<T>(), rows, cols, y.beta != 0); });
}

void narrow(const Launch& how, OutView y, View x, int dim, int64_t start) {
  Broadcast<1> shape;
  auto strides = strides_of(x.shape);
  shape.ndim = x.shape.ndim();
  for (size_t d = 0; d < size_t(shape.ndim); ++d) {
    shape.extent[d] = y.shape[int(d)];
    shape.stride[0][d] = strides[d];
  }
  gather_strided(how, y, x, shape, start * strides[size_t(dim)]);
}

// Row r of x, `row` long, goes to y[begin + r * step, …).
template <class T>
__global__ void paste_kernel(T* y, const T* x, int64_t n, int64_t row, int64_t begin, int64_t step, bool accumulate) {
  int64_t i = thread_number();
  if (i < n) put(y + begin + i / row * step + i % row, T(x[i]), accumulate);
}

void paste(const Launch& how, OutView y, View x, int dim, int64_t start) {
  writes_a_part_of(y);
  if (x.numel() == 0) return;
  int64_t inner = strides_of(y.shape)[size_t(dim)], row = x.shape[dim] * inner;
  dispatch(x.dtype, [&]<class T>() {
    launch<paste_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), row, start * inner,
                            y.shape[dim] * inner, y.beta != 0);
  });
}

void narrow_backward(const Launch& how, OutView dx, View dy, int dim, int64_t start) {
  if (dx.beta == 0) fill(how, dx, 0);
  paste(how, dx, dy, dim, start);
}

// From the end of each dimension that is turned round, with a negative stride there.
void flip(const Launch& how, OutView y, View x, unsigned dims) {
  Broadcast<1> shape;
  auto strides = strides_of(x.shape);
  int64_t from = 0;
  shape.ndim = x.shape.ndim();
  for (size_t d = 0; d < size_t(shape.ndim); ++d) {
    bool turned = dims >> d & 1;
    shape.extent[d] = x.shape[int(d)];
    shape.stride[0][d] = turned ? -strides[d] : strides[d];
    if (turned) from += (shape.extent[d] - 1) * strides[d];
  }
  if (x.numel() > 0) gather_strided(how, y, x, shape, from);
}

template <class T>
__global__ void triangle_kernel(T* y, const T* x, int64_t n, int64_t rows, int64_t cols, int64_t diagonal, bool lower,
                                bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t beyond = i % cols - i / cols % rows - diagonal;
  bool kept = lower ? beyond <= 0 : beyond >= 0;
  if (kept)
    put(y + i, T(x[i]), accumulate);
  else if (!accumulate)
    y[i] = convert<T>(0.0f);
}

void triangle(const Launch& how, OutView y, View x, int64_t diagonal, bool lower) {
  dispatch(x.dtype, [&]<class T>() {
    launch<triangle_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), x.shape[-2],
                               x.shape[-1], diagonal, lower, y.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<fill>(kernels::fill, kAll),       add_kernel<copy>(kernels::copy, kAll),
    add_kernel<cast>(kernels::cast, kAll),       add_kernel<expand>(kernels::expand, kAll),
    add_kernel<permute>(kernels::permute, kAll), add_kernel<narrow>(kernels::narrow, kAll),
    add_kernel<paste>(kernels::paste, kAll),     add_kernel<narrow_backward>(kernels::narrow_backward, kAll),
    add_kernel<flip>(kernels::flip, kAll),       add_kernel<triangle>(kernels::triangle, kAll),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
