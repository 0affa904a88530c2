#pragma once
// Neighbours that move in one access where all of them are there and lie at a multiple of 16 bytes, or of their own,
// and one by one elsewhere.

#include <bit>

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// Whether `count` elements from here on can move together.
template <class T, int count> bool aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % alignof(Pack<T, count>) == 0;
}

/// N elements as they come from memory. Only what asks for one takes them apart: then the next ones are on their way.
template <class T, int N> struct Packed {
  using Elements = Pack<T, N>;
  using Word = std::conditional_t<sizeof(Elements) % 4 == 0, uint32_t, T>;
  using Words = Pack<Word, int(sizeof(Elements) / sizeof(Word))>;
  Words words;

  Packed() = default;
  __device__ explicit Packed(const Elements& elements) : words(std::bit_cast<Words>(elements)) {}
  __device__ Elements elements() const { return std::bit_cast<Elements>(words); }
  __device__ T operator[](int e) const { return elements().at[e]; }
};

/// The first `left` elements at `from`, at most N, and `otherwise` for the rest.
template <int N, class T>
__device__ Packed<T, N> load_some(const T* from, int64_t left, bool packed, T otherwise = T()) {
  if (packed && left >= N) {
    Packed<T, N> all;
    using Word = typename Packed<T, N>::Word;
    all.words = load_pack<int(sizeof(all) / sizeof(Word))>(reinterpret_cast<const Word*>(from));
    return all;
  }
  typename Packed<T, N>::Elements some;
  SG_UNROLL
  for (int e = 0; e < N; ++e) some.at[e] = e < left ? from[e] : otherwise;
  return Packed<T, N>(some);
}
/// The same to memory.
template <int N, class T> __device__ void store_some(T* to, int64_t left, bool packed, const Pack<T, N>& some) {
  if (packed && left >= N) {
    using Word = typename Packed<T, N>::Word;
    return store_pack(reinterpret_cast<Word*>(to), Packed<T, N>(some).words);
  }
  SG_UNROLL
  for (int e = 0; e < N; ++e)
    if (e < left) to[e] = some.at[e];
}

/// to[e] = values[e], or += it, for those of N that are `left`.
template <class T, int N>
__device__ void store_values(T* to, const Compute<T> (&values)[N], int64_t left, bool packed, bool accumulate) {
  Pack<T, N> result = {};
  if (accumulate) result = load_some<N>(static_cast<const T*>(to), left, packed).elements();
  SG_UNROLL
  for (int e = 0; e < N; ++e) store(&result.at[e], values[e], accumulate);
  store_some<N>(to, left, packed, result);
}

template <class T> inline constexpr int kPackOf = 16 / int(sizeof(T));  ///< elements of 16 bytes

}  // namespace
}  // namespace shardgrad::SG_DEVICE
