#pragma once
// The free ranges of a stretch of address space, handed out first fit; neighbours merge when they come back.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace shardgrad {

class FreeList {
 public:
  void give(uintptr_t begin, size_t bytes);
  /// The beginning of the first range with at least `bytes` bytes, which are taken from it; none: nullopt.
  std::optional<uintptr_t> take(size_t bytes);
  /// Takes [begin, begin + bytes) if all of it is free.
  bool take_at(uintptr_t begin, size_t bytes);
  /// The length of the free range that ends at `end`; 0 when none does.
  size_t bytes_before(uintptr_t end) const;

 private:
  std::map<uintptr_t, size_t> ranges_;  // begin -> bytes
};

}  // namespace shardgrad
