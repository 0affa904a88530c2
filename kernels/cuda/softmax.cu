// softmax and log-softmax of rows, and their backward; rows.h says which threads have a row. Of columns, where the
// dimension is not the last, a block has 32 that lie side by side, and each of its warps every eighth row. Arithmetic
// in f32 (f64 for f64).
//
// softmax:           reads x once (columns, and a row that fits nowhere, three times, the last two from the caches),
//                    writes y: 2 elements moved per element, an exponential and 4 other operations.
// softmax_backward:  reads dy and y once (twice), writes dx: 3 elements moved, 4 operations.

#include <shardgrad/kernels/cuda/rows.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kColumnThreads = 8;  ///< that share a column

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
    for (T element : part[k].elements().at) top = Max()(top, convert<C>(element));
  top = Threads::template reduce<Max>(top);
  C powers[packs][kPackOf<T>];
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e) sum += powers[k][e] = std::exp(convert<C>(part[k][e]) - top);  // 0 beyond
  }
  sum = Threads::template reduce<Sum>(sum);
  C log_sum = std::log(sum), scale = 1 / sum;
  SG_UNROLL
  for (int k = 0; k < packs; ++k)
    store_part(y, first(k), r.cols, r.packed, r.accumulate,
               [&](int e) { return r.log ? convert<C>(part[k][e]) - top - log_sum : powers[k][e] * scale; });
}

/// x seen as (outer, extent, inner): columns of `inner`, a block of 32 of which there are `across` in each outer one.
struct SoftmaxColumns {
  int64_t outer = 1, extent, inner = 1, across = 1;
  bool log, accumulate;
  SoftmaxColumns(const Shape& shape, int dim, bool log_form, bool adds)
      : extent(shape[dim]), log(log_form), accumulate(adds) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
    across = (inner + 31) / 32;
  }
  Config config() const { return {blocks_for(outer * across, 1), dim3(32, kColumnThreads)}; }
  /// This thread's column: where it begins, and how many rows it has, none beyond the last column.
  __device__ int64_t first() const { return blockIdx.x / across * extent * inner + column(); }
  __device__ int64_t rows() const { return column() < inner ? extent : 0; }
  __device__ int64_t column() const { return blockIdx.x % across * 32 + threadIdx.x; }
};

