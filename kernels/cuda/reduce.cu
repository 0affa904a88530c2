// sum_to: sums over the dimensions that were broadcast. Reads x once and writes y; one addition per element.
// max_dim: the largest, or smallest, element along one dimension and its place. Reads x once, a few comparisons per
// element. A row has a warp, or a block where it is long; what is not a row, or is short, has one thread.

#include <shardgrad/kernels/broadcast.h>
#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/sums.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// x seen as (outer, rows, cols); a row of one column is a position.
template <class T> struct Element {
  const T* x;
  int64_t rows, cols;
  template <class A> __device__ void operator()(int64_t outer, int64_t row, int64_t col, A* sums) const {
    sums[0] += A(load(x + (outer * rows + row) * cols + col));
  }
};

/// A walk over some dimensions of x, the last one fastest.
struct Walk {
  int ndim = 0;
  int64_t extent[kMaxDims] = {}, stride[kMaxDims] = {}, count = 1;
  void add(int64_t n, int64_t step) {
    extent[ndim] = n;
    stride[ndim++] = step;
    count *= n;
  }
  __device__ int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int d = 0; d < ndim; ++d) {
      at += i % extent[d] * stride[d];
      i /= extent[d];
    }
    return at;
  }
};

// Any pattern of kept and reduced dimensions, one thread per output.
template <class T> __global__ void sum_any_kernel(SumOf<T>* y, const T* x, Walk kept, Walk reduced, bool accumulate) {
  int64_t i = thread_number();
  if (i >= kept.count) return;
  x += kept.offset(i);
  Sums<T> sum = 0;
  for (int64_t r = 0; r < reduced.count; ++r) sum += Sums<T>(load(x + reduced.offset(r)));
  store(y + i, Compute<T>(sum), accumulate);
}

template <class T> void sum_any(const Launch& how, OutView y, View x, const Broadcast<1>& dims) {
  Walk kept, reduced;
  int64_t stride = 1;
  for (int d = dims.ndim - 1; d >= 0; --d) {
    size_t at = size_t(d);
    (dims.stride[0][at] ? kept : reduced).add(dims.extent[at], stride);
    stride *= dims.extent[at];
  }
  launch<sum_any_kernel<T>>(how, {blocks_for(kept.count), kBlock}, y.as<SumOf<T>>(), x.as<T>(), kept, reduced,
                            y.beta != 0);
}

template <class T> void sum_typed(const Launch& how, OutView y, View x) {
  Broadcast<1> dims(x.shape, {&y.shape});
  const auto& n = dims.extent;
  auto kept = [&](int d) { return dims.stride[0][size_t(d)] != 0; };
  Write<SumOf<T>> write{y.as<SumOf<T>>(), y.beta != 0};
  auto rows = [&](int64_t outer, int64_t count) {
    sum_rows<Sums<T>, 1>(how, Element<T>{x.as<T>(), count, 1}, write, outer, count);
  };
  auto columns = [&](int64_t outer, int64_t count, int64_t cols) {
    sum_columns<Sums<T>, 1>(how, Element<T>{x.as<T>(), count, cols}, write, outer, count, cols);
  };
  if (dims.ndim == 1) return rows(1, n[0]);
  if (dims.ndim == 2) return kept(0) ? rows(n[0], n[1]) : columns(1, n[0], n[1]);
  if (dims.ndim == 3 && kept(0)) return columns(n[0], n[1], n[2]);
  sum_any<T>(how, y, x, dims);
}

void sum_to(const Launch& how, OutView y, View x) {
  if (y.numel() == 0) return;
  if (y.numel() == x.numel())
    return (x.dtype == y.dtype ? kernels::copy : kernels::cast).find(kThisDevice, x.dtype)(how, y, x);
  if (x.numel() == 0 && y.beta != 0) return;
  if (x.numel() == 0) return kernels::fill.find(kThisDevice, y.dtype)(how, y, 0);
  dispatch(x.dtype, [&]<class T>() { sum_typed<T>(how, y, x); });
}

// x is (outer, extent, inner). NaN comes before all; the first one wins.
template <class T>
__global__ void max_dim_kernel(T* values, int64_t* index, const T* x, int64_t n, int64_t extent, int64_t inner,
                               bool least, bool add_value, bool add_index) {
  using N = std::conditional_t<std::is_class_v<T>, float, T>;
  int64_t i = thread_number();
  if (i >= n) return;
  x += i / inner * extent * inner + i % inner;
  int64_t best = 0;
  N top = convert<N>(T(x[0]));
  for (int64_t e = 1; e < extent && top == top; ++e) {
    N value = convert<N>(T(x[e * inner]));
    if ((least ? value < top : value > top) || value != value) {
      top = value;
      best = e;
    }
  }
  if (values) put(values + i, T(x[best * inner]), add_value);
  if (index) put(index + i, best, add_index);
}

