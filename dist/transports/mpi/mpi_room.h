#pragma once

#include <algorithm>
#include <cstddef>

namespace shardgrad::dist {

/// How much of each peer's slice is in memory at a time while it is summed.
inline constexpr size_t kMpiSegment = size_t(2) << 20;

/// What a rank of `size` that sums a slice of so many bytes keeps of what the others send it.
inline size_t mpi_room(size_t slice, int size) { return std::min(kMpiSegment, slice) * size_t(size - 1); }

}  // namespace shardgrad::dist
