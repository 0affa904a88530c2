// sgd and adam over flat ranges, in one pass, all ranges of a call by one launch. A thread has 16 bytes of a range, and
// computes them alike whether they move together or one by one: bits do not depend on where a range is cut, nor on what
// else is updated with it.
//
// sgd   reads p, g (and the momentum), writes p (and the momentum): 12 (20) bytes per element in f32, 4 (7) operations.
// adam  reads p, g and two moments, writes all but g: 28 bytes per element in f32, about 15 operations.
//
// A copy in another dtype costs its own bytes more: 2 per element in bf16. Parameters of bf16 are computed in f32 and
// rounded by chance: adam moves 22 bytes per element then, and Philox makes four words in about 100 operations.

#include <shardgrad/kernels/cuda/packs.h>
#include <shardgrad/kernels/cuda/random.h>
#include <shardgrad/kernels/cuda/ranges.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::AdamArgs;
using kernels::kUpdatesTogether;
using kernels::SgdArgs;
using kernels::UpdateRange;
using kernels::UpdateRanges;

constexpr DType kUpdated[] = {DType::f32, DType::f64, DType::bf16};

/// The random words of four neighbours from element `first` on.
__device__ inline std::array<uint32_t, 4> words_from(uint64_t seed, int64_t first) {
  auto group = uint64_t(first) / 4;
  auto skip = size_t(first % 4);
  std::array<uint32_t, 4> low = philox(seed, 0, group);
  if (skip == 0) return low;
  std::array<uint32_t, 4> high = philox(seed, 0, group + 1), words = {};
  SG_UNROLL
  for (size_t e = 0; e < 4; ++e) words[e] = skip + e < 4 ? word(low, skip + e) : word(high, skip + e - 4);
  return words;
}

/// How new parameters of type P are rounded: those of bf16 by chance (kernels/ranges.h), and others are what they are.
template <class P> struct RoundingOf {
  RoundingOf() = default;
  explicit RoundingOf(const kernels::Rounding&) {}
  __device__ void take(const double*) {}
  template <int N> __device__ Pack<P, N> rounded(const Pack<P, N>& values, int64_t) const { return values; }
};
template <> struct RoundingOf<bf16> {
  uint64_t seed;
  int64_t begin;

  RoundingOf() = default;
  explicit RoundingOf(const kernels::Rounding& rounding) : seed(rounding.seed), begin(rounding.begin) {}
  /// As Rounding::write has them.
  __device__ void take(const double* numbers) { seed = uint64_t(numbers[0]) << 32 | uint64_t(numbers[1]); }
  /// Elements from `at` of the range on.
  template <int N> __device__ Pack<bf16, N> rounded(const Pack<float, N>& values, int64_t at) const {
    static_assert(N == 4, "as many as Philox gives words");
    std::array<uint32_t, 4> words = words_from(seed, begin + at);
    Pack<bf16, N> result;
    SG_UNROLL
    for (int e = 0; e < N; ++e) {
      auto bits = std::bit_cast<uint32_t>(values.at[e]);
      bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
      result.at[e].bits = nan ? uint16_t((bits >> 16) | 0x40u) : uint16_t((bits + (words[size_t(e)] >> 16)) >> 16);
    }
    return result;
  }
};

/// A range as its threads see it: parameters of type P, which are computed in T.
template <class P, class C, class Factors> struct Range {
  using T = Compute<P>;
  P* p;
  T* state[2];
  C* copy;
  const P* g;
  int64_t n;
  double grad_scale;
  Factors factors;
  unsigned begin;  ///< the first of its thread blocks
  bool packed;
  RoundingOf<P> rounding;
};

template <class P, class C, class Factors> using RangesOf = Ranges<Range<P, C, Factors>, kUpdatesTogether>;

/// What is the same for every element, rounded once on the host: many GPUs are slow in f64.
template <class T> struct SgdFactors {
  T lr, momentum, fresh, weight_decay;
  bool nesterov, first_step;
  SgdFactors() = default;
  explicit SgdFactors(const SgdArgs& s)
      : lr(T(s.lr)),
        momentum(T(s.momentum)),
        fresh(T(1 - s.dampening)),
        weight_decay(T(s.weight_decay)),
        nesterov(s.nesterov),
        first_step(s.first_step) {}
};

/// What gradients are multiplied by: what the host knows, and what a kernel before this one has found.
template <class T> __device__ T scale_of(double known, const double* found) {
  return T(found ? known * *found : known);
}

