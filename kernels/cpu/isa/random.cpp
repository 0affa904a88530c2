#include <shardgrad/kernels/cpu/isa/math.h>
#include <shardgrad/kernels/cpu/isa/tables.h>
#include <shardgrad/kernels/cpu/isa/uniform.h>

namespace shardgrad::cpu {
namespace {

// Box-Muller on words (0, 1) and (2, 3) of each group: radius from the first, angle from the second. Of doubles it
// makes two normal numbers of two uniform ones, in their place.
SG_INLINE void box_muller(const uint32_t* radius_words, const uint32_t* angle_words, float* out) {
  for (int64_t g = 0; g < kGroups; g += kLanes32) {
    U32 wr, wa;
    memcpy(&wr, radius_words + g, kBytes);
    memcpy(&wa, angle_words + g, kBytes);
    F32 u = (__builtin_convertvector((I32)(wr >> 8), F32) + 1.0f) * 0x1p-24f, sine, cosine;
    F32 radius = sqrt(-2.0f * log(u));
    sincos_turns(wa >> 8, sine, cosine);
    F32 even = radius * cosine, odd = radius * sine;
    for (int l = 0; l < kLanes32; ++l) {
      out[4 * (g + l)] = even[l];
      out[4 * (g + l) + 1] = odd[l];
    }
  }
}
SG_INLINE void fill_normal(float* values, RandomRange range, uint64_t first) {
  uint32_t words[4][kGroups];
  fill_words(words, range, first);
  box_muller(words[0], words[1], values);
  box_muller(words[2], words[3], values + 2);
}
SG_INLINE void fill_normal(double* values, RandomRange range, uint64_t first) {
  fill_uniform(values, range, first);
  double step = range.fine ? 0x1p-53 : 0x1p-24;
  for (int64_t i = 0; i < kBlock; i += 2) {
    double radius = __builtin_sqrt(-2 * __builtin_log(values[i] + step)), angle = values[i + 1] * 6.283185307179586;
    values[i] = radius * __builtin_cos(angle);
    values[i + 1] = radius * __builtin_sin(angle);
  }
}

template <class T>
void uniform(void* y_, int64_t n, RandomRange range, double a_, double b_, double below_, bool accumulate) {
  using V = VectorOf<T>;
  using C = ScalarOf<T>;
  T* y = static_cast<T*>(y_);
  V a = splat<V>(C(a_)), width = splat<V>(C(b_ - a_)), below = splat<V>(C(below_));
  for_blocks<C>(
      n, range, [&](C* values, uint64_t first) { fill_uniform(values, range, first); },
      [&](int64_t begin, const C* values, int64_t count) {
        for_vectors<T>(count, [&](int64_t i, auto load, auto store) {
          V r = min(fma(width, load(values + i), a), below);
          store(y + begin + i, accumulate ? load(y + begin + i) + r : r);
        });
      });
}

template <class T>
void normal(void* y_, int64_t n, RandomRange range, double mean_, double deviation_, bool accumulate) {
  using V = VectorOf<T>;
  using C = ScalarOf<T>;
  T* y = static_cast<T*>(y_);
  V mean = splat<V>(C(mean_)), deviation = splat<V>(C(deviation_));
  for_blocks<C>(
      n, range, [&](C* values, uint64_t first) { fill_normal(values, range, first); },
      [&](int64_t begin, const C* values, int64_t count) {
        for_vectors<T>(count, [&](int64_t i, auto load, auto store) {
          V r = fma(deviation, load(values + i), mean);
          store(y + begin + i, accumulate ? load(y + begin + i) + r : r);
        });
      });
}

template <class T>
void dropout(void* y_, const void* x_, int64_t n, RandomRange range, double p_, double scale_, bool accumulate) {
  using V = VectorOf<T>;
  using C = ScalarOf<T>;
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  V p = splat<V>(C(p_)), scale = splat<V>(C(scale_));
  for_blocks<C>(
      n, range, [&](C* values, uint64_t first) { fill_uniform(values, range, first); },
      [&](int64_t begin, const C* values, int64_t count) {
        for_vectors<T>(count, [&](int64_t i, auto load, auto store) {
          V r = load(values + i) >= p ? load(x + begin + i) * scale : V{};
          store(y + begin + i, accumulate ? load(y + begin + i) + r : r);
        });
      });
}

void round_by_chance(void* y_, const float* x, int64_t n, RandomRange range) {
  Bf16* y = static_cast<Bf16*>(y_);
  for_blocks<float>(
      n, range, [&](float* values, uint64_t first) { fill_uniform(values, range, first); },
      [&](int64_t begin, const float* values, int64_t count) {
        for_vectors<Bf16>(count, [&](int64_t i, auto load, auto store) {
          F32 exact = load(x + begin + i);
          U32 bits = (U32)exact, below = (U32) __builtin_convertvector(load(values + i) * 0x1p16f, I32);
          F32 rounded = (F32)((bits + below) & 0xffff0000u);
          store(y + begin + i, (bits & 0x7fffffffu) > 0x7f800000u ? exact : rounded);
        });
      });
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const RandomLoops random_loops = {
    .uniform = SG_FLOATS(uniform),
    .normal = SG_FLOATS(normal),
    .dropout = SG_FLOATS(dropout),
    .round_by_chance = round_by_chance,
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
