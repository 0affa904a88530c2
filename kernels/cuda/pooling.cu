// max_pool2d, avg_pool2d: a thread has an element of y, or of dx, and goes over its window, or over the windows that
// hold it. They read x (dy and an index of 4 bytes) once where windows do not overlap, from the caches where they do,
// and write y (dx); one operation per element of a window, and a few divisions of indices.

#include <shardgrad/kernels/cuda/launch.h>
#include <shardgrad/kernels/pooling.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::Sight;

/// A range [begin, end) of rows or columns.
struct Span {
  int64_t begin, end;
};

/// An image, its windows' places and one thread's element.
struct Pooling {
  int64_t height, width, rows, columns;
  kernels::PoolArgs args;
  Pooling(const Shape& x, const Shape& y, const kernels::PoolArgs& a)
      : height(x[2]), width(x[3]), rows(y[2]), columns(y[3]), args(a) {}

  /// The places whose windows see an element.
  __device__ Span holders(const Window& w, int64_t element, int64_t places, int64_t extent) const {
    if (args.parts) return {element * places / extent, ((element + 1) * places + extent - 1) / extent};
    int64_t last = (element + w.padding) / w.stride + 1, before = element + w.padding - w.kernel;
    return {before < 0 ? 0 : before / w.stride + 1, last < places ? last : places};
  }
  /// Of the row, or column, of a place.
  __device__ Sight sight_down(int64_t row) const { return sight_of(args, args.down, row, rows, height); }
  __device__ Sight sight_across(int64_t column) const { return sight_of(args, args.across, column, columns, width); }
  __device__ Sight seen_rows(int64_t place) const { return sight_down(place / columns % rows); }
  __device__ Sight seen_columns(int64_t place) const { return sight_across(place % columns); }
  __device__ Span holding_rows(int64_t element) const {
    return holders(args.down, element / width % height, rows, height);
  }
  __device__ Span holding_columns(int64_t element) const {
    return holders(args.across, element % width, columns, width);
  }
  /// The first element of the image that a place, or an element, belongs to.
  __device__ int64_t image_of_place(int64_t place) const { return place / (rows * columns) * height * width; }
  __device__ int64_t places_of_element(int64_t element) const { return element / (height * width) * rows * columns; }
};

/// By how much the mean of a place divides.
template <class T> __device__ Compute<T> count_of(const Sight& down, const Sight& across) {
  return Compute<T>(down.count * across.count);
}

template <class T>
__global__ void max_pool2d_kernel(T* y, int32_t* index, const T* x, Pooling shape, int64_t n, bool accumulate,
                                  bool accumulate_index) {
  int64_t i = thread_number();
  if (i >= n) return;
  Sight down = shape.seen_rows(i), across = shape.seen_columns(i);
  x += shape.image_of_place(i);
  int64_t at = down.first * shape.width + across.first;
  Compute<T> top = load(x + at);
  for (int64_t r = down.first; r < down.last; ++r)
    for (int64_t c = across.first; c < across.last; ++c) {
      Compute<T> value = load(x + r * shape.width + c);
      if (value <= top || !(top == top)) continue;  // NaN is above all, and stays
      top = value;
      at = r * shape.width + c;
    }
  store(y + i, top, accumulate);
  if (index) index[i] = int32_t(at) + (accumulate_index ? index[i] : 0);
}

template <class T>
__global__ void max_pool2d_backward_kernel(T* dx, const T* dy, const int32_t* index, Pooling shape, int64_t n,
                                           bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Span down = shape.holding_rows(i), across = shape.holding_columns(i);
  int64_t first = shape.places_of_element(i), own = i % (shape.height * shape.width);
  Compute<T> sum = 0;
  for (int64_t r = down.begin; r < down.end; ++r)
    for (int64_t c = across.begin; c < across.end; ++c) {
      int64_t place = first + r * shape.columns + c;
      if (index[place] == own) sum += load(dy + place);
    }
  store(dx + i, sum, accumulate);
}

template <class T> __global__ void avg_pool2d_kernel(T* y, const T* x, Pooling shape, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Sight down = shape.seen_rows(i), across = shape.seen_columns(i);
  x += shape.image_of_place(i);
  Compute<T> sum = 0;
  for (int64_t r = down.first; r < down.last; ++r)
    for (int64_t c = across.first; c < across.last; ++c) sum += load(x + r * shape.width + c);
  store(y + i, sum / count_of<T>(down, across), accumulate);
}

template <class T>
__global__ void avg_pool2d_backward_kernel(T* dx, const T* dy, Pooling shape, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Span down = shape.holding_rows(i), across = shape.holding_columns(i);
  int64_t first = shape.places_of_element(i);
  Compute<T> sum = 0;
  for (int64_t r = down.begin; r < down.end; ++r) {
    Sight rows = shape.sight_down(r);
    for (int64_t c = across.begin; c < across.end; ++c)
      sum += load(dy + first + r * shape.columns + c) / count_of<T>(rows, shape.sight_across(c));
  }
  store(dx + i, sum, accumulate);
}

void max_pool2d(const Launch& how, OutView y, OutView index, View x, kernels::PoolArgs args) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<max_pool2d_kernel<T>>(how, {blocks_for(y.numel()), kBlock}, y.as<T>(), index.as<int32_t>(), x.as<T>(),
                                 Pooling(x.shape, y.shape, args), y.numel(), y.beta != 0, index.beta != 0);
  });
}

void max_pool2d_backward(const Launch& how, OutView dx, View dy, View index, kernels::PoolArgs args) {
  dispatch_floats(dx.dtype, [&]<class T>() {
    launch<max_pool2d_backward_kernel<T>>(how, {blocks_for(dx.numel()), kBlock}, dx.as<T>(), dy.as<T>(),
                                          index.as<int32_t>(), Pooling(dx.shape, dy.shape, args), dx.numel(),
                                          dx.beta != 0);
  });
}

void avg_pool2d(const Launch& how, OutView y, View x, kernels::PoolArgs args) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<avg_pool2d_kernel<T>>(how, {blocks_for(y.numel()), kBlock}, y.as<T>(), x.as<T>(),
                                 Pooling(x.shape, y.shape, args), y.numel(), y.beta != 0);
  });
}

void avg_pool2d_backward(const Launch& how, OutView dx, View dy, kernels::PoolArgs args) {
  dispatch_floats(dx.dtype, [&]<class T>() {
    launch<avg_pool2d_backward_kernel<T>>(how, {blocks_for(dx.numel()), kBlock}, dx.as<T>(), dy.as<T>(),
                                          Pooling(dx.shape, dy.shape, args), dx.numel(), dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<max_pool2d>(kernels::max_pool2d, kFloats),
    add_kernel<max_pool2d_backward>(kernels::max_pool2d_backward, kFloats),
    add_kernel<avg_pool2d>(kernels::avg_pool2d, kFloats),
    add_kernel<avg_pool2d_backward>(kernels::avg_pool2d_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