/// The best element so far and its place, -1 before the first: NaN before all, then the largest, or the smallest, and
/// of equal ones the first. So no order of meeting matters.
template <class T> struct Best {
  using N = std::conditional_t<std::is_class_v<T>, float, std::conditional_t<sizeof(T) == 1, int32_t, T>>;
  N value;
  int64_t place;

  __device__ void meet(N other, int64_t at, bool least) {
    bool nan = value != value, other_nan = other != other, wins;
    if (at < 0 || place < 0)
      wins = at >= 0;
    else if (nan != other_nan)
      wins = other_nan;
    else if (nan || value == other)
      wins = at < place;
    else
      wins = least ? other < value : other > value;
    if (wins) value = other, place = at;
  }
  /// One that comes behind all that were met, of which there is one.
  __device__ void meet_next(N other, int64_t at, bool least) {
    bool wins = (least ? other < value : other > value) || other != other;
    if (wins && value == value) value = other, place = at;
  }
  /// The best of the warp's lanes, all of which call.
  __device__ void meet_lanes(bool least) {
    for (int distance = 1; distance < warpSize; distance *= 2) {
      N other = __shfl_xor_sync(kWholeWarp, value, distance);
      int64_t at = __shfl_xor_sync(kWholeWarp, place, distance);
      meet(other, at, least);
    }
  }
};

constexpr int kShortRow = 32, kLongRow = 2048;  ///< below: one thread; from here on: a block

template <class T, bool by_block>
__global__ void max_row_kernel(T* values, int64_t* index, const T* x, int64_t rows, int64_t extent, bool least,
                               bool add_value, bool add_index) {
  using N = typename Best<T>::N;
  constexpr int together = 4;  // on their way before the first is needed
  int64_t row = by_block ? blockIdx.x : int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  x += row * extent;
  Best<T> best{N(0), -1};
  if (threadIdx.x < extent) best = {convert<N>(T(x[threadIdx.x])), int64_t(threadIdx.x)};
  for (int64_t first = threadIdx.x + blockDim.x; first < extent; first += together * int64_t(blockDim.x)) {
    T some[together];
    SG_UNROLL
    for (int k = 0; k < together; ++k) {
      int64_t e = first + k * int64_t(blockDim.x);
      some[k] = x[e < extent ? e : first];  // met again, where it does not win
    }
    SG_UNROLL
    for (int k = 0; k < together; ++k) best.meet_next(convert<N>(some[k]), first + k * int64_t(blockDim.x), least);
  }
  best.meet_lanes(least);
  if constexpr (by_block) {
    __shared__ N tops[kBlock / 32];
    __shared__ int64_t places[kBlock / 32];
    int lane = int(threadIdx.x) % warpSize, warp = int(threadIdx.x) / warpSize;
    if (lane == 0) tops[warp] = best.value, places[warp] = best.place;
    __syncthreads();
    best = {tops[lane % (kBlock / 32)], places[lane % (kBlock / 32)]};
    best.meet_lanes(least);
  }
  if (threadIdx.x > 0) return;
  if (values) put(values + row, x[best.place], add_value);
  if (index) put(index + row, best.place, add_index);
}

template <class T> void max_rows(const Launch& how, OutView values, OutView index, View x, int64_t rows, bool least) {
  int64_t extent = x.numel() / rows;
  auto run = [&]<bool by_block>(Config config) {
    launch<max_row_kernel<T, by_block>>(how, config, values.as<T>(), index.as<int64_t>(), x.as<T>(), rows, extent,
                                        least, values.beta != 0, index.beta != 0);
  };
  if (extent >= kLongRow)
    run.template operator()<true>({blocks_for(rows, 1), kBlock});
  else
    run.template operator()<false>({blocks_for(rows, 8), dim3(32, 8)});
}

void max_dim(const Launch& how, OutView values, OutView index, View x, int dim, bool least) {
  int64_t inner = 1, extent = x.shape[dim];
  for (int d = dim + 1; d < x.shape.ndim(); ++d) inner *= x.shape[d];
  if (x.numel() == 0) return;
  int64_t n = x.numel() / extent;
  dispatch(x.dtype, [&]<class T>() {
    if (inner == 1 && extent >= kShortRow) return max_rows<T>(how, values, index, x, n, least);
    launch<max_dim_kernel<T>>(how, {blocks_for(n), kBlock}, values.as<T>(), index.as<int64_t>(), x.as<T>(), n, extent,
                              inner, least, values.beta != 0, index.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<sum_to>(kernels::sum_to, kAll),
    add_kernel<max_dim>(kernels::max_dim, kAll),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
