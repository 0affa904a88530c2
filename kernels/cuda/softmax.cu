// softmax and log-softmax of rows, and their backward; rows.h says which threads have a row. Arithmetic in f32 (f64 for
// f64).
//
// softmax:           reads x once (a row that fits nowhere three times, the last two from the caches), writes y: 2
// elements
//                    moved per element, 2 exponentials and 4 other operations.
// softmax_backward:  reads dy and y once (twice), writes dx: 3 elements moved, 4 operations.

#include <shardgrad/kernels/cuda/rows.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// How rows lie.
struct SoftmaxRows {
  int64_t rows;
  int cols;
  bool log, packed, accumulate;
};

template <class T, int packs, bool by_block> __global__ void softmax_kernel(T* y, const T* x, SoftmaxRows r) {
  using C = Compute<T>;
  using Threads = RowThreads<by_block>;
  int64_t row = Threads::row();
  if (row >= r.rows) return;
  y += row * r.cols, x += row * r.cols;
  auto first = [](int k) { return (k * Threads::width + int(threadIdx.x)) * kPackOf<T>; };
  T nothing = convert<T>(Max::nothing<C>());
  RowPack<T> part[packs];
  SG_UNROLL
  for (int k = 0; k < packs; ++k) part[k] = load_part(x, first(k), r.cols, r.packed, nothing);
  C top = Max::nothing<C>(), sum = 0;
  SG_UNROLL
  for (int k = 0; k < packs; ++k)
    for (T element : part[k].at) top = Max()(top, convert<C>(element));
  top = Threads::template reduce<Max>(top);
  SG_UNROLL
  for (int k = 0; k < packs; ++k)
    for (T element : part[k].at) sum += std::exp(convert<C>(element) - top);  // 0 beyond the row
  sum = Threads::template reduce<Sum>(sum);
  C log_sum = std::log(sum), scale = 1 / sum;
  SG_UNROLL
  for (int k = 0; k < packs; ++k)
    store_part(y, first(k), r.cols, r.packed, r.accumulate, [&](int e) {
      C shifted = convert<C>(part[k].at[e]) - top;
      return r.log ? shifted - log_sum : std::exp(shifted) * scale;
    });
}

template <class T> __global__ void wide_softmax_kernel(T* y, const T* x, SoftmaxRows r) {
  using C = Compute<T>;
  y += blockIdx.x * r.cols, x += blockIdx.x * r.cols;
  C top = Max::nothing<C>(), sum = 0;
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) top = Max()(top, load(x + c));
  top = block_reduce<Max>(top);
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) sum += std::exp(load(x + c) - top);
  sum = block_reduce<Sum>(sum);
  C log_sum = std::log(sum), scale = 1 / sum;
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) {
    C shifted = load(x + c) - top;
    store(y + c, r.log ? shifted - log_sum : std::exp(shifted) * scale, r.accumulate);
  }
}

void softmax(const Launch& how, OutView y, View x, bool log) {
  if (x.numel() == 0) return;
  int64_t cols = x.shape[-1];
  dispatch_floats(x.dtype, [&]<class T>() {
    bool packed = rows_packed(y.as<T>(), cols) && rows_packed(x.as<T>(), cols);
    SoftmaxRows r{x.numel() / cols, int(cols), log, packed, y.beta != 0};
    bool fits = dispatch_rows<T>(cols, [&]<int packs, bool by_block>() {
      launch<softmax_kernel<T, packs, by_block>>(how, row_blocks<by_block>(r.rows), y.as<T>(), x.as<T>(), r);
    });
    if (!fits) launch<wide_softmax_kernel<T>>(how, {blocks_for(r.rows, 1), kBlock}, y.as<T>(), x.as<T>(), r);
  });
}

// softmax: dx = y · (dy - Σ dy · y); log-softmax: dx = dy - exp(y) · Σ dy
template <class C> __device__ C softmax_term(bool log, C dy, C y) { return log ? dy : dy * y; }
template <class C> __device__ C softmax_slope(bool log, C dy, C y, C dot) {
  return log ? dy - std::exp(y) * dot : y * (dy - dot);
}

template <class T, int packs, bool by_block>
__global__ void softmax_backward_kernel(T* dx, const T* dy, const T* y, SoftmaxRows r) {
  using C = Compute<T>;
  using Threads = RowThreads<by_block>;
  int64_t row = Threads::row();
  if (row >= r.rows) return;
  dx += row * r.cols, dy += row * r.cols, y += row * r.cols;
  auto first = [](int k) { return (k * Threads::width + int(threadIdx.x)) * kPackOf<T>; };
  RowPack<T> gradients[packs], results[packs];
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    gradients[k] = load_part(dy, first(k), r.cols, r.packed);  // 0 beyond the row: adds nothing
    results[k] = load_part(y, first(k), r.cols, r.packed);
  }
  C dot = 0;
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e)
      dot += softmax_term(r.log, convert<C>(gradients[k].at[e]), convert<C>(results[k].at[e]));
  }
  dot = Threads::template reduce<Sum>(dot);
  SG_UNROLL
  for (int k = 0; k < packs; ++k)
    store_part(dx, first(k), r.cols, r.packed, r.accumulate, [&](int e) {
      return softmax_slope(r.log, convert<C>(gradients[k].at[e]), convert<C>(results[k].at[e]), dot);
    });
}

template <class T> __global__ void wide_softmax_backward_kernel(T* dx, const T* dy, const T* y, SoftmaxRows r) {
  using C = Compute<T>;
  dx += blockIdx.x * r.cols, dy += blockIdx.x * r.cols, y += blockIdx.x * r.cols;
  C dot = 0;
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) dot += softmax_term(r.log, load(dy + c), load(y + c));
  dot = block_reduce<Sum>(dot);
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x)
    store(dx + c, softmax_slope(r.log, load(dy + c), load(y + c), dot), r.accumulate);
}

void softmax_backward(const Launch& how, OutView dx, View dy, View y, bool log) {
  if (y.numel() == 0) return;
  int64_t cols = y.shape[-1];
  dispatch_floats(y.dtype, [&]<class T>() {
    bool packed = rows_packed(dx.as<T>(), cols) && rows_packed(dy.as<T>(), cols) && rows_packed(y.as<T>(), cols);
    SoftmaxRows r{y.numel() / cols, int(cols), log, packed, dx.beta != 0};
    bool fits = dispatch_rows<T>(cols, [&]<int packs, bool by_block>() {
      launch<softmax_backward_kernel<T, packs, by_block>>(how, row_blocks<by_block>(r.rows), dx.as<T>(), dy.as<T>(),
                                                          y.as<T>(), r);
    });
    if (!fits)
      launch<wide_softmax_backward_kernel<T>>(how, {blocks_for(r.rows, 1), kBlock}, dx.as<T>(), dy.as<T>(), y.as<T>(),
                                              r);
  });
}

const Registered registered[] = {
    add_kernel<softmax>(kernels::softmax, kFloats),
    add_kernel<softmax_backward>(kernels::softmax_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
