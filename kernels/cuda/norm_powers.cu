// What the p-norm of gradients is summed from: |x|^p over blocks of 32 or over nodes of 1024 blocks, by the tree of
// neighbours in f64. Reads x once and writes 8 bytes per block or node; about 4 operations in f64 per element.
//
// A block of 32 is a warp's butterfly. In a node, a warp takes 8 pieces of 128 elements at a time, 4 neighbours per
// lane:
//
//     lane l has, of each piece, the sum of elements 4l … 4l + 3;
//     it exchanges half of its pieces with lane l ^ 1, and half of those left with l ^ 2 and l ^ 4: of one piece it has
//     then the sum over 8 lanes, and two steps of a butterfly (8, 16) make that of all; the pieces' sums are those of
//     lanes that differ in bits 2, 1 and 0, in this order: three more steps.
//
// That is 12 exchanges for 32 elements of a lane, where a butterfly for each 32 elements would be 160.

#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

struct Square {
  __device__ double operator()(double x) const { return x * x; }
};
struct Magnitude {
  __device__ double operator()(double x) const { return fabs(x); }
};
struct Power {
  double p;
  __device__ double operator()(double x) const { return p == 3 ? fabs(x) * x * x : pow(fabs(x), p); }
};

template <class T> __device__ double wide(T value) { return double(convert<Compute<T>>(value)); }

template <class Op, class Of, class T> __global__ void block_powers_kernel(double* y, const T* x, int64_t n, Of of) {
  int64_t i = thread_number();
  double joined = warp_reduce<Op>(i < n ? of(wide(x[i])) : 0);
  if (i < n && i % kernels::kNormBlock == 0) y[i / kernels::kNormBlock] = joined;
}

constexpr int kNeighbours = 4, kPieces = 8, kPiece = 32 * kNeighbours;

/// Of `count` values of this lane and of lane ^ distance, which lie in the same places, the sums of one half: the upper
/// one where `upper` is set.
template <class Op, int count> __device__ void halve(double (&values)[kPieces], int distance, bool upper) {
  SG_UNROLL
  for (int i = 0; i < count / 2; ++i) {
    double low = values[i], high = values[i + count / 2];
    double other = __shfl_xor_sync(kWholeWarp, upper ? low : high, distance);
    values[i] = Op()(upper ? high : low, other);
  }
}

/// The node of kPieces pieces from `begin` on, in all lanes. What lies after the end counts as 0, which changes no sum
/// of powers and no maximum.
template <class Op, class Of, class T>
__device__ double join_pieces(const T* x, int64_t begin, int64_t n, bool packed, const Of& of) {
  int lane = int(threadIdx.x) % warpSize;
  Packed<T, kNeighbours> packs[kPieces];
  SG_UNROLL
  for (int piece = 0; piece < kPieces; ++piece) {
    int64_t at = begin + piece * kPiece + lane * kNeighbours;
    packs[piece] = load_some<kNeighbours>(x + at, n - at, packed);
  }
  double sums[kPieces];
  SG_UNROLL
  for (int piece = 0; piece < kPieces; ++piece) {
    const auto four = packs[piece].elements();
    double left = Op()(of(wide(four.at[0])), of(wide(four.at[1]))),
           right = Op()(of(wide(four.at[2])), of(wide(four.at[3])));
    sums[piece] = Op()(left, right);
  }
  halve<Op, 8>(sums, 1, lane & 1);
  halve<Op, 4>(sums, 2, lane & 2);
  halve<Op, 2>(sums, 4, lane & 4);
  double sum = sums[0];
  for (int distance : {8, 16, 4, 2, 1}) sum = Op()(sum, __shfl_xor_sync(kWholeWarp, sum, distance));
  return sum;
}

// A thread block per node: its warps join 1024 elements at a time, then the first warp those 32 values.
template <class Op, class Of, class T>
__global__ void node_powers_kernel(double* y, const T* x, int64_t n, bool packed, Of of) {
  __shared__ double joined[32];
  int lane = int(threadIdx.x) % warpSize, warps = int(blockDim.x) / warpSize;
  int64_t begin = int64_t(blockIdx.x) * kernels::kNormNode;
  for (int part = int(threadIdx.x) / warpSize; part < 32; part += warps) {
    double value = join_pieces<Op>(x, begin + part * kPieces * kPiece, n, packed, of);
    if (lane == 0) joined[part] = value;
  }
  __syncthreads();
  if (int(threadIdx.x) >= warpSize) return;
  double value = warp_reduce<Op>(joined[lane]);
  if (lane == 0) y[blockIdx.x] = value;
}

template <class Op, class Of, class T>
void launch_powers(const Launch& how, OutView y, const T* x, int64_t n, Of of, int64_t width) {
  if (width == kernels::kNormBlock)
    launch<block_powers_kernel<Op, Of, T>>(how, {blocks_for(n), kBlock}, y.as<double>(), x, n, of);
  else
    launch<node_powers_kernel<Op, Of, T>>(how, {blocks_for(n, width), kBlock}, y.as<double>(), x, n,
                                          aligned<T, kNeighbours>(x), of);
}

void norm_powers(const Launch& how, OutView y, View x, double p, int64_t width) {
  static_assert(kernels::kNormBlock == 32 && kernels::kNormNode == 32 * kPieces * kPiece,
                "a block is a warp's, a node is 32 times what a warp joins");
  SG_ASSERT(width == kernels::kNormBlock || width == kernels::kNormNode, "norm_powers: width ", width);
  dispatch_floats(x.dtype, [&]<class T>() {
    const T* from = x.as<T>();
    if (std::isinf(p))
      launch_powers<Max>(how, y, from, x.numel(), Magnitude(), width);
    else if (p == 1)
      launch_powers<Sum>(how, y, from, x.numel(), Magnitude(), width);
    else if (p == 2)
      launch_powers<Sum>(how, y, from, x.numel(), Square(), width);
    else
      launch_powers<Sum>(how, y, from, x.numel(), Power{p}, width);
  });
}

const Registered registered = add_kernel<norm_powers>(kernels::norm_powers, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
