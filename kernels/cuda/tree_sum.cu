// The sum over ranks: a pairwise tree over the parts, neighbours 2i and 2i+1, an odd last one carried up. A thread has
// four elements, or two of 8 bytes; reads each part once and writes y: for W parts of f32, 4·(W + 1) bytes and W - 1
// additions per element.

#include <shardgrad/kernels/cuda/packs.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::TreeSumArgs;

constexpr int kMaxParts = 256;
constexpr int kTogether = 8;  ///< parts that are on their way at a time, and a tree of their own
constexpr int kLevels = 6;    ///< of the tree over such trees

struct Parts {
  const void* at[kMaxParts];
  int count;
};

/// Parts of f16, bf16 and f32 accumulate in f32, unless one side is f64; integers exactly.
template <class Y, class X>
using Accumulator = std::conditional_t<std::is_same_v<Y, double> || std::is_same_v<X, double>, double, Compute<X>>;

/// Elements of a thread, whose sums and parts its registers hold.
template <class A, class X> inline constexpr int kEach = std::is_same_v<A, double> || sizeof(X) == 8 ? 2 : 4;

/// The sums of a thread's elements.
template <class A, int N> struct TreeSums {
  A at[N];
  __device__ void add(const TreeSums& right) {
    SG_UNROLL
    for (int e = 0; e < N; ++e) at[e] += right.at[e];
  }
};

/// The trees so far, as a binary counter counts: level[k] has that of 2^k others where bit k of `full` is set.
template <class Sums> struct TreeCounter {
  Sums level[kLevels];
  unsigned full = 0;

  __device__ void push(Sums sums) {
    bool carries = true;
    SG_UNROLL
    for (int k = 0; k < kLevels; ++k) {
      if (!carries) continue;
      carries = full >> k & 1;
      if (carries) {
        level[k].add(sums);
        sums = level[k];
      } else {
        level[k] = sums;
      }
    }
    ++full;
  }
  /// All of it, and a last tree that may be smaller.
  __device__ Sums with(Sums last, bool there) const {
    SG_UNROLL
    for (int k = 0; k < kLevels; ++k) {
      if (!(full >> k & 1)) continue;
      Sums sums = level[k];
      if (there) sums.add(last);
      last = sums;
      there = true;
    }
    return last;
  }
};

/// The tree over parts [first, first + count), at most kTogether, of elements i … i + left - 1.
template <class A, class X, int N = kEach<A, X>>
__device__ TreeSums<A, N> tree_of(const Parts& parts, int first, int count, int64_t i, int64_t left, bool packed) {
  Packed<X, N> loaded[kTogether];
  SG_UNROLL
  for (int k = 0; k < kTogether; ++k)
    if (k < count) loaded[k] = load_some<N>(static_cast<const X*>(parts.at[first + k]) + i, left, packed);
  TreeSums<A, N> sums[kTogether];
  SG_UNROLL
  for (int k = 0; k < kTogether; ++k) {
    SG_UNROLL
    for (int e = 0; e < N; ++e) sums[k].at[e] = k < count ? convert<A>(convert<Compute<X>>(loaded[k][e])) : A(0);
  }
  SG_UNROLL
  for (int apart = 1; apart < kTogether; apart *= 2) {
    SG_UNROLL
    for (int k = 0; k + apart < kTogether; k += 2 * apart)
      if (k + apart < count) sums[k].add(sums[k + apart]);
  }
  return sums[0];
}

template <class Y, class X>
__global__ void tree_sum_kernel(Y* y, Parts parts, int64_t n, bool accumulate, bool packed) {
  using A = Accumulator<Y, X>;
  constexpr int N = kEach<A, X>;
  int64_t i = thread_number() * N, left = n - i;
  if (left <= 0) return;
  TreeCounter<TreeSums<A, N>> trees;
  int first = 0;
  for (; first + kTogether <= parts.count; first += kTogether)
    trees.push(tree_of<A, X>(parts, first, kTogether, i, left, packed));
  int count = parts.count - first;
  TreeSums<A, N> sums = count > 0 ? tree_of<A, X>(parts, first, count, i, left, packed) : TreeSums<A, N>{};
  sums = trees.with(sums, count > 0);
  Pack<Y, N> result = {};
  if (accumulate) result = load_some<N>(static_cast<const Y*>(y + i), left, packed).elements();
  SG_UNROLL
  for (int e = 0; e < N; ++e) store(&result.at[e], convert<Compute<Y>>(sums.at[e]), accumulate);
  store_some<N>(y + i, left, packed, result);
}

void tree_sum(const Launch& how, OutView y, TreeSumArgs args) {
  SG_CHECK(args.count >= 1 && args.count <= kMaxParts, "tree_sum of ", args.count, " parts; at most ", kMaxParts);
  Parts parts{};
  parts.count = args.count;
  for (int k = 0; k < args.count; ++k) {
    parts.at[k] = args.parts[k];
    note_input(args.parts[k], size_t(y.numel()) * size_of(args.dtype));
  }
  dispatch(y.dtype, [&]<class Y>() {
    dispatch(args.dtype, [&]<class X>() {
      if constexpr (std::is_same_v<X, Y> || (!std::is_integral_v<X> && !std::is_integral_v<Y>)) {
        constexpr int N = kEach<Accumulator<Y, X>, X>;
        bool packed = aligned<Y, N>(y.as<Y>());
        for (int k = 0; k < args.count; ++k) packed = packed && aligned<X, N>(static_cast<const X*>(parts.at[k]));
        Config config{blocks_for((y.numel() + N - 1) / N), kBlock};
        launch<tree_sum_kernel<Y, X>>(how, config, y.as<Y>(), parts, y.numel(), y.beta != 0, packed);
      } else
        fail_as(ErrorKind::internal, "tree_sum of ", args.dtype, " into ", y.dtype);
    });
  });
}

const Registered registered = add_kernel<tree_sum>(kernels::tree_sum, kAll);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
