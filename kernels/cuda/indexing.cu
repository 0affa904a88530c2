// index_select, gather, scatter_add, scatter. index_add is in index_add.cu.
//
// index_select  reads the selected elements and writes y; about 6 operations per element, 4 of them divisions.
// gather        reads an index, an element and writes one; two divisions per dimension.
// scatter_add   reads an index and an element and adds it to y, which it reads and writes: 1 addition per element.
// scatter       reads an index and an element and writes one; two divisions per dimension, or one for a row.
//
// Additions follow the order of the index, so the sums have the same bits every time: what may meet in one place
// belongs to one thread, that of a line along the dimension, which goes through the entries in their order. Where the
// elements of a line are neighbours, a warp has the line, however long, and takes 32 of them at a time: of those that
// meet, the first lane gets the others by shuffles, in their order. Sums of f16 and bf16 are built in f32 and rounded
// once.

#include <optional>

#include <shardgrad/kernels/cuda/around.h>
#include <shardgrad/kernels/cuda/map.h>

namespace shardgrad::SG_DEVICE {
namespace {

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

constexpr int64_t kLineOfWarp = 16;  ///< elements of a line from which half the lanes have one

// Warp i adds line i, whose `count` elements are neighbours.
template <class T>
__global__ void scatter_add_rows_kernel(SumType<T>* sums, const T* src, const int64_t* index, int64_t warps,
                                        int64_t count, int64_t extent, Lines lines) {
  using A = Compute<T>;
  int64_t warp = thread_number() / warpSize, begin = warp * count;
  if (warp >= warps) return;
  int lane = int(threadIdx.x) % warpSize;
  sums += offset_of<0>(lines.shape, begin);
  for (int64_t k = lane; k - lane < count; k += warpSize) {
    bool mine = k < count;
    int64_t at = mine ? index[begin + k] : -1;
    if (mine) check_index("scatter_add: index", begin + k, at, extent);
    A value = mine ? load(src + begin + k) : A(0);
    unsigned alike = __match_any_sync(kWholeWarp, at);
    bool first = mine && (alike & ((1u << lane) - 1)) == 0;
    A sum = first ? load(sums + at * lines.step) : A(0);
    for (unsigned left = first ? alike : 0u; __any_sync(kWholeWarp, left != 0); left &= left - 1) {
      A next = __shfl_sync(kWholeWarp, value, left ? __ffs(int(left)) - 1 : lane);
      if (left) sum += next;
    }
    __syncwarp();  // all have read: the simulator has one note of readers for all bytes of a word
    if (first) store(sums + at * lines.step, sum, false);
    __syncwarp();  // the next elements find it there
  }
}

void scatter_add(const Launch& how, OutView y, View src, View index, int dim) {
  if (y.numel() == 0) return;
  Around from(index.shape, dim);
  Lines places(index.shape, y.shape, dim);
  int64_t lines = from.outer * from.inner, extent = y.shape[dim];
  dispatch(src.dtype, [&]<class T>() {
    SumsInto<T> sums(how, y);
    if (from.inner == 1 && from.extent >= kLineOfWarp)
      launch<scatter_add_rows_kernel<T>>(how, {blocks_for(32 * lines), kBlock}, sums.data(), src.as<T>(),
                                         index.as<int64_t>(), lines, from.extent, extent, places);
    else if (index.numel() > 0)
      launch<scatter_add_kernel<T>>(how, {blocks_for(lines), kBlock}, sums.data(), src.as<T>(), index.as<int64_t>(),
                                    lines, from.extent, from.inner, extent, places);
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
    add_kernel<gather>(kernels::gather, kAll),
    add_kernel<scatter_add>(kernels::scatter_add, kAll),
    add_kernel<scatter>(kernels::scatter, kAll),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
