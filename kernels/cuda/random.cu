// random_uniform, random_normal, dropout: pure functions of (seed, stream, element), the same numbers as on the CPU.
// A Philox counter makes four elements: about 100 integer operations. A thread has one; writes y. Dropout's has 16
// bytes of x, which it reads, and y.

#include <shardgrad/kernels/cuda/packs.h>
#include <shardgrad/kernels/cuda/random.h>
#include <shardgrad/kernels/largest_below.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::DropoutArgs;
using kernels::RandomArgs;

/// Elements [begin, begin + n) of a sequence, four per thread.
struct Range {
  uint64_t seed, stream;
  int64_t begin, n;
  bool fine = false;
  Config config(int64_t each = 4) const {
    return {n == 0 ? 0u : blocks_for((begin + n + each - 1) / each - begin / each), kBlock};
  }
  /// Calls use(i, lane, words) for this thread's elements; element i of the range is lane `lane` of the words.
  template <class Use> __device__ void for_mine(const Use& use) const {
    int64_t group = begin / 4 + thread_number();
    if (group * 4 >= begin + n) return;
    auto words = philox(seed, stream, uint64_t(group));
    for (int lane = 0; lane < 4; ++lane) {
      int64_t i = group * 4 + lane - begin;
      if (i >= 0 && i < n) use(i, lane, words);
    }
  }
  /// One of the words of element i's counter as a number in [0, 1): of 24 bits, or of 53 for fine doubles.
  template <class T> __device__ auto unit(int64_t i, size_t lane, const std::array<uint32_t, 4>& words) const {
    if constexpr (std::is_same_v<T, double>) {
      if (!fine) return double(unit_float(word(words, lane)));
      uint32_t more = word(philox(seed, ~stream, uint64_t((begin + i) / 4)), lane);
      return word(words, lane) * 0x1p-32 + (more >> 11) * 0x1p-53;
    } else {
      return unit_float(word(words, lane));
    }
  }
  /// The step between such numbers.
  template <class T> __device__ double step() const { return fine && std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24; }
};

template <class T>
__global__ void uniform_kernel(T* y, Range range, double a, double b, double below, bool accumulate) {
  using C = Compute<T>;
  range.for_mine([&](int64_t i, int lane, const auto& words) {
    C value = C(b - a) * C(range.unit<T>(i, size_t(lane), words)) + C(a);
    store(y + i, value < C(below) ? value : C(below), accumulate);
  });
}

void random_uniform(const Launch& how, OutView y, RandomArgs args) {
  double below = args.a < args.b ? kernels::largest_below(y.dtype, args.b) : args.b;
  Range range{args.seed, args.stream, args.begin, y.numel(), args.fine};
  dispatch_floats(y.dtype, [&]<class T>() {
    launch<uniform_kernel<T>>(how, range.config(), y.as<T>(), range, args.a, args.b, below, y.beta != 0);
  });
}

// Box-Muller on words (0, 1) and (2, 3): radius from the first, angle from the second; in f64, since it is used once.
template <class T> __global__ void normal_kernel(T* y, Range range, double mean, double deviation, bool accumulate) {
  range.for_mine([&](int64_t i, int lane, const auto& words) {
    size_t pair = size_t(lane) / 2 * 2;
    double radius = std::sqrt(-2 * std::log(double(range.unit<T>(i, pair, words)) + range.step<T>()));
    double angle = 6.283185307179586 * double(range.unit<T>(i, pair + 1, words));
    double value = radius * (lane % 2 == 0 ? std::cos(angle) : std::sin(angle));
    store(y + i, Compute<T>(mean + deviation * value), accumulate);
  });
}

void random_normal(const Launch& how, OutView y, RandomArgs args) {
  Range range{args.seed, args.stream, args.begin, y.numel(), args.fine};
  dispatch_floats(y.dtype, [&]<class T>() {
    launch<normal_kernel<T>>(how, range.config(), y.as<T>(), range, args.a, args.b, y.beta != 0);
  });
}

template <class T> inline constexpr int kDropped = std::max(4, kPackOf<T>);  ///< elements of a thread: whole counters

// Threads begin at multiples of kDropped elements of the sequence; where they move together, the range does, too.
template <class T>
__global__ void dropout_kernel(T* y, const T* x, Range range, float p, double scale, bool accumulate, bool packed,
                               const int64_t* drawn) {
  constexpr int N = kDropped<T>;
  using C = Compute<T>;
  int64_t first = (range.begin / N + thread_number()) * N, at = first - range.begin, left = range.n - at;
  if (left <= 0) return;
  int64_t missing = at < 0 ? -at : 0;  // before the range
  Pack<T, N> in = {}, out = {};
  auto each = [&](const auto& visit) {
    SG_UNROLL
    for (int e = 0; e < N; ++e)
      if (e >= missing && e < left) visit(e);
  };
  if (drawn) range.seed = uint64_t(drawn[0]), range.stream = uint64_t(drawn[1]);
  bool together = packed && left >= N;
  if (together) {
    in = load_pack<N>(x + at);
    if (accumulate) out = load_pack<N>(static_cast<const T*>(y + at));
  } else {
    each([&](int e) { in.at[e] = x[at + e], out.at[e] = accumulate ? y[at + e] : out.at[e]; });
  }
  SG_UNROLL
  for (int e = 0; e < N; e += 4) {
    auto words = philox(range.seed, range.stream, uint64_t((first + e) / 4));
    SG_UNROLL
    for (int lane = 0; lane < 4; ++lane) {
      C value = convert<C>(in.at[e + lane]) * C(scale);
      store(&out.at[e + lane], unit_float(words[size_t(lane)]) >= p ? value : C(0), accumulate);
    }
  }
  if (together)
    store_pack(y + at, out);
  else
    each([&](int e) { y[at + e] = out.at[e]; });
}

void dropout(const Launch& how, OutView y, View x, View drawn, DropoutArgs args) {
  // Uniform numbers are multiples of 2^-24: the same test, exact in f32.
  float p = float(std::ceil(args.p * 0x1p24) * 0x1p-24);
  double scale = args.p < 1 ? 1 / (1 - args.p) : 0;
  Range range{args.seed, args.stream, args.first_element, y.numel()};
  dispatch_floats(x.dtype, [&]<class T>() {
    constexpr int N = kDropped<T>;
    bool packed = range.begin % N == 0 && aligned<T, N>(x.as<T>()) && aligned<T, N>(y.as<T>());
    launch<dropout_kernel<T>>(how, range.config(N), y.as<T>(), x.as<T>(), range, p, scale, y.beta != 0, packed,
                              drawn.as<int64_t>());
  });
}

const Registered registered[] = {
    add_kernel<random_uniform>(kernels::random_uniform, kFloats),
    add_kernel<random_normal>(kernels::random_normal, kFloats),
    add_kernel<dropout>(kernels::dropout, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
