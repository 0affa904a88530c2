// index_select, index_add, gather, scatter_add, scatter.
//
// index_select  reads the selected elements and writes y; about 6 operations per element, 4 of them divisions.
// gather        reads an index, an element and writes one; two divisions per dimension.
// scatter_add   reads an index and an element and adds it to y, which it reads and writes: 1 addition per element.
// scatter       reads an index and an element and writes one; two divisions per dimension, or one for a row.
// index_add     sorts the index (sorted_index.h), then reads x and adds it to the rows that are named: 1 addition each.
//
// Additions follow the order of the index, so the sums have the same bits every time: what may meet in one place
// belongs to one thread, which goes through the entries in their order. index_add has a thread for each pack of columns
// of a row that the index names, or for each column where many entries name it; scatter_add has one for each line along
// the dimension. Sums of f16 and bf16 are built in f32 and rounded once.

#include <optional>

#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/rows.h>
#include <shardgrad/kernels/cuda/sorted_index.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// A tensor seen as (outer, extent, inner) around one dimension.
struct Around {
  int64_t outer = 1, extent, inner = 1;
  Around(const Shape& shape, int dim) : extent(shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  }
};

// y is (outer, count, inner), x is (outer, extent, inner)
template <class T>
__global__ void index_select_kernel(T* y, const T* x, const int64_t* index, int64_t n, int64_t count, int64_t extent,
                                    int64_t inner, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t position = i / inner % count, at = index[position];
  check_index("index_select: index", position, at, extent);
  put(y + i, T(x[(i / inner / count * extent + at) * inner + i % inner]), accumulate);
}

void index_select(const Launch& how, OutView y, View x, View index, int dim) {
  if (y.numel() == 0) return;
  Around from(x.shape, dim);
  dispatch(x.dtype, [&]<class T>() {
    launch<index_select_kernel<T>>(how, {blocks_for(y.numel()), kBlock}, y.as<T>(), x.as<T>(), index.as<int64_t>(),
                                   y.numel(), index.numel(), from.extent, from.inner, y.beta != 0);
  });
}

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

// A run is all entries of one row of y. Adds up the runs that begin at the kPlaces places from `first` on, for a pack of
// columns of each lane, which begins at `col`. One that goes on behind the known places is left open: the result is
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
      int64_t from = __shfl_sync(kWholeWarp, mine.from, (at + i + 1) % warpSize);
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

// y is (outer, extent, inner), x is (outer, count, inner). A block has a strip of columns, as many as it has threads and
// as are in the packs of a warp, and a window of places, kPlaces of each warp. A run that a warp leaves open is added up
// by all of the block.
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

template <class T> using SumType = std::conditional_t<std::is_class_v<T>, float, T>;

/// Where sums into y are built: y itself, or f32 scratch memory for f16 and bf16. Begins as beta · y.
template <class T> class SumsInto {
 public:
  SumsInto(const Launch& how, const OutView& y) : how_(how), y_(y), sums_(y) {
    if constexpr (std::is_class_v<T>) {
      memory_.emplace(how, size_t(y.numel()) * sizeof(float));
      sums_ = {memory_->template as<float>(), y.shape, DType::f32, 0, true};
    }
    sums_.beta = 0;
    if (y.beta == 0)
      kernels::fill.find(kThisDevice, sums_.dtype)(how, sums_, 0);
    else if (std::is_class_v<T>)
      kernels::cast.find(kThisDevice, y.dtype)(how, sums_, {y.data, y.shape, y.dtype, true});
  }
  SumType<T>* data() const { return sums_.template as<SumType<T>>(); }
  void finish() {
    y_.beta = 0;
    if constexpr (std::is_class_v<T>)
      kernels::cast.find(kThisDevice, DType::f32)(how_, y_, {sums_.data, sums_.shape, DType::f32, true});
  }

 private:
  const Launch& how_;
  OutView y_, sums_;
  std::optional<Scratch> memory_;
};

