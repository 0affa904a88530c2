// prod: a block multiplies kChunk elements of a line along the dimension, then one the chunks. Reads x once; one
// multiplication in f64 per element.
//
// prod_backward: a block per line, which it goes through forwards, keeping what comes before each element, and then
// backwards: about 20 multiplications in f64 per element, 8 bytes written and read beside x, dy and dx.

#include <shardgrad/kernels/cuda/sums.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// x seen as (outer, extent, inner) around a dimension.
struct Lines {
  int64_t count = 1, extent, inner = 1;  // count: outer · inner
  Lines(const Shape& shape, int dim) : extent(shape[dim]) {
    for (int d = 0; d < shape.ndim(); ++d) count *= d == dim ? 1 : shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  }
  /// `count` lines of `extent` elements that lie side by side.
  Lines(int64_t count, int64_t extent) : count(count), extent(extent) {}
  /// Element e of line i.
  __device__ int64_t at(int64_t i, int64_t e) const { return (i / inner * extent + e) * inner + i % inner; }
};

// Block line · chunks + chunk multiplies the elements [chunk · length, …) of a line, y's element of its own number.
template <class Y, class T>
__global__ void prod_kernel(Y* y, const T* x, Lines lines, int64_t length, int64_t chunks, bool accumulate) {
  using A = Sums<T>;
  int64_t line = blockIdx.x / chunks, begin = blockIdx.x % chunks * length;
  int64_t end = begin + length < lines.extent ? begin + length : lines.extent;
  A product = A(1);
  for (int64_t e = begin + threadIdx.x; e < end; e += blockDim.x) product *= A(load(x + lines.at(line, e)));
  product = block_reduce<Product>(product);
  if (threadIdx.x == 0) store(y + blockIdx.x, Compute<Y>(product), accumulate);
}

template <class T> void prod_typed(const Launch& how, OutView y, const T* x, const Lines& lines) {
  using A = Sums<T>;
  using Y = SumOf<T>;
  int64_t chunks = chunks_of(lines.extent, kChunk), one = 1;
  bool add = y.beta != 0;
  if (chunks == 1)
    return launch<prod_kernel<Y, T>>(how, {blocks_for(lines.count, 1), threads_for(lines.extent)}, y.as<Y>(), x, lines,
                                     kChunk, one, add);
  Scratch scratch(how, size_t(lines.count * chunks) * sizeof(A));
  A* parts = scratch.as<A>();
  launch<prod_kernel<A, T>>(how, {blocks_for(lines.count * chunks, 1), kBlock}, parts, x, lines, kChunk, chunks, false);
  launch<prod_kernel<Y, A>>(how, {blocks_for(lines.count, 1), threads_for(chunks)}, y.as<Y>(),
                            static_cast<const A*>(parts), Lines(lines.count, chunks), chunks, one, add);
}

void prod(const Launch& how, OutView y, View x, int dim) {
  if (y.numel() == 0) return;
  dispatch(x.dtype, [&]<class T>() { prod_typed<T>(how, y, x.as<T>(), Lines(x.shape, dim)); });
}

// The product of the threads' values before this one's, times what was carried, which the block's product multiplies.
// Every thread must call.
__device__ inline double product_before(double value, double* totals, double& carried) {
  int lane = int(threadIdx.x) % warpSize, warp = int(threadIdx.x) / warpSize, warps = int(blockDim.x) / warpSize;
  double upto = value;
  for (int distance = 1; distance < warpSize; distance *= 2) {
    double before = __shfl_up_sync(kWholeWarp, upto, unsigned(distance));
    if (lane >= distance) upto *= before;
  }
  double before = __shfl_up_sync(kWholeWarp, upto, 1u);
  if (lane == 0) before = 1;
  if (lane == warpSize - 1) totals[warp] = upto;
  __syncthreads();
  double product = carried;
  for (int w = 0; w < warps; ++w) {
    if (w == warp) before *= product;
    product *= totals[w];
  }
  carried = product;
  __syncthreads();
  return before;
}

template <class T>
__global__ void prod_backward_kernel(T* dx, const T* dy, const T* x, double* before, Lines lines, bool accumulate) {
  __shared__ double totals[kBlock / 32];
  int64_t line = blockIdx.x;
  double carried = 1;
  for (int64_t first = 0; first < lines.extent; first += blockDim.x) {
    int64_t e = first + threadIdx.x, at = lines.at(line, e);
    double product = product_before(e < lines.extent ? double(load(x + at)) : 1, totals, carried);
    if (e < lines.extent) before[at] = product;
  }
  carried = 1;
  for (int64_t first = 0; first < lines.extent; first += blockDim.x) {
    int64_t e = lines.extent - 1 - first - threadIdx.x, at = lines.at(line, e);
    double after = product_before(e >= 0 ? double(load(x + at)) : 1, totals, carried);
    if (e >= 0) store(dx + at, Compute<T>(double(load(dy + line)) * (before[at] * after)), accumulate);
  }
}

void prod_backward(const Launch& how, OutView dx, View dy, View x, int dim) {
  if (x.numel() == 0) return;
  Lines lines(x.shape, dim);
  Scratch scratch(how, size_t(x.numel()) * sizeof(double));
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<prod_backward_kernel<T>>(how, {blocks_for(lines.count, 1), threads_for(lines.extent)}, dx.as<T>(),
                                    dy.as<T>(), x.as<T>(), scratch.as<double>(), lines, dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<prod>(kernels::prod, kAll),
    add_kernel<prod_backward>(kernels::prod_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
