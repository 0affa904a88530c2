// swiglu: y = silu(gate) · up, where a row of x holds the gates and then as many values up.
//
// swiglu           reads x and writes y: 3 elements moved per element of y, an exponential and 4 other operations.
// swiglu_backward  reads dy and x and writes dx: 5 elements moved per element of dy, 2 exponentials and about 12
// others.

#include <shardgrad/kernels/cuda/packs.h>
#include <shardgrad/kernels/cuda/silu.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// A row's elements [col, col + N) of y, and how many of them are there: what a thread has.
template <class T> struct GatedPart {
  static constexpr int N = kPackOf<T>;
  int64_t row, col, left;
  __device__ explicit GatedPart(int64_t cols) {
    int64_t parts = (cols + N - 1) / N, i = thread_number();
    row = i / parts;
    col = i % parts * N;
    left = cols - col;
  }
  static Config config(int64_t rows, int64_t cols) { return {blocks_for(rows * ((cols + N - 1) / N)), kBlock}; }
};

template <class T>
__global__ void swiglu_kernel(T* y, const T* x, int64_t rows, int64_t cols, bool accumulate, bool packed) {
  constexpr int N = kPackOf<T>;
  GatedPart<T> part(cols);
  if (part.row >= rows) return;
  const T* gate = x + 2 * part.row * cols + part.col;
  auto gates = load_some<N>(gate, part.left, packed), ups = load_some<N>(gate + cols, part.left, packed);
  Compute<T> values[N];
  SG_UNROLL
  for (int e = 0; e < N; ++e) values[e] = silu(convert<Compute<T>>(gates[e])) * convert<Compute<T>>(ups[e]);
  store_values(y + part.row * cols + part.col, values, part.left, packed, accumulate);
}

template <class T> bool all_rows_packed(int64_t cols, const T* x, const T* y) {
  return cols % kPackOf<T> == 0 && aligned<T, kPackOf<T>>(x) && aligned<T, kPackOf<T>>(y);
}

void swiglu(const Launch& how, OutView y, View x) {
  if (y.numel() == 0) return;
  int64_t cols = y.shape[-1], rows = y.numel() / cols;
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<swiglu_kernel<T>>(how, GatedPart<T>::config(rows, cols), y.as<T>(), x.as<T>(), rows, cols, y.beta != 0,
                             all_rows_packed<T>(cols, x.as<T>(), y.as<T>()));
  });
}

template <class T>
__global__ void swiglu_backward_kernel(T* dx, const T* dy, const T* x, int64_t rows, int64_t cols, bool accumulate,
                                       bool packed) {
  constexpr int N = kPackOf<T>;
  using C = Compute<T>;
  GatedPart<T> part(cols);
  if (part.row >= rows) return;
  int64_t at = 2 * part.row * cols + part.col;
  auto gates = load_some<N>(x + at, part.left, packed), ups = load_some<N>(x + at + cols, part.left, packed),
       slopes = load_some<N>(dy + part.row * cols + part.col, part.left, packed);
  C of_gates[N], of_ups[N];
  SG_UNROLL
  for (int e = 0; e < N; ++e) {
    C in = convert<C>(gates[e]), up = convert<C>(ups[e]), d = convert<C>(slopes[e]);
    of_gates[e] = d * up * silu_slope(in);
    of_ups[e] = d * silu(in);
  }
  store_values(dx + at, of_gates, part.left, packed, accumulate);
  store_values(dx + at + cols, of_ups, part.left, packed, accumulate);
}

void swiglu_backward(const Launch& how, OutView dx, View dy, View x) {
  if (dy.numel() == 0) return;
  int64_t cols = dy.shape[-1], rows = dy.numel() / cols;
  dispatch_floats(x.dtype, [&]<class T>() {
    bool packed = all_rows_packed<T>(cols, x.as<T>(), dy.as<T>()) && aligned<T, kPackOf<T>>(dx.as<T>());
    launch<swiglu_backward_kernel<T>>(how, GatedPart<T>::config(rows, cols), dx.as<T>(), dy.as<T>(), x.as<T>(), rows,
                                      cols, dx.beta != 0, packed);
  });
}

const Registered registered[] = {
    add_kernel<swiglu>(kernels::swiglu, kFloats),
    add_kernel<swiglu_backward>(kernels::swiglu_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
