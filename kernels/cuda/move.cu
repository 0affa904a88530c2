// fill, copy, cast, expand, permute, narrow and paste: elements that only move. Each moves x in and y out once. permute
// reads with the stride of its last dimension, so a transpose uses one element of each 32 bytes that it fetches.

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

void permute(const Launch& how, OutView y, View x, Permutation p) {
  Broadcast<1> shape;
  auto strides = strides_of(x.shape);
  shape.ndim = x.shape.ndim();
  for (size_t d = 0; d < size_t(shape.ndim); ++d) {
    shape.extent[d] = y.shape[int(d)];
    shape.stride[0][d] = strides[size_t(p[d])];
  }
  gather_strided(how, y, x, shape);
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

const Registered registered[] = {
    add_kernel<fill>(kernels::fill, kAll),       add_kernel<copy>(kernels::copy, kAll),
    add_kernel<cast>(kernels::cast, kAll),       add_kernel<expand>(kernels::expand, kAll),
    add_kernel<permute>(kernels::permute, kAll), add_kernel<narrow>(kernels::narrow, kAll),
    add_kernel<paste>(kernels::paste, kAll),     add_kernel<narrow_backward>(kernels::narrow_backward, kAll),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