/// Where the elements of an index of shape `index` stand in a tensor of shape `data`, but for dimension `dim`, and the
/// step there.
struct Lines {
  Broadcast<1> shape;
  int64_t step = 1;
  Lines(const Shape& index, const Shape& data, int dim) {
    shape.ndim = index.ndim();
    int64_t stride = 1;
    for (int d = index.ndim() - 1; d >= 0; --d) {
      shape.extent[size_t(d)] = index[d];
      shape.stride[0][size_t(d)] = d == dim ? 0 : stride;
      if (d == dim) step = stride;
      stride *= data[d];
    }
  }
};

template <class T>
__global__ void gather_kernel(T* y, const T* x, const int64_t* index, int64_t n, int64_t extent, Lines lines,
                              bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t at = index[i];
  check_index("gather: index", i, at, extent);
  put(y + i, T(x[offset_of<0>(lines.shape, i) + at * lines.step]), accumulate);
}

void gather(const Launch& how, OutView y, View x, View index, int dim) {
  if (index.numel() == 0) return;
  dispatch(x.dtype, [&]<class T>() {
    launch<gather_kernel<T>>(how, {blocks_for(y.numel()), kBlock}, y.as<T>(), x.as<T>(), index.as<int64_t>(), y.numel(),
                             x.shape[dim], Lines(index.shape, x.shape, dim), y.beta != 0);
  });
}

// Thread (outer, inner) of the index, seen as (outer, count, inner), adds one line along the dimension.
template <class T>
__global__ void scatter_add_kernel(SumType<T>* sums, const T* src, const int64_t* index, int64_t threads, int64_t count,
                                   int64_t inner, int64_t extent, Lines lines) {
  int64_t i = thread_number();
  if (i >= threads) return;
  int64_t first = i / inner * count * inner + i % inner;
  sums += offset_of<0>(lines.shape, first);
  for (int64_t k = 0; k < count; ++k) {
    int64_t at = index[first + k * inner];
    check_index("scatter_add: index", first + k * inner, at, extent);
    store(sums + at * lines.step, load(src + first + k * inner), true);
  }
}

void scatter_add(const Launch& how, OutView y, View src, View index, int dim) {
  if (y.numel() == 0) return;
  Around from(index.shape, dim);
  dispatch(src.dtype, [&]<class T>() {
    SumsInto<T> sums(how, y);
    int64_t threads = from.outer * from.inner;
    if (index.numel() > 0)
      launch<scatter_add_kernel<T>>(how, {blocks_for(threads), kBlock}, sums.data(), src.as<T>(), index.as<int64_t>(),
                                    threads, from.extent, from.inner, y.shape[dim], Lines(index.shape, y.shape, dim));
    sums.finish();
  });
}

template <class T>
__global__ void scatter_kernel(T* y, const T* src, const int64_t* index, int64_t n, int64_t extent, Lines lines,
                               bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t at = index[i];
  check_index("scatter: index", i, at, extent);
  put(y + offset_of<0>(lines.shape, i) + at * lines.step, T(src[i]), accumulate);
}

template <class T>
__global__ void scatter_rows_kernel(T* y, const T* src, const int64_t* index, int64_t n, int64_t extent, int64_t row,
                                    bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t at = index[i / row];
  check_index("scatter: index", i / row, at, extent);
  put(y + at * row + i % row, T(src[i]), accumulate);
}

void scatter(const Launch& how, OutView y, View src, View index, int dim) {
  writes_a_part_of(y);
  if (src.numel() == 0) return;
  int64_t row = src.numel() / index.numel();
  dispatch(src.dtype, [&]<class T>() {
    if (row > 1)
      return launch<scatter_rows_kernel<T>>(how, {blocks_for(src.numel()), kBlock}, y.as<T>(), src.as<T>(),
                                            index.as<int64_t>(), src.numel(), y.shape[dim], row, y.beta != 0);
    launch<scatter_kernel<T>>(how, {blocks_for(index.numel()), kBlock}, y.as<T>(), src.as<T>(), index.as<int64_t>(),
                              index.numel(), y.shape[dim], Lines(index.shape, y.shape, dim), y.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<index_select>(kernels::index_select, kAll),
    add_kernel<index_add>(kernels::index_add, kAll),
    add_kernel<gather>(kernels::gather, kAll),
    add_kernel<scatter_add>(kernels::scatter_add, kAll),
    add_kernel<scatter>(kernels::scatter, kAll),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
