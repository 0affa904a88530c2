// cumsum: one block per row, a chunk of kBlock elements at a time, a warp scan and the sum of what came before; where
// rows are not contiguous, one thread per row. Reads x and writes y once; about ten additions per element.
//
// sort: a bitonic network over entries of a key and its place. Rows are padded to a power of two; tiles of kTile
// entries are sorted in shared memory, the steps between tiles in global memory: log²(rows' length / kTile) / 2 of
// them, each reading and writing 8 bytes per entry (16 for f64 and i64).

#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/sums.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// x seen as (outer, extent, inner) around a dimension.
struct Lines {
  int64_t count = 1, extent, inner = 1;  // count: outer · inner
  Lines(const Shape& shape, int dim) : extent(shape[dim]) {
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
    count = extent ? shape.numel() / extent : 0;
  }
  /// Element e of line i.
  __device__ int64_t at(int64_t i, int64_t e) const { return (i / inner * extent + e) * inner + i % inner; }
};

// The sum of the lanes up to this one.
template <class A> __device__ A warp_scan(A value) {
  int lane = int(threadIdx.x) % warpSize;
  for (int distance = 1; distance < warpSize; distance *= 2) {
    A before = __shfl_up_sync(kWholeWarp, value, unsigned(distance));
    if (lane >= distance) value += before;
  }
  return value;
}

template <class T> __global__ void cumsum_row_kernel(T* y, const T* x, int64_t extent, bool reverse, bool accumulate) {
  using A = Sums<T>;
  __shared__ A totals[kBlock / 32];
  int thread = int(threadIdx.x), lane = thread % warpSize, warp = thread / warpSize, warps = int(blockDim.x) / warpSize;
  x += blockIdx.x * extent, y += blockIdx.x * extent;
  A carried = 0;
  for (int64_t first = 0; first < extent; first += blockDim.x) {
    int64_t e = first + thread, at = reverse ? extent - 1 - e : e;
    A sum = warp_scan(e < extent ? A(load(x + at)) : A(0));
    if (lane == warpSize - 1) totals[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; ++w) sum += totals[w];
    if (e < extent) store(y + at, Compute<T>(carried + sum), accumulate);
    for (int w = 0; w < warps; ++w) carried += totals[w];
    __syncthreads();
  }
}

template <class T> __global__ void cumsum_line_kernel(T* y, const T* x, Lines lines, bool reverse, bool accumulate) {
  int64_t i = thread_number();
  if (i >= lines.count) return;
  Sums<T> sum = 0;
  for (int64_t e = 0; e < lines.extent; ++e) {
    int64_t at = lines.at(i, reverse ? lines.extent - 1 - e : e);
    sum += Sums<T>(load(x + at));
    store(y + at, Compute<T>(sum), accumulate);
  }
}

void cumsum(const Launch& how, OutView y, View x, int dim, bool reverse) {
  Lines lines(x.shape, dim);
  bool add = y.beta != 0;
  auto run = [&]<class T>() {
    if (lines.inner == 1)
      launch<cumsum_row_kernel<T>>(how, {blocks_for(lines.count, 1), threads_for(lines.extent)}, y.as<T>(), x.as<T>(),
                                   lines.extent, reverse, add);
    else
      launch<cumsum_line_kernel<T>>(how, {blocks_for(lines.count), kBlock}, y.as<T>(), x.as<T>(), lines, reverse, add);
  };
  if (x.dtype == DType::i64)
    run.template operator()<int64_t>();
  else
    dispatch_floats(x.dtype, run);
}

// --- sort -----------------------------------------------------------------------------------------------------------

constexpr int kTile = 1024;

/// The type in which elements compare.
template <class T>
using Key = std::conditional_t<std::is_class_v<T>, float, std::conditional_t<sizeof(T) == 1, int32_t, T>>;

/// An element as it compares, and its place in its line, of as many bytes, so that there are none between; from
/// `extent` on: padding, which comes last.
template <class N> struct Entry {
  N key;
  std::conditional_t<sizeof(N) == 4, int32_t, int64_t> index;
};

struct Order {
  Lines lines;
  int64_t padded;  ///< entries of a line: a power of two
  int tile;        ///< of them in shared memory
  bool descending;

  // NaN is the largest; of equal ones the first comes first, whatever the direction.
  template <class N> __device__ bool before(const Entry<N>& a, const Entry<N>& b) const {
    if ((a.index >= lines.extent) != (b.index >= lines.extent)) return a.index < lines.extent;
    if (a.key < b.key) return !descending;
    if (b.key < a.key) return descending;
    bool a_nan = a.key != a.key, b_nan = b.key != b.key;
    return a_nan != b_nan ? a_nan == descending : a.index < b.index;
  }
  /// Brings entries `low` and `low + stride` of a line into the order that their group of `size` entries has.
  template <class N> __device__ void exchange(Entry<N>* at, int64_t low, int64_t stride, int64_t size) const {
    Entry<N> a = at[0], b = at[stride];
    if (before(b, a) != ((low & size) == 0)) return;
    at[0] = b;
    at[stride] = a;
  }
};

