#include <shardgrad/kernels/cpu/isa/simd.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

// Four vectors of partial sums hide the latency of addition.
template <class T, class Term> SG_INLINE double sum_terms(int64_t n, const Term& term) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width, step = 4 * width;
  V acc[4] = {};
  int64_t i = 0;
  for (; i + step <= n; i += step)
    for (int k = 0; k < 4; ++k) acc[k] += term(i + k * width, [](const T* p) { return load(p); });
  for (; i + width <= n; i += width) acc[0] += term(i, [](const T* p) { return load(p); });
  if (int64_t rest = n - i) acc[1] += term(i, [rest](const T* p) { return load_part(p, rest); });
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

template <class T> double sum_all(const void* x_, int64_t n) {
  const T* x = static_cast<const T*>(x_);
  return sum_terms<T>(n, [x](int64_t i, auto load) { return load(x + i); });
}

template <class T> double sum_of_squares(const void* x_, int64_t n) {
  const T* x = static_cast<const T*>(x_);
  return sum_terms<T>(n, [x](int64_t i, auto load) {
    auto v = load(x + i);
    return v * v;
  });
}

template <class T> double squared_difference(const void* x_, const void* target_, int64_t n) {
  const T *x = static_cast<const T*>(x_), *target = static_cast<const T*>(target_);
  return sum_terms<T>(n, [=](int64_t i, auto load) {
    auto d = load(x + i) - load(target + i);
    return d * d;
  });
}

template <class T> double huber_difference(const void* x_, const void* target_, int64_t n, double delta_) {
  const T *x = static_cast<const T*>(x_), *target = static_cast<const T*>(target_);
  auto delta = splat<VectorOf<T>>(ScalarOf<T>(delta_));
  return sum_terms<T>(n, [=](int64_t i, auto load) {
    auto d = load(x + i) - load(target + i), size = abs(d);
    return size <= delta ? d * d * 0.5f : delta * (size - delta * 0.5f);
  });
}

template <class T> void add_rows(void* acc_, const void* x_, int64_t rows, int64_t cols, int64_t stride) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width, step = 4 * width;
  auto* acc = static_cast<ScalarOf<T>*>(acc_);
  const T* x = static_cast<const T*>(x_);
  int64_t c = 0;
  for (; c + step <= cols; c += step) {
    V v[4];
    for (int k = 0; k < 4; ++k) v[k] = load(acc + c + k * width);
    for (int64_t r = 0; r < rows; ++r)
      for (int k = 0; k < 4; ++k) v[k] += load(x + r * stride + c + k * width);
    for (int k = 0; k < 4; ++k) store(acc + c + k * width, v[k]);
  }
  for_vectors<T>(cols - c, [&](int64_t i, auto load, auto store) {
    V v = load(acc + c + i);
    for (int64_t r = 0; r < rows; ++r) v += load(x + r * stride + c + i);
    store(acc + c + i, v);
  });
}

// Whether v comes before `top`: where it is larger, or smaller, or NaN; once NaN, the first stays so.
template <bool least, class V> SG_INLINE auto before(V top, V v) { return (least ? v < top : v > top) | (v != v); }
template <bool least, class V> SG_INLINE V first_of(V top, V v) { return before<least>(top, v) ? v : top; }

template <class T, bool least> double most_of_all(const void* x_, int64_t n) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width, step = 4 * width;
  const T* x = static_cast<const T*>(x_);
  V first = splat<V>(load_part(x, 1)[0]), top[4] = {first, first, first, first};
  int64_t i = 0;
  for (; i + step <= n; i += step)
    for (int k = 0; k < 4; ++k) top[k] = first_of<least>(top[k], load(x + i + k * width));
  for (; i + width <= n; i += width) top[0] = first_of<least>(top[0], load(x + i));
  if (int64_t rest = n - i) top[1] = first_of<least>(top[1], keep_first(load_part(x + i, rest), rest, first));
  V all = first_of<least>(first_of<least>(top[0], top[1]), first_of<least>(top[2], top[3]));
  double most = all[0];
  for (int64_t l = 1; l < width; ++l) most = first_of<least>(most, double(all[l]));
  return most;
}

