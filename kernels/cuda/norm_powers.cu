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
#include <shardgrad/kernels/cuda/ranges.h>
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

template <class Of> __device__ Of of_power(double p) {
  if constexpr (std::is_empty_v<Of>)
    return {};
  else
    return {p};
}

template <class T> __device__ double wide(T value) { return double(convert<Compute<T>>(value)); }

/// A range as its threads see it.
template <class T> struct Range {
  double* y;
  const T* x;
  int64_t n;
  unsigned begin;  ///< the first of its thread blocks
  bool packed;
};
template <class T> using RangesOf = Ranges<Range<T>, kernels::kNormsTogether>;

template <class Op, class Of, class T> __global__ void block_powers_kernel(RangesOf<T> ranges, double p) {
  Of of = of_power<Of>(p);
  const Range<T>& range = ranges.at[ranges.mine()];
  int64_t i = thread_number_in(range.begin);
  double joined = warp_reduce<Op>(i < range.n ? of(wide(range.x[i])) : 0);
  if (i < range.n && i % kernels::kNormBlock == 0) range.y[i / kernels::kNormBlock] = joined;
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
template <class Op, class Of, class T> __global__ void node_powers_kernel(RangesOf<T> ranges, double p) {
  Of of = of_power<Of>(p);
  __shared__ double joined[32];
  const Range<T>& range = ranges.at[ranges.mine()];
  int lane = int(threadIdx.x) % warpSize, warps = int(blockDim.x) / warpSize;
  int64_t node = blockIdx.x - range.begin, begin = node * kernels::kNormNode;
  for (int part = int(threadIdx.x) / warpSize; part < 32; part += warps) {
    double value = join_pieces<Op>(range.x, begin + part * kPieces * kPiece, range.n, range.packed, of);
    if (lane == 0) joined[part] = value;
  }
  __syncthreads();
  if (int(threadIdx.x) >= warpSize) return;
  double value = warp_reduce<Op>(joined[lane]);
  if (lane == 0) range.y[node] = value;
}

// The ranges of one width: a thread for each element of a block, a thread block for a node.
template <class T> RangesOf<T> ranges_of(const kernels::NormRanges& given, int64_t width) {
  RangesOf<T> ranges;
  for (const kernels::NormRange& each : *given) {
    if (each.width != width) continue;
    const T* x = each.x.as<T>();
    int64_t n = each.x.numel();
    ranges.add({each.y.as<double>(), x, n, ranges.blocks, aligned<T, kNeighbours>(x)},
               blocks_for(n, width == kernels::kNormBlock ? kBlock : width));
  }
  return ranges;
}

template <class Op, class Of, class T>
void launch_powers(const Launch& how, const kernels::NormRanges& ranges, double p) {
  RangesOf<T> blocks = ranges_of<T>(ranges, kernels::kNormBlock), nodes = ranges_of<T>(ranges, kernels::kNormNode);
  launch<block_powers_kernel<Op, Of, T>>(how, {blocks.blocks, kBlock}, blocks, p);
  launch<node_powers_kernel<Op, Of, T>>(how, {nodes.blocks, kBlock}, nodes, p);
}

void norm_powers(const Launch& how, kernels::NormRanges ranges, double p) {
  static_assert(kernels::kNormBlock == 32 && kernels::kNormNode == 32 * kPieces * kPiece,
                "a block is a warp's, a node is 32 times what a warp joins");
  for (const kernels::NormRange& range : *ranges)
    SG_ASSERT((range.width == kernels::kNormBlock || range.width == kernels::kNormNode) &&
                  range.x.dtype == ranges->front().x.dtype,
              "norm_powers: ", range.x.dtype, " beside ", ranges->front().x.dtype, ", width ", range.width);
  dispatch_floats(ranges->front().x.dtype, [&]<class T>() {
    if (std::isinf(p))
      launch_powers<Max, Magnitude, T>(how, ranges, p);
    else if (p == 1)
      launch_powers<Sum, Magnitude, T>(how, ranges, p);
    else if (p == 2)
      launch_powers<Sum, Square, T>(how, ranges, p);
    else
      launch_powers<Sum, Power, T>(how, ranges, p);
  });
}

const Registered registered = add_kernel<norm_powers>(kernels::norm_powers, kFloats);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
