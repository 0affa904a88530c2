// cumsum: one block per row, a chunk of kBlock elements at a time, a warp scan and the sum of what came before; where
// rows are not contiguous, one thread per row. Reads x and writes y once; about ten additions per element.
//
// sort: a bitonic network over entries of a key and its place. Rows are padded to a power of two; tiles of kTile
// entries are sorted in shared memory, the steps between tiles in global memory: log²(rows' length / kTile) / 2 of
// them, each reading and writing 8 bytes per entry (16 for f64 and i64).
//
// The first few of a long line (topk): a warp keeps as many as it has lanes, in order, and passes over what comes
// behind them. Reads x once, about ten operations per element, and some forty of a warp for each that is kept on the
// way: about k · log(n / k) for k of n that come in no order. However a line is cut, its first ones are the same.

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
  using Index = std::conditional_t<sizeof(N) == 4, int32_t, int64_t>;
  N key;
  Index index;
};

struct Order {
  Lines lines;
  int64_t padded;  ///< entries of a line: a power of two, or as many as are wanted
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
  /// Entry e of a line of x.
  template <class N, class T> __device__ Entry<N> entry(const T* x, int64_t line, int64_t e) const {
    using Index = typename Entry<N>::Index;
    return {e < lines.extent ? convert<N>(T(x[lines.at(line, e)])) : N(0), Index(e)};
  }
  /// Padding that comes before no other.
  template <class N> __device__ Entry<N> nothing() const {
    return {N(0), std::numeric_limits<typename Entry<N>::Index>::max()};
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
    if (x)
      tile[i] = order.entry<N>(x, line, first + i);
    else
      tile[i] = entries[i];
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

template <class N, class T> void sort_lines(const Launch& how, Entry<N>* entries, const T* x, const Order& order) {
  int64_t count = order.lines.count * order.padded, pairs = count / 2;
  Config tiles{blocks_for(count, order.tile), unsigned(order.tile / 2)};
  launch<sort_tile_kernel<N, T>>(how, tiles, entries, x, order, int64_t(2), int64_t(order.tile));
  for (int64_t size = 2 * order.tile; size <= order.padded; size *= 2) {
    for (int64_t stride = size / 2; stride >= order.tile; stride /= 2)
      launch<sort_step_kernel<N>>(how, {blocks_for(pairs), kBlock}, entries, order, pairs, stride, size);
    launch<sort_tile_kernel<N, T>>(how, tiles, entries, static_cast<const T*>(nullptr), order, size, size);
  }
}

// --- the first few --------------------------------------------------------------------------------------------------

constexpr int kMostFew = 32;     ///< a lane has one
constexpr int64_t kPart = 8192;  ///< elements of a line that one block goes through

/// The entry of another lane of the warp.
template <class N> __device__ Entry<N> of_lane(const Entry<N>& entry, int lane) {
  return {__shfl_sync(kWholeWarp, entry.key, lane), __shfl_sync(kWholeWarp, entry.index, lane)};
}

/// The first of the entries that a warp has met, one in each lane, in their order.
template <class N> struct FirstEntries {
  Entry<N> mine, last;  ///< last: of those that are wanted

  /// Meets one entry of each lane. All lanes of the warp call.
  __device__ void meet(Entry<N> entry, const Order& order, int wanted) {
    int lane = int(threadIdx.x) % warpSize;
    while (unsigned waiting = __ballot_sync(kWholeWarp, order.before(entry, last))) {
      int from = __ffs(int(waiting)) - 1;
      Entry<N> next = of_lane(entry, from);
      int place = __popc(__ballot_sync(kWholeWarp, order.before(mine, next)));
      Entry<N> above{__shfl_up_sync(kWholeWarp, mine.key, 1u), __shfl_up_sync(kWholeWarp, mine.index, 1u)};
      if (lane >= place) mine = lane == place ? next : above;
      if (lane == from) entry = order.nothing<N>();
      last = of_lane(mine, wanted - 1);
    }
  }
};

// Of a line of `count` entries, those of x or, where that is null, of `from`, block line · parts + part puts the first
// `wanted` of [part · length, …) to `to`, in order: each warp finds its own, and the first warp those of all.
template <class N, class T>
__global__ void first_entries_kernel(Entry<N>* to, const Entry<N>* from, const T* x, Order order, int64_t count,
                                     int64_t length, int wanted) {
  constexpr int together = 4;
  __shared__ Entry<N> firsts[kBlock / 32 * kMostFew];
  int threads = int(blockDim.x), lane = int(threadIdx.x) % warpSize, warp = int(threadIdx.x) / warpSize;
  int64_t parts = (count + length - 1) / length, line = blockIdx.x / parts, begin = blockIdx.x % parts * length;
  int64_t end = begin + length < count ? begin + length : count;
  FirstEntries<N> first{order.nothing<N>(), order.nothing<N>()};
  for (int64_t at = begin + warp * warpSize; at < end; at += together * threads) {
    Entry<N> entries[together];
    SG_UNROLL
    for (int k = 0; k < together; ++k) {
      int64_t e = at + k * threads + lane;
      entries[k] = e >= end ? order.nothing<N>() : (x ? order.entry<N>(x, line, e) : from[line * count + e]);
    }
    SG_UNROLL
    for (int k = 0; k < together; ++k) first.meet(entries[k], order, wanted);
  }
  if (lane < wanted) firsts[warp * wanted + lane] = first.mine;
  __syncthreads();
  if (warp > 0) return;
  int all = threads / warpSize * wanted;
  for (int i = wanted + lane; i - lane < all; i += warpSize)
    first.meet(i < all ? firsts[i] : order.nothing<N>(), order, wanted);
  if (lane < wanted) to[int64_t(blockIdx.x) * wanted + lane] = first.mine;
}

/// Puts the first entries of each line to `entries`; behind them is room for those of each part of each line.
template <class N, class T>
void take_few(const Launch& how, Entry<N>* entries, const T* x, const Order& order, int64_t wanted) {
  int64_t parts = chunks_of(order.lines.extent, kPart);
  auto pass = [&](Entry<N>* to, const Entry<N>* from, const T* elements, int64_t count, int64_t length) {
    unsigned threads = threads_for((std::min(count, length) + 7) / 8);  // eight for each, or more
    Config config{blocks_for(order.lines.count * chunks_of(count, length), 1), threads};
    launch<first_entries_kernel<N, T>>(how, config, to, from, elements, order, count, length, int(wanted));
  };
  Entry<N>* of_parts = entries + order.lines.count * wanted;
  pass(parts > 1 ? of_parts : entries, nullptr, x, order.lines.extent, kPart);
  if (parts > 1) pass(entries, of_parts, nullptr, parts * wanted, parts * wanted);
}

template <class T>
void sort_typed(const Launch& how, OutView values, OutView index, View x, Order order, int64_t wanted) {
  using N = Key<T>;
  int64_t extent = order.lines.extent;
  SG_CHECK(sizeof(N) == 8 || order.padded <= int64_t(1) << 30, "sort: ", extent, " elements of ", dtype_of<T>,
           " along a dimension are too many; convert them with .to(DType::f64)");
  bool few = wanted <= kMostFew && 4 * wanted <= extent;
  int64_t room = few ? wanted * (1 + chunks_of(extent, kPart)) : order.padded;
  Scratch scratch(how, size_t(order.lines.count * room) * sizeof(Entry<N>));
  Entry<N>* entries = scratch.as<Entry<N>>();
  if (few) {
    take_few(how, entries, x.as<T>(), order, wanted);
    order.padded = wanted;
  } else {
    sort_lines(how, entries, x.as<T>(), order);
  }
  launch<take_sorted_kernel<N, T>>(how, {blocks_for(order.lines.count * wanted), kBlock}, values.as<T>(),
                                   index.as<int64_t>(), x.as<T>(), static_cast<const Entry<N>*>(entries), order, wanted,
                                   values.beta != 0, index.beta != 0);
}

void sort(const Launch& how, OutView values, OutView index, View x, int dim, bool descending) {
  Order order{Lines(x.shape, dim), 64, kTile, descending};
  int64_t wanted = index.shape[dim];
  if (order.lines.count == 0 || wanted == 0) return;
  while (order.padded < order.lines.extent) order.padded *= 2;
  order.tile = int(std::min<int64_t>(order.padded, kTile));
  dispatch(x.dtype, [&]<class T>() { sort_typed<T>(how, values, index, x, order, wanted); });
}

constexpr DType kSummed[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64};
const Registered registered[] = {add_kernel<cumsum>(kernels::cumsum, kSummed), add_kernel<sort>(kernels::sort, kAll)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