/// The lower of the pair that a thread compares.
__device__ inline int64_t lower_of_pair(int64_t thread, int64_t stride) {
  return (thread / stride * 2) * stride + thread % stride;
}

// Groups of `from` up to `to` entries of a tile, which comes from x, or where that is null from the entries.
template <class N, class T>
__global__ void sort_tile_kernel(Entry<N>* entries, const T* x, Order order, int64_t from, int64_t to) {
  __shared__ Entry<N> tile[kTile];
  int64_t tiles = order.padded / order.tile, line = blockIdx.x / tiles, first = blockIdx.x % tiles * order.tile;
  entries += line * order.padded + first;
  for (int i = int(threadIdx.x); i < order.tile; i += int(blockDim.x)) {
    int64_t e = first + i;
    if (!x)
      tile[i] = entries[i];
    else
      tile[i] = {e < order.lines.extent ? convert<N>(T(x[order.lines.at(line, e)])) : N(0), decltype(tile->index)(e)};
  }
  __syncthreads();
  for (int64_t size = from; size <= to; size *= 2)
    for (int64_t stride = size / 2 < order.tile / 2 ? size / 2 : order.tile / 2; stride > 0; stride /= 2) {
      int64_t low = lower_of_pair(threadIdx.x, stride);
      order.exchange(tile + low, first + low, stride, size);
      __syncthreads();
    }
  for (int i = int(threadIdx.x); i < order.tile; i += int(blockDim.x)) entries[i] = tile[i];
}

template <class N>
__global__ void sort_step_kernel(Entry<N>* entries, Order order, int64_t pairs, int64_t stride, int64_t size) {
  int64_t i = thread_number();
  if (i >= pairs) return;
  int64_t low = lower_of_pair(i % (order.padded / 2), stride);
  order.exchange(entries + i / (order.padded / 2) * order.padded + low, low, stride, size);
}

template <class N, class T>
__global__ void take_sorted_kernel(T* values, int64_t* index, const T* x, const Entry<N>* entries, Order order,
                                   int64_t wanted, bool add_value, bool add_index) {
  int64_t to = thread_number(), inner = order.lines.inner;
  if (to >= order.lines.count * wanted) return;
  int64_t line = to / (wanted * inner) * inner + to % inner, e = to / inner % wanted;
  int64_t from = entries[line * order.padded + e].index;
  if (values) put(values + to, T(x[order.lines.at(line, from)]), add_value);
  if (index) put(index + to, from, add_index);
}

template <class T>
void sort_typed(const Launch& how, OutView values, OutView index, View x, Order order, int64_t wanted) {
  using N = Key<T>;
  SG_CHECK(sizeof(N) == 8 || order.padded <= int64_t(1) << 30, "sort: ", order.lines.extent, " elements of ",
           dtype_of<T>, " along a dimension are too many; convert them with .to(DType::f64)");
  int64_t count = order.lines.count * order.padded, pairs = count / 2;
  Scratch scratch(how, size_t(count) * sizeof(Entry<N>));
  Entry<N>* entries = scratch.as<Entry<N>>();
  Config tiles{blocks_for(count, order.tile), unsigned(order.tile / 2)};
  launch<sort_tile_kernel<N, T>>(how, tiles, entries, x.as<T>(), order, int64_t(2), int64_t(order.tile));
  for (int64_t size = 2 * order.tile; size <= order.padded; size *= 2) {
    for (int64_t stride = size / 2; stride >= order.tile; stride /= 2)
      launch<sort_step_kernel<N>>(how, {blocks_for(pairs), kBlock}, entries, order, pairs, stride, size);
    launch<sort_tile_kernel<N, T>>(how, tiles, entries, static_cast<const T*>(nullptr), order, size, size);
  }
  launch<take_sorted_kernel<N, T>>(how, {blocks_for(order.lines.count * wanted), kBlock}, values.as<T>(),
                                   index.as<int64_t>(), x.as<T>(), static_cast<const Entry<N>*>(entries), order, wanted,
                                   values.beta != 0, index.beta != 0);
}

void sort(const Launch& how, OutView values, OutView index, View x, int dim, bool descending) {
  Order order{Lines(x.shape, dim), 64, kTile, descending};
  if (order.lines.count == 0) return;
  while (order.padded < order.lines.extent) order.padded *= 2;
  order.tile = int(std::min<int64_t>(order.padded, kTile));
  dispatch(x.dtype, [&]<class T>() { sort_typed<T>(how, values, index, x, order, index.shape[dim]); });
}

constexpr DType kSummed[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64};
const Registered registered[] = {add_kernel<cumsum>(kernels::cumsum, kSummed), add_kernel<sort>(kernels::sort, kAll)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