// The elements at p in 64 bits, as many as a vector has lanes.
template <class T> SG_INLINE I64 load_integers(const T* p) {
  typedef T Narrow __attribute__((vector_size(kLanes64 * sizeof(T))));
  Narrow v;
  memcpy(&v, p, sizeof(v));
  return __builtin_convertvector(v, I64);
}

typedef uint64_t U64 __attribute__((vector_size(kBytes)));

template <class T> int64_t sum_integers(const void* x_, int64_t n) {
  const T* x = static_cast<const T*>(x_);
  U64 acc[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes64 <= n; i += 4 * kLanes64)
    for (int k = 0; k < 4; ++k) acc[k] += (U64)load_integers(x + i + k * kLanes64);
  acc[0] += acc[1] + acc[2] + acc[3];
  uint64_t total = 0;
  for (int l = 0; l < kLanes64; ++l) total += acc[0][l];
  for (; i < n; ++i) total += uint64_t(int64_t(x[i]));
  return int64_t(total);
}

// Bytes are added in lanes of 16 bits first, 128 times two of them at most.
template <> int64_t sum_integers<uint8_t>(const void* x_, int64_t n) {
  const uint8_t* x = static_cast<const uint8_t*>(x_);
  constexpr uint64_t every_other = 0x00ff00ff00ff00ffu;
  U64 acc = {};
  int64_t i = 0;
  while (i + kBytes <= n) {
    U64 pairs = {};
    for (int k = 0; k < 128 && i + kBytes <= n; ++k, i += kBytes) {
      U64 v;
      memcpy(&v, x + i, kBytes);
      pairs += (v & every_other) + ((v >> 8) & every_other);
    }
    for (int shift = 0; shift < 64; shift += 16) acc += (pairs >> shift) & 0xffffu;
  }
  uint64_t total = 0;
  for (int l = 0; l < kLanes64; ++l) total += acc[l];
  for (; i < n; ++i) total += x[i];
  return int64_t(total);
}

template <class T> void add_integer_rows(void* acc_, const void* x_, int64_t rows, int64_t cols, int64_t stride) {
  constexpr int64_t step = 4 * kLanes64;
  auto* acc = static_cast<uint64_t*>(acc_);
  const T* x = static_cast<const T*>(x_);
  int64_t c = 0;
  for (; c + step <= cols; c += step) {
    U64 v[4];
    memcpy(v, acc + c, sizeof(v));
    for (int64_t r = 0; r < rows; ++r)
      for (int k = 0; k < 4; ++k) v[k] += (U64)load_integers(x + r * stride + c + k * kLanes64);
    memcpy(acc + c, v, sizeof(v));
  }
  for (; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) acc[c] += uint64_t(int64_t(x[r * stride + c]));
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const ReduceLoops reduce_loops = {
    .sum = SG_FLOATS(sum_all),
    .squares = SG_FLOATS(sum_of_squares),
    .squared_difference = SG_FLOATS(squared_difference),
    .huber_difference = SG_FLOATS(huber_difference),
    .add_rows = {add_rows<float>, add_rows<double>, add_rows<Bf16>, add_rows<F16>, add_integer_rows<int32_t>,
                 add_integer_rows<int64_t>, add_integer_rows<uint8_t>},
    .largest = {most_of_all<float, false>, most_of_all<double, false>, most_of_all<Bf16, false>,
                most_of_all<F16, false>},
    .smallest = {most_of_all<float, true>, most_of_all<double, true>, most_of_all<Bf16, true>, most_of_all<F16, true>},
    .sum_integers = {sum_integers<int32_t>, sum_integers<int64_t>, sum_integers<uint8_t>},
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