/// All threads of a column get the result.
template <class Op, class A> __device__ A column_reduce(A value) {
  __shared__ A tile[kColumnThreads][32];
  __syncthreads();  // the last call's results have been read
  tile[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  A all = tile[0][threadIdx.x];
  for (int y = 1; y < kColumnThreads; ++y) all = Op()(all, tile[y][threadIdx.x]);
  return all;
}

template <class T> __global__ void wide_softmax_kernel(T* y, const T* x, SoftmaxColumns m) {
  using C = Compute<T>;
  int64_t before = int64_t(blockIdx.x) * m.extent;
  y += before, x += before;
  C top = Max::nothing<C>(), sum = 0;
  for (int64_t c = threadIdx.x; c < m.extent; c += blockDim.x) top = Max()(top, load(x + c));
  top = block_reduce<Max>(top);
  for (int64_t c = threadIdx.x; c < m.extent; c += blockDim.x) sum += std::exp(load(x + c) - top);
  sum = block_reduce<Sum>(sum);
  C log_sum = std::log(sum), scale = 1 / sum;
  for (int64_t c = threadIdx.x; c < m.extent; c += blockDim.x) {
    C shifted = load(x + c) - top;
    store(y + c, m.log ? shifted - log_sum : std::exp(shifted) * scale, m.accumulate);
  }
}

template <class T> __global__ void softmax_columns_kernel(T* y, const T* x, SoftmaxColumns m) {
  using C = Compute<T>;
  int64_t first = m.first(), rows = m.rows();
  C top = Max::nothing<C>(), sum = 0;
  for (int64_t r = threadIdx.y; r < rows; r += kColumnThreads) top = Max()(top, load(x + first + r * m.inner));
  top = column_reduce<Max>(top);
  for (int64_t r = threadIdx.y; r < rows; r += kColumnThreads) sum += std::exp(load(x + first + r * m.inner) - top);
  sum = column_reduce<Sum>(sum);
  C log_sum = std::log(sum), scale = 1 / sum;
  for (int64_t r = threadIdx.y; r < rows; r += kColumnThreads) {
    C shifted = load(x + first + r * m.inner) - top;
    store(y + first + r * m.inner, m.log ? shifted - log_sum : std::exp(shifted) * scale, m.accumulate);
  }
}

void softmax(const Launch& how, OutView y, View x, int dim, bool log) {
  if (x.numel() == 0) return;
  SoftmaxColumns m(x.shape, dim, log, y.beta != 0);
  int64_t cols = m.extent;
  dispatch_floats(x.dtype, [&]<class T>() {
    if (m.inner > 1) return launch<softmax_columns_kernel<T>>(how, m.config(), y.as<T>(), x.as<T>(), m);
    bool packed = rows_packed(y.as<T>(), cols) && rows_packed(x.as<T>(), cols);
    SoftmaxRows r{x.numel() / cols, int(cols), log, packed, y.beta != 0};
    bool fits = dispatch_rows<T>(cols, [&]<int packs, bool by_block>() {
      launch<softmax_kernel<T, packs, by_block>>(how, row_blocks<by_block>(r.rows), y.as<T>(), x.as<T>(), r);
    });
    if (!fits) launch<wide_softmax_kernel<T>>(how, {blocks_for(r.rows, 1), kBlock}, y.as<T>(), x.as<T>(), m);
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
      dot += softmax_term(r.log, convert<C>(gradients[k][e]), convert<C>(results[k][e]));
  }
  dot = Threads::template reduce<Sum>(dot);
  SG_UNROLL
  for (int k = 0; k < packs; ++k)
    store_part(dx, first(k), r.cols, r.packed, r.accumulate, [&](int e) {
      return softmax_slope(r.log, convert<C>(gradients[k][e]), convert<C>(results[k][e]), dot);
    });
}

template <class T> __global__ void wide_softmax_backward_kernel(T* dx, const T* dy, const T* y, SoftmaxColumns m) {
  using C = Compute<T>;
  int64_t before = int64_t(blockIdx.x) * m.extent;
  dx += before, dy += before, y += before;
  C dot = 0;
  for (int64_t c = threadIdx.x; c < m.extent; c += blockDim.x) dot += softmax_term(m.log, load(dy + c), load(y + c));
  dot = block_reduce<Sum>(dot);
  for (int64_t c = threadIdx.x; c < m.extent; c += blockDim.x)
    store(dx + c, softmax_slope(m.log, load(dy + c), load(y + c), dot), m.accumulate);
}

template <class T> __global__ void softmax_columns_backward_kernel(T* dx, const T* dy, const T* y, SoftmaxColumns m) {
  int64_t first = m.first(), rows = m.rows();
  Compute<T> dot = 0;
  for (int64_t r = threadIdx.y; r < rows; r += kColumnThreads)
    dot += softmax_term(m.log, load(dy + first + r * m.inner), load(y + first + r * m.inner));
  dot = column_reduce<Sum>(dot);
  for (int64_t r = threadIdx.y; r < rows; r += kColumnThreads) {
    int64_t at = first + r * m.inner;
    store(dx + at, softmax_slope(m.log, load(dy + at), load(y + at), dot), m.accumulate);
  }
}

void softmax_backward(const Launch& how, OutView dx, View dy, View y, int dim, bool log) {
  if (y.numel() == 0) return;
  SoftmaxColumns m(y.shape, dim, log, dx.beta != 0);
  int64_t cols = m.extent;
  dispatch_floats(y.dtype, [&]<class T>() {
    if (m.inner > 1)
      return launch<softmax_columns_backward_kernel<T>>(how, m.config(), dx.as<T>(), dy.as<T>(), y.as<T>(), m);
    bool packed = rows_packed(dx.as<T>(), cols) && rows_packed(dy.as<T>(), cols) && rows_packed(y.as<T>(), cols);
    SoftmaxRows r{y.numel() / cols, int(cols), log, packed, dx.beta != 0};
    bool fits = dispatch_rows<T>(cols, [&]<int packs, bool by_block>() {
      launch<softmax_backward_kernel<T, packs, by_block>>(how, row_blocks<by_block>(r.rows), dx.as<T>(), dy.as<T>(),
                                                          y.as<T>(), r);
    });
    if (!fits)
      launch<wide_softmax_backward_kernel<T>>(how, {blocks_for(r.rows, 1), kBlock}, dx.as<T>(), dy.as<T>(), y.as<T>(),
                                              m);
  });
}

const Registered registered[] = {
    add_kernel<softmax>(kernels::softmax, kFloats),
    add_kernel<softmax_backward>(kernels::softmax_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
