// rope: pairs of elements of a row's first heads are rotated, the rest of the row is copied; y may be x. Reads x and
// the table, which stays in the caches, and writes y: 2 elements moved per element, 3 operations and, for 16 bytes, a
// few divisions of indices.

#include <shardgrad/kernels/cuda/map.h>  // so nvcc joins no products and sums (cuda.cmake), in neither form

namespace shardgrad::SG_DEVICE {
namespace {

struct RopeRows {
  int64_t rows, time, cols, half, positions;
  kernels::RopeArgs args;
  /// What is done: a pair, or an element that is copied.
  __host__ __device__ int64_t pairs() const { return args.heads * half; }
  __host__ __device__ int64_t items() const { return cols - pairs(); }
  /// The row of the table for a row of x. An index that is refused must not lead out of it.
  __device__ int64_t position(int64_t row, const int64_t* starts) const {
    int64_t at = args.first_position + row % time - (starts ? starts[row / time] : 0);
    return at < 0 ? 0 : at < positions ? at : positions - 1;
  }
};

// A thread has N neighbours of the work on a row.
template <class T, int N, class S = Compute<T>>
__global__ void rope_kernel(T* y, const T* x, const S* table, const int64_t* starts, RopeRows shape, bool accumulate) {
  int64_t i = thread_number(), threads = shape.items() / N;
  if (i >= shape.rows * threads) return;
  int64_t row = i / threads, item = i % threads * N, half = shape.half;
  if (starts && item == 0 && row % shape.time == 0)
    check_index("rope: the start of sample", row / shape.time, starts[row / shape.time],
                shape.args.first_position + shape.time + 1);
  x += row * shape.cols;
  y += row * shape.cols;
  if (item >= shape.pairs()) {
    int64_t c = item + shape.pairs();
    auto copied = load_pack<N>(x + c);
    S values[N];
    SG_UNROLL
    for (int e = 0; e < N; ++e) values[e] = convert<S>(copied.at[e]);
    store_values(y + c, values, N, true, accumulate);
    return;
  }
  int64_t pair = item % half, first = item / half * 2 * half + pair;
  const S* angles = table + shape.position(row, starts) * 2 * half + pair;
  auto left = load_pack<N>(x + first), right = load_pack<N>(x + first + half);
  auto cosines = load_pack<N>(angles), sines = load_pack<N>(angles + half);
  S turned_left[N], turned_right[N];
  SG_UNROLL
  for (int e = 0; e < N; ++e) {
    S a = convert<S>(left.at[e]), b = convert<S>(right.at[e]), cosine = cosines.at[e], sine = sines.at[e];
    if (shape.args.inverse) sine = -sine;
    turned_left[e] = a * cosine - b * sine;
    turned_right[e] = b * cosine + a * sine;
  }
  store_values(y + first, turned_left, N, true, accumulate);
  store_values(y + first + half, turned_right, N, true, accumulate);
}

void rope(const Launch& how, OutView y, View x, View table, View starts, kernels::RopeArgs args) {
  if (x.numel() == 0) return;
  RopeRows shape{x.shape[0] * x.shape[1], x.shape[1], x.shape[2], table.shape[1] / 2, table.shape[0], args};
  dispatch_floats(x.dtype, [&]<class T>() {
    constexpr int packs = kPackOf<T>;
    bool packed = shape.half % packs == 0 && shape.cols % packs == 0 && aligned<T, packs>(x.as<T>()) &&
                  aligned<T, packs>(y.as<T>()) && aligned<T, packs>(table.as<T>());
    auto with = [&]<int N>() {
      launch<rope_kernel<T, N>>(how, {blocks_for(shape.rows * (shape.items() / N)), kBlock}, y.as<T>(), x.as<T>(),
                                table.as<Compute<T>>(), starts.as<int64_t>(), shape, y.beta != 0);
    };
    packed ? with.template operator()<packs>() : with.template operator()<1>();
  });
}

const Registered registered = add_kernel<rope>(kernels::rope, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
