// max_pool2d, avg_pool2d: a thread has an element of y, or of dx, and goes over its window, or over the windows that
// hold it. They read x (dy and an index of 4 bytes) once where windows do not overlap, from the caches where they do,
// and write y (dx); one operation per element of a window, and a few divisions of indices.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// A range [begin, end) of rows or columns.
struct Span {
  int64_t begin, end;
};

/// An image, its windows' places and one thread's element.
struct Pooling {
  int64_t height, width, rows, columns;
  Window down, across;
  Pooling(const Shape& x, const Shape& y, const kernels::PoolArgs& args)
      : height(x[2]), width(x[3]), rows(y[2]), columns(y[3]), down(args.down), across(args.across) {}

  __device__ static Span seen(const Window& w, int64_t place, int64_t extent) {
    int64_t begin = place * w.stride - w.padding, end = begin + w.kernel;
    return {begin > 0 ? begin : 0, end < extent ? end : extent};
  }
  /// The places whose windows see an element.
  __device__ static Span holders(const Window& w, int64_t element, int64_t places) {
    int64_t last = (element + w.padding) / w.stride + 1, before = element + w.padding - w.kernel;
    return {before < 0 ? 0 : before / w.stride + 1, last < places ? last : places};
  }
  __device__ Span seen_rows(int64_t place) const { return seen(down, place / columns % rows, height); }
  __device__ Span seen_columns(int64_t place) const { return seen(across, place % columns, width); }
  __device__ Span holding_rows(int64_t element) const { return holders(down, element / width % height, rows); }
  __device__ Span holding_columns(int64_t element) const { return holders(across, element % width, columns); }
  /// The first element of the image that a place, or an element, belongs to.
  __device__ int64_t image_of_place(int64_t place) const { return place / (rows * columns) * height * width; }
  __device__ int64_t places_of_element(int64_t element) const { return element / (height * width) * rows * columns; }
  __device__ int64_t elements() const { return down.kernel * across.kernel; }
};

template <class T>
__global__ void max_pool2d_kernel(T* y, int32_t* index, const T* x, Pooling shape, int64_t n, bool accumulate,
                                  bool accumulate_index) {
  int64_t i = thread_number();
  if (i >= n) return;
  Span down = shape.seen_rows(i), across = shape.seen_columns(i);
  x += shape.image_of_place(i);
  int64_t at = down.begin * shape.width + across.begin;
  Compute<T> top = load(x + at);
  for (int64_t r = down.begin; r < down.end; ++r)
    for (int64_t c = across.begin; c < across.end; ++c) {
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
  Span down = shape.seen_rows(i), across = shape.seen_columns(i);
  x += shape.image_of_place(i);
  Compute<T> sum = 0;
  for (int64_t r = down.begin; r < down.end; ++r)
    for (int64_t c = across.begin; c < across.end; ++c) sum += load(x + r * shape.width + c);
  store(y + i, sum / Compute<T>(shape.elements()), accumulate);
}

template <class T>
__global__ void avg_pool2d_backward_kernel(T* dx, const T* dy, Pooling shape, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Span down = shape.holding_rows(i), across = shape.holding_columns(i);
  int64_t first = shape.places_of_element(i);
  Compute<T> sum = 0;
  for (int64_t r = down.begin; r < down.end; ++r)
    for (int64_t c = across.begin; c < across.end; ++c)
      sum += load(dy + first + r * shape.columns + c) / Compute<T>(shape.elements());
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
