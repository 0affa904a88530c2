#pragma once
// Compares a kernel with its reference (certify/reference) as every kernel must hold: both betas, poisoned
// destinations, inputs unchanged, the same bits for every number of threads.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include <shardgrad/certify/reference/element.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/poison.h>
#include <shardgrad/kernels/ops.h>
#include <tests/kernels/test_device.h>

namespace shardgrad::test {

inline constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
inline constexpr DType kIntegers[] = {DType::i32, DType::i64, DType::u8};
inline constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

/// Of what is kept of many numbers, such as their mean.
inline DType statistic(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// A small tensor of our own, aligned as badly as elements allow when `shift` is given.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Shape shape, DType dtype) : shape_(shape), dtype_(dtype), defined_(true) {
    memory_ = ReachableBytes(size_t(shape.numel() + 8) * size_of(dtype));
  }
  /// Uniform in [low, high]; integers too.
  static Buffer random(Shape shape, DType dtype, double low = -2, double high = 2, uint32_t seed = 1) {
    Buffer buffer(shape, dtype);
    std::mt19937 generator(seed + uint32_t(shape.numel()) * 977u + uint32_t(dtype));
    std::uniform_real_distribution<double> uniform(low, is_floating(dtype) ? high : high + 1);
    dispatch(dtype, [&]<class T>() {
      T* to = reinterpret_cast<T*>(buffer.data());
      for (int64_t i = 0, n = shape.numel(); i < n; ++i)
        to[i] = reference::from_double<T>(std::floor(uniform(generator) * 4096) / 4096);
    });
    return buffer;
  }
  static Buffer of(Shape shape, DType dtype, const std::vector<double>& values) {
    Buffer buffer(shape, dtype);
    for (size_t i = 0; i < values.size(); ++i) buffer.set(int64_t(i), values[i]);
    return buffer;
  }
  static Buffer labels(const std::vector<int64_t>& values) {
    return of({int64_t(values.size())}, DType::i64, {values.begin(), values.end()});
  }

  /// Fills memory, guard elements included, with what no kernel may read: every float is NaN.
  Buffer& poison() {
    poison_bytes(memory_.data(), memory_.size());
    return *this;
  }
  void set(int64_t i, double value) {
    dispatch(dtype_, [&]<class T>() { reinterpret_cast<T*>(data())[i] = reference::from_double<T>(value); });
  }
  double get(int64_t i) const { return reference::get(in(), i); }
  std::vector<double> values() const {
    std::vector<double> all;
    if (!defined_) return all;
    all.reserve(size_t(numel()));
    dispatch(dtype_, [&]<class T>() {
      const T* from = reinterpret_cast<const T*>(data());
      for (const T* end = from + numel(); from < end; ++from) all.push_back(reference::to_double(*from));
    });
    return all;
  }
  View in() const { return defined_ ? View{data(), shape_, dtype_, true} : View{}; }
  OutView out(float beta = 0) { return defined_ ? OutView{data(), shape_, dtype_, beta, true} : OutView{}; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  bool defined() const { return defined_; }
  int64_t numel() const { return shape_.numel(); }
  /// All bytes, guards included.
  const ReachableBytes& memory() const { return memory_; }
  bool operator==(const Buffer& other) const { return memory_ == other.memory_; }

 private:
  // One element into the allocation: vector loads meet unaligned pointers.
  char* data() { return memory_.data() + size_of(dtype_); }
  const char* data() const { return memory_.data() + size_of(dtype_); }
  ReachableBytes memory_;
  Shape shape_;
  DType dtype_ = DType::f32;
  bool defined_ = false;
};

/// How far results may be from the reference, as a multiple of the dtype's rounding of the largest element. 0: exact.
struct Tolerance {
  double roundings = 4;
  bool accumulates = true;             ///< false: only beta 0 is allowed
  bool independent_of_threads = true;  ///< to the bit
};

inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-24;
    case DType::f64:
      return 0x1p-52;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0;
  }
}

/// `old` is what was added to, with beta 1: it counts as an element, since the sum may cancel and rounds once more.
inline void expect_close(const Buffer& actual, const Buffer& expected, const Buffer& old, float beta,
                         Tolerance tolerance, const std::string& what) {
  std::vector<double> as = actual.values(), es = expected.values();
  double largest = 0;
  for (const std::vector<double>& values : {es, old.values()})
    for (double value : values)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  double limit = (tolerance.roundings + beta) * rounding_of(actual.dtype()) * largest;
  ASSERT_EQ(as.size(), es.size()) << what;
  for (size_t i = 0; i < es.size(); ++i) {
    double a = as[i], e = es[i];
    bool same = a == e || (std::isnan(a) && std::isnan(e)) || std::abs(a - e) <= limit;
    ASSERT_TRUE(same) << what << ": element " << i << " of " << actual.shape() << " is " << a << ", expected " << e
                      << " (limit " << limit << ")";
  }
}

