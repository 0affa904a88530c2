#pragma once
// The random numbers of kernels/ops.h, many Philox calls at a time.

#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/cpu/isa/simd.h>
#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kGroups = 64, kBlock = 4 * kGroups;  // Philox calls and words at a time, where nothing says otherwise

constexpr int64_t kPhilox = 2 * kLanes64;  // calls side by side: one's multiplications do not wait for the other's

// philox (core/rng.h) of the indices first, first + 1, …: vectors of each of its four numbers, in the lower halves of
// lanes.
SG_INLINE void philox_of_many(U64 (&c)[2][4], RandomRange range, uint64_t first) {
  for (int v = 0; v < 2; ++v) {
    U64 index;
    for (int l = 0; l < kLanes64; ++l) index[l] = first + uint64_t(v * kLanes64 + l);
    c[v][0] = index, c[v][1] = index >> 32;
    c[v][2] = U64{} + range.stream, c[v][3] = U64{} + (range.stream >> 32);
  }
  uint32_t k0 = uint32_t(range.seed), k1 = uint32_t(range.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (auto& n : c) {
      U64 a = multiply_halves(n[0], U64{} + 0xD2511F53), b = multiply_halves(n[2], U64{} + 0xCD9E8D57);
      n[0] = (b >> 32) ^ n[1] ^ k0;
      n[2] = (a >> 32) ^ n[3] ^ k1;
      n[1] = b;
      n[3] = a;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

// words[lane][g] is word 4 * (first + g) + lane of the sequence.
template <int64_t groups> SG_INLINE void fill_words(uint32_t (&words)[4][groups], RandomRange range, uint64_t first) {
  static_assert(groups % kPhilox == 0);
  for (int64_t g = 0; g < groups; g += kPhilox) {
    U64 c[2][4];
    philox_of_many(c, range, first + uint64_t(g));
    for (int v = 0; v < 2; ++v)
      for (int lane = 0; lane < 4; ++lane) {
        auto word = __builtin_convertvector(c[v][lane], U32Half);
        memcpy(words[lane] + g + v * kLanes64, &word, sizeof(word));
      }
  }
}

// Calls fill(block, first) for blocks of values, values 4 * first, 4 * first + 1, ... of the sequence, and
// use(i, values, n) for the part of each that lies in the range, i counted from the range's begin.
template <class C, class Fill, class Use>
SG_INLINE void for_blocks(int64_t n, RandomRange range, const Fill& fill, const Use& use) {
  alignas(64) C values[kBlock];
  int64_t skip = range.begin % 4;
  uint64_t first = uint64_t(range.begin) / 4;
  for (int64_t i = 0; i < n; first += kGroups, skip = 0) {
    fill(values, first);
    int64_t count = n - i < kBlock - skip ? n - i : kBlock - skip;
    use(i, values + skip, count);
    i += count;
  }
}

// Uniform numbers in [0, 1), exact multiples of 2^-24.
template <int64_t groups = kGroups> SG_INLINE void fill_uniform(float* values, RandomRange range, uint64_t first) {
  uint32_t words[4][groups];
  fill_words(words, range, first);
  for (int64_t g = 0; g < groups; ++g)
    for (int lane = 0; lane < 4; ++lane) values[4 * g + lane] = float(int32_t(words[lane][g] >> 8)) * 0x1p-24f;
}
// Likewise, or fine ones: exact multiples of 2^-53.
template <int64_t groups = kGroups> SG_INLINE void fill_uniform(double* values, RandomRange range, uint64_t first) {
  uint32_t words[4][groups], more[4][groups];
  fill_words(words, range, first);
  if (range.fine) fill_words(more, {range.seed, ~range.stream, 0}, first);
  for (int64_t g = 0; g < groups; ++g)
    for (int lane = 0; lane < 4; ++lane)
      values[4 * g + lane] =
          range.fine ? words[lane][g] * 0x1p-32 + (more[lane][g] >> 11) * 0x1p-53 : (words[lane][g] >> 8) * 0x1p-24;
}

}  // namespace
}  // namespace shardgrad::cpu
