#include <shardgrad/dist/tree_sum.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

namespace shardgrad::dist {
namespace {

template <class T> using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;

// Blocks stay in the nearest cache; level by level, the tree is folded in place.
template <class T>
void sum_block(T* out, std::span<const void* const> parts, int64_t begin, int64_t count, Accumulator<T>* scratch) {
  size_t rows = parts.size(), width = size_t(count);
  for (size_t r = 0; r < rows; ++r) {
    const T* part = static_cast<const T*>(parts[r]) + begin;
    for (size_t i = 0; i < width; ++i) scratch[r * width + i] = Accumulator<T>(part[i]);
  }
  for (; rows > 1; rows = (rows + 1) / 2)
    for (size_t pair = 0; pair < (rows + 1) / 2; ++pair) {
      auto* a = scratch + 2 * pair * width;
      auto* to = scratch + pair * width;
      if (2 * pair + 1 == rows)
        std::copy(a, a + width, to);
      else
        for (size_t i = 0; i < width; ++i) to[i] = a[i] + a[width + i];
    }
  for (size_t i = 0; i < width; ++i) out[begin + int64_t(i)] = T(scratch[i]);
}

}  // namespace

void tree_sum(void* out, std::span<const void* const> parts, int64_t n, DType dtype) {
  dispatch(dtype, [&]<class T>() {
    constexpr int64_t kBlock = 512;
    std::vector<Accumulator<T>> scratch(parts.size() * size_t(std::min(kBlock, n)));
    for (int64_t begin = 0; begin < n; begin += kBlock)
      sum_block(static_cast<T*>(out), parts, begin, std::min(kBlock, n - begin), scratch.data());
  });
}

int64_t slice_begin(int64_t n, int count, int index) {
  constexpr int64_t kStep = 16;
  int64_t steps = (n + kStep - 1) / kStep;
  return std::min(n, steps * index / count * kStep);
}

}  // namespace shardgrad::dist