inline View as_argument(const Buffer& buffer) { return buffer.in(); }
template <class T> T as_argument(const T& value) { return value; }

inline void collect(std::vector<Buffer>& buffers, const Buffer& buffer) { buffers.push_back(buffer); }
template <class T> void collect(std::vector<Buffer>&, const T&) {}
/// Copies of the arguments that are buffers.
template <class... Args> std::vector<Buffer> buffers_of(const Args&... args) {
  std::vector<Buffer> buffers;
  (collect(buffers, args), ...);
  return buffers;
}

inline void expect_guards_untouched(const Buffer& actual, const Buffer& initial, const std::string& what) {
  size_t element = size_of(actual.dtype()), end = size_t(actual.numel() + 1) * element;
  const char *after = actual.memory().data(), *before = initial.memory().data();
  EXPECT_EQ(std::memcmp(after + end, before + end, actual.memory().size() - end), 0) << what << ": wrote past the end";
  EXPECT_EQ(std::memcmp(after, before, element), 0) << what << ": wrote before the beginning";
}

/// A kernel or a reference, applied to outputs whose old values count `beta` times.
using Run = std::function<void(std::vector<Buffer>& outputs, float beta, int threads)>;

/// Compares kernel and reference for both betas and several numbers of threads; see expect_like_reference.
inline void compare_runs(const std::string& name, DType key, const std::vector<Buffer>& shapes, Tolerance tolerance,
                         const Run& kernel, const Run& reference, const std::function<std::vector<Buffer>()>& inputs) {
  for (float beta : {0.0f, 1.0f}) {
    if (beta != 0 && !tolerance.accumulates) continue;
    std::vector<Buffer> initial = shapes, first, before = inputs();
    uint32_t seed = 99;
    for (Buffer& buffer : initial) {
      if (!buffer.defined()) continue;
      if (beta != 0)
        buffer = Buffer::random(buffer.shape(), buffer.dtype(), is_floating(key) ? -1 : 0, 1, ++seed);
      else
        buffer.poison();
    }
    std::vector<Buffer> expected = initial;
    reference(expected, beta, 1);
    for (int threads : {1, 2, 3}) {
      if (threads > 1 && test_device() != DeviceKind::cpu) break;
      std::vector<Buffer> actual = initial;
      kernel(actual, beta, threads);
      std::string what = concat(name, ' ', key, " beta ", beta, " threads ", threads);
      for (size_t k = 0; k < actual.size(); ++k) {
        if (!actual[k].defined() || (threads > 1 && actual[k] == first[k])) continue;  // those bits have been looked at
        expect_close(actual[k], expected[k], initial[k], beta, tolerance, what);
        expect_guards_untouched(actual[k], initial[k], what);
      }
      if (threads == 1) first = actual;
      EXPECT_TRUE(!tolerance.independent_of_threads || actual == first)
          << what << ": the number of threads changed the result";
      EXPECT_TRUE(before == inputs()) << what << ": changed an input";
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// Runs slot's kernel for `key` and the reference on the same arguments, and compares every output: with beta 0 on
/// poisoned destinations and with beta 1, with 1, 2 and 3 threads. `outputs` gives shapes and dtypes; an undefined one
/// is passed undefined.
template <size_t outputs, class... Params, class Reference, class... Args>
void expect_like_reference(Slot<Params...>& slot, const Reference& reference, DType key,
                           const std::array<Buffer, outputs>& shapes, Tolerance tolerance, const Args&... args) {
  Context context;
  auto kernel = kernel_of(slot, key);
  auto apply = [&]<size_t... k>(std::index_sequence<k...>, std::vector<Buffer> & results, float beta, const auto& fn) {
    fn(results[k].out(beta)..., as_argument(args)...);
  };
  auto index = std::make_index_sequence<outputs>();
  compare_runs(
      slot.name(), key, {shapes.begin(), shapes.end()}, tolerance,
      [&](auto& results, float beta, int threads) {
        apply(index, results, beta, [&](auto... all) { kernel(threads, all...); });
      },
      [&](auto& results, float beta, int) { apply(index, results, beta, reference); },
      [&] { return buffers_of(args...); });
}

/// One output of this shape and dtype.
inline std::array<Buffer, 1> one(Shape shape, DType dtype) { return {Buffer(shape, dtype)}; }

}  // namespace shardgrad::test