/// What a thread has of a range: elements [at, at + N), of which `left` are there.
template <int N> struct Part {
  int64_t at, left;
  bool packed;
  template <class T> __device__ Pack<T, N> load(const T* from) const {
    return load_some<N>(from + at, left, packed).elements();
  }
  template <class P> __device__ Pack<Compute<P>, N> load_wide(const P* from) const {
    Pack<P, N> loaded = load(from);
    Pack<Compute<P>, N> wide;
    SG_UNROLL
    for (int e = 0; e < N; ++e) wide.at[e] = convert<Compute<P>>(loaded.at[e]);
    return wide;
  }
  template <class T> __device__ void store(T* to, const Pack<T, N>& values) const {
    store_some<N>(to + at, left, packed, values);
  }
  template <class T, class C> __device__ void store_copy(C* to, const Pack<T, N>& values) const {
    Pack<C, N> rounded;
    SG_UNROLL
    for (int e = 0; e < N; ++e) rounded.at[e] = convert<C>(values.at[e]);
    store(to, rounded);
  }
};

/// The calling thread's part of a range.
template <int N> __device__ Part<N> part_of(int64_t n, unsigned begin, bool packed) {
  int64_t at = thread_number_in(begin) * N;
  return {at, n - at, packed};
}

template <class P, class C>
__global__ void sgd_kernel(RangesOf<P, C, SgdFactors<Compute<P>>> ranges, const double* scale, const double* numbers) {
  using T = Compute<P>;
  constexpr int N = kPackOf<T>;
  int mine = ranges.mine();
  const auto& range = ranges.at[mine];
  const auto& s = range.factors;
  RoundingOf<P> rounding = range.rounding;
  T lr = s.lr;
  bool first_step = s.first_step;
  if (numbers) {  // as SgdArgs::write has them
    const double* now = numbers + kernels::SgdArgs::kNumbers * mine;
    lr = T(now[0]), first_step = now[1] != 0, rounding.take(now + 2);
  }
  T* momentum = range.state[0];
  Part<N> part = part_of<N>(range.n, range.begin, range.packed);
  if (part.left <= 0) return;
  Pack<T, N> param = part.load_wide(range.p), grad = part.load_wide(range.g), buffer = {};
  if (momentum && !first_step) buffer = part.load(momentum);
  T grad_scale = scale_of<T>(range.grad_scale, scale);
  SG_UNROLL
  for (int e = 0; e < N; ++e) {
    T step = grad.at[e] * grad_scale + s.weight_decay * param.at[e];
    if (momentum) {
      buffer.at[e] = first_step ? step : s.momentum * buffer.at[e] + s.fresh * step;
      step = s.nesterov ? step + s.momentum * buffer.at[e] : buffer.at[e];
    }
    param.at[e] -= lr * step;
  }
  if (momentum) part.store(momentum, buffer);
  part.store(range.p, rounding.rounded(param, part.at));
  if (range.copy) part.store_copy(range.copy, param);
}

// Visits the types of the parameters and of their copies, which may be undefined.
template <class Args, class Visitor> void dispatch_types(const UpdateRanges<Args>& ranges, Visitor&& visit) {
  DType dtype = ranges->front().p.dtype, wide = dtype == DType::bf16 ? DType::f32 : dtype, narrow = DType::bf16;
  bool has_copies = false;
  for (const UpdateRange<Args>& range : *ranges)
    if (range.copy.defined()) narrow = range.copy.dtype, has_copies = true;
  auto check = [&](const auto& operand, DType fits) {
    SG_ASSERT(!operand.defined() || operand.dtype == fits, "ranges of ", dtype, ", whose copies have ", narrow,
              ", and of ", operand.dtype);
  };
  for (const UpdateRange<Args>& range : *ranges) {
    check(range.p, dtype), check(range.g, dtype), check(range.copy, narrow);
    check(range.state[0], wide), check(range.state[1], wide);
  }
  SG_ASSERT(!has_copies || size_of(narrow) < size_of(dtype), "a copy of ", dtype, " in ", narrow);
  dispatch_floats(dtype, [&]<class P>() {
    if constexpr (std::is_same_v<P, bf16>) visit.template operator()<P, P>();
    if constexpr (std::is_floating_point_v<P>)
      dispatch_floats(narrow, [&]<class C>() {
        if constexpr (sizeof(C) < sizeof(P)) visit.template operator()<P, C>();
      });
  });
}

/// Whether all of these begin where elements move together; true for what is not there.
template <class T, class... Elements> bool all_packed(const Elements*... operands) {
  return (aligned<Elements, kPackOf<T>>(operands) && ...);
}

