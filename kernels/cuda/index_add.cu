// index_add: the gradient of an embedding.
//
// Sorts the index (sorted_index.h), then reads x once and adds it to the rows of y that are named, which it writes, and
// reads where y is added to: 1 addition per element of x.
//
// Additions follow the order of the index, so the sums have the same bits every time: a row's sum in a column belongs
// to one thread. Most rows are named once or twice: a warp asks for the rows of eight entries together, a pack of each
// lane, whichever rows of y they are added to. Where a row is named by many entries, all threads of the block take a
// column each and ask for 32 entries together. Sums of f16 and bf16 are built in f32 and rounded once.

#include <shardgrad/kernels/cuda/around.h>
#include <shardgrad/kernels/cuda/rows.h>
#include <shardgrad/kernels/cuda/sorted_index.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// What index_add reads and writes, the index in the order of its values.
template <class T> struct IndexedRows {
  T* y;
  const T* x;
  const int64_t *index, *order;
  int64_t count, extent, inner;
  bool packed, accumulate;

  /// Where an entry's row begins in x, and the number of that in y; -1 where there is no entry.
  struct Entry {
    int64_t from = 0, row = -1;
  };
  /// The entry at place k of the order.
  __device__ Entry at(int64_t k) const {
    if (k < 0 || k >= count) return {};
    int64_t entry = order[k];
    return {entry * inner, index[entry]};
  }
};

constexpr int kPlaces = 8;  // of a warp; as many rows are asked for at once
constexpr int kKnown = 31;  // places from the warp's first on whose entries its lanes have; one has that before it

// A run is all entries of one row of y. Adds up the runs that begin at the kPlaces places from `first` on, for a pack
// of columns of each lane, which begins at `col`. One that goes on behind the known places is left open: the result is
// where it begins, or -1.
template <class T> __device__ int64_t add_runs(const IndexedRows<T>& all, int64_t first, int64_t col) {
  constexpr int count = kPackOf<T>;
  int lane = int(threadIdx.x) % warpSize;
  auto mine = all.at(first - 1 + lane);
  int64_t left = all.count - first, before = __shfl_up_sync(kWholeWarp, mine.row, 1u);
  unsigned begins = __ballot_sync(kWholeWarp, mine.row >= 0 && mine.row != before) >> 1;
  unsigned own = begins & ((1u << kPlaces) - 1), later = begins - own;
  if (own == 0) return -1;
  int at = __ffs(int(own)) - 1, last = 31 - __clz(int(own));
  bool known = later != 0 || left <= kKnown;
  int end = later != 0 ? __ffs(int(later)) - 1 : known ? int(left) : last;
  unsigned ends = (begins >> 1 | 1u << end >> 1) & ((1u << end) - 1);  // the places that are the last of a run
  Compute<T> sums[count] = {};
  for (; at < end; at += kPlaces) {
    Packed<T, count> rows[kPlaces] = {};  // beyond the end zeros, which change no sum
    SG_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      int64_t from = __shfl_sync(kWholeWarp, mine.from, at + i + 1);  // modulo 32
      if (at + i < end) rows[i] = load_some<count>(all.x + from + col, all.inner - col, all.packed);
    }
    SG_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      const auto elements = rows[i].elements();
      SG_UNROLL
      for (int e = 0; e < count; ++e) sums[e] += convert<Compute<T>>(elements.at[e]);
      if ((ends >> at >> i & 1) == 0) continue;
      int64_t row = __shfl_sync(kWholeWarp, mine.row, at + i + 1);
      store_values(all.y + row * all.inner + col, sums, all.inner - col, all.packed, all.accumulate);
      SG_UNROLL
      for (Compute<T>& sum : sums) sum = 0;
    }
  }
  return known ? -1 : first + last;
}

// Adds up a run that begins at place `begin`, for column `col`. The next entries are asked for with the rows of these.
template <class T> __device__ void add_long_run(const IndexedRows<T>& all, int64_t begin, int64_t col) {
  int lane = int(threadIdx.x) % warpSize, some;
  auto next = all.at(begin + lane);
  int64_t row = __shfl_sync(kWholeWarp, next.row, 0);
  bool has_one = col < all.inner;
  Compute<T> sum = 0;
  do {
    auto mine = next;
    some = __popc(__ballot_sync(kWholeWarp, mine.row == row));
    T elements[warpSize];
    SG_UNROLL
    for (int i = 0; i < warpSize; ++i) {
      int64_t from = __shfl_sync(kWholeWarp, mine.from, i);
      elements[i] = has_one && i < some ? all.x[from + col] : T();
    }
    begin += warpSize;
    next = all.at(begin + lane);
    SG_UNROLL
    for (int i = 0; i < warpSize; ++i) sum += convert<Compute<T>>(elements[i]);
  } while (some == warpSize);
  if (has_one) store(all.y + row * all.inner + col, sum, all.accumulate);
}

// y is (outer, extent, inner), x is (outer, count, inner). A block has a strip of columns, as many as it has threads
// and as a warp has in its packs, and a window of places, kPlaces of each warp. A run that a warp leaves open is added
// up by the whole block.
template <class T> __global__ void index_add_kernel(IndexedRows<T> rows, unsigned windows, unsigned strips) {
  constexpr int warps = kPackOf<T>;
  __shared__ int64_t left_open[warps];
  int thread = int(threadIdx.x), lane = thread % warpSize, warp = thread / warpSize;
  int64_t outer = blockIdx.x / strips / windows, window = blockIdx.x / strips % windows;
  int64_t col = int64_t(blockIdx.x % strips) * blockDim.x;
  rows.x += outer * rows.count * rows.inner;
  rows.y += outer * rows.extent * rows.inner;
  int64_t open = add_runs(rows, (window * warps + warp) * kPlaces, col + lane * kPackOf<T>);
  if (lane == 0) left_open[warp] = open;
  __syncthreads();
  for (int w = 0; w < warps; ++w)
    if (left_open[w] >= 0) [[unlikely]]
      add_long_run(rows, left_open[w], col + thread);
}

void index_add(const Launch& how, OutView y, View x, View index, int dim) {
  if (y.numel() == 0) return;
  Around to(y.shape, dim);
  if (y.beta == 0) kernels::fill.find(kThisDevice, y.dtype)(how, y, 0.0);
  if (x.numel() == 0) return;
  SortedIndex sorted(how, index, to.extent);
  const int64_t *at = index.as<int64_t>(), count = index.numel();
  dispatch(x.dtype, [&]<class T>() {
    constexpr int64_t warps = kPackOf<T>, threads = 32 * warps;
    bool packed = rows_packed(y.as<T>(), to.inner) && rows_packed(x.as<T>(), to.inner);
    IndexedRows<T> rows{y.as<T>(), x.as<T>(), at, sorted.order(), count, to.extent, to.inner, packed, y.beta != 0};
    unsigned windows = blocks_for(count, warps * kPlaces), strips = blocks_for(to.inner, threads);
    Config config{blocks_for(to.outer * windows * strips, 1), unsigned(threads)};
    launch<index_add_kernel<T>>(how, config, rows, windows, strips);
  });
}

const Registered registered = add_kernel<index_add>(kernels::index_add, kAll);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
