// rope: pairs of elements of a row's first heads are rotated, the rest of the row is copied; y may be x. Reads x and
// the table, which stays in the caches, and writes y: 2 elements moved per element, 3 operations and a few divisions of
// indices.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

struct RopeRows {
  int64_t rows, time, cols, half, positions;
  kernels::RopeArgs args;
  /// A thread's work: a pair, or an element that is copied.
  __host__ __device__ int64_t pairs() const { return args.heads * half; }
  __host__ __device__ int64_t items() const { return cols - pairs(); }
  /// The row of the table for a row of x. An index that is refused must not lead out of it.
  __device__ int64_t position(int64_t row, const int64_t* starts) const {
    int64_t at = args.first_position + row % time - (starts ? starts[row / time] : 0);
    return at < 0 ? 0 : at < positions ? at : positions - 1;
  }
};

template <class T, class S = Compute<T>>
__global__ void rope_kernel(T* y, const T* x, const S* table, const int64_t* starts, RopeRows shape, bool accumulate) {
  int64_t i = thread_number();
  if (i >= shape.rows * shape.items()) return;
  int64_t row = i / shape.items(), item = i % shape.items(), half = shape.half;
  if (starts && item == 0 && row % shape.time == 0)
    check_index("rope: the start of sample", row / shape.time, starts[row / shape.time],
                shape.args.first_position + shape.time + 1);
  x += row * shape.cols;
  y += row * shape.cols;
  if (item >= shape.pairs()) {
    int64_t c = item + shape.pairs();
    store(y + c, load(x + c), accumulate);
    return;
  }
  int64_t pair = item % half, first = item / half * 2 * half + pair;
  const S* angles = table + shape.position(row, starts) * 2 * half + pair;
  S a = load(x + first), b = load(x + first + half), cosine = load(angles), sine = load(angles + half);
  if (shape.args.inverse) sine = -sine;
  store(y + first, a * cosine - b * sine, accumulate);
  store(y + first + half, b * cosine + a * sine, accumulate);
}

void rope(const Launch& how, OutView y, View x, View table, View starts, kernels::RopeArgs args) {
  if (x.numel() == 0) return;
  RopeRows shape{x.shape[0] * x.shape[1], x.shape[1], x.shape[2], table.shape[1] / 2, table.shape[0], args};
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<rope_kernel<T>>(how, {blocks_for(shape.rows * shape.items()), kBlock}, y.as<T>(), x.as<T>(),
                           table.as<Compute<T>>(), starts.as<int64_t>(), shape, y.beta != 0);
  });
}

const Registered registered = add_kernel<rope>(kernels::rope, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