// Launches the kernel for all ranges.
template <auto Kernel, class P, class C, class Factors, class Args>
void launch_ranges(const Launch& how, const UpdateRanges<Args>& given, View scale) {
  using T = Compute<P>;
  RangesOf<P, C, Factors> ranges;
  const auto* numbers = given->front().numbers.template as<double>();
  for (const UpdateRange<Args>& each : *given) {
    const double* its = numbers ? numbers + ranges.count * Args::kNumbers : nullptr;
    SG_ASSERT(each.numbers.template as<double>() == its, "the numbers of ranges must lie end to end");
    const OutView &p = each.p, &first = each.state[0], &second = each.state[1], &copy = each.copy;
    const View& g = each.g;
    Range<P, C, Factors> range{
        .p = p.as<P>(),
        .state = {first.as<T>(), second.as<T>()},
        .copy = copy.as<C>(),
        .g = g.as<P>(),
        .n = p.numel(),
        .grad_scale = each.args.grad_scale,
        .factors = Factors(each.args),
        .begin = ranges.blocks,
        .packed = all_packed<T>(copy.as<C>(), p.as<P>(), first.as<T>(), second.as<T>(), g.as<P>()),
        .rounding = RoundingOf<P>(each.args.rounding)};
    ranges.add(range, blocks_for((p.numel() + kPackOf<T> - 1) / kPackOf<T>));
  }
  launch<Kernel>(how, {ranges.blocks, kBlock}, ranges, scale.as<double>(), numbers);
}

void sgd(const Launch& how, UpdateRanges<SgdArgs> ranges, View scale) {
  dispatch_types(ranges, [&]<class P, class C>() {
    launch_ranges<sgd_kernel<P, C>, P, C, SgdFactors<Compute<P>>>(how, ranges, scale);
  });
}

template <class T> struct AdamFactors {
  T fresh1, beta2, fresh2, eps, weight_decay, keep, step_size, root_correction;
  bool decoupled;
  AdamFactors() = default;
  explicit AdamFactors(const AdamArgs& s)
      : fresh1(T(1 - s.beta1)),
        beta2(T(s.beta2)),
        fresh2(T(1 - s.beta2)),
        eps(T(s.eps)),
        weight_decay(T(s.weight_decay)),
        keep(T(s.keep())),
        step_size(T(s.step_size())),
        root_correction(T(s.root_correction())),
        decoupled(s.decoupled) {}
};

template <class P, class C>
__global__ void adam_kernel(RangesOf<P, C, AdamFactors<Compute<P>>> ranges, const double* scale,
                            const double* numbers) {
  using T = Compute<P>;
  constexpr int N = kPackOf<T>;
  int mine = ranges.mine();
  const auto& range = ranges.at[mine];
  const auto& s = range.factors;
  RoundingOf<P> rounding = range.rounding;
  T keep = s.keep, step_size = s.step_size, root_correction = s.root_correction;
  if (numbers) {  // as AdamArgs::write has them
    const double* now = numbers + kernels::AdamArgs::kNumbers * mine;
    keep = T(now[0]), step_size = T(now[1]), root_correction = T(now[2]), rounding.take(now + 6);
  }
  Part<N> part = part_of<N>(range.n, range.begin, range.packed);
  if (part.left <= 0) return;
  Pack<T, N> params = part.load_wide(range.p), grads = part.load_wide(range.g), means = part.load(range.state[0]),
             squares = part.load(range.state[1]);
  T grad_scale = scale_of<T>(range.grad_scale, scale);
  SG_UNROLL
  for (int e = 0; e < N; ++e) {
    T &param = params.at[e], &mean = means.at[e], &square = squares.at[e], grad = grads.at[e] * grad_scale;
    if (s.decoupled)
      param *= keep;
    else
      grad += s.weight_decay * param;
    mean = mean + s.fresh1 * (grad - mean);
    square = s.beta2 * square + s.fresh2 * grad * grad;
    T denominator = std::sqrt(square) * root_correction + s.eps;
    param -= step_size * mean / denominator;
  }
  part.store(range.state[0], means);
  part.store(range.state[1], squares);
  part.store(range.p, rounding.rounded(params, part.at));
  if (range.copy) part.store_copy(range.copy, params);
}

void adam(const Launch& how, UpdateRanges<AdamArgs> ranges, View scale) {
  dispatch_types(ranges, [&]<class P, class C>() {
    launch_ranges<adam_kernel<P, C>, P, C, AdamFactors<Compute<P>>>(how, ranges, scale);
  });
}

const Registered registered[] = {
    add_kernel<sgd>(kernels::sgd, kUpdated),
    add_kernel<adam>(kernels::adam, kUpdated),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
