#pragma once
// What a place of pooling sees of one dimension of an image: kernels of the CPU and of GPUs say it alike.

#include <shardgrad/kernels/ops.h>

namespace shardgrad::kernels {

/// The elements [first, last), and by how many the mean divides.
struct Sight {
  int64_t first, last, count;
};

/// Of a place of `places`, in an extent.
constexpr Sight sight_of(const PoolArgs& args, const Window& window, int64_t place, int64_t places, int64_t extent) {
  if (args.parts) {
    int64_t first = place * extent / places, last = ((place + 1) * extent + places - 1) / places;
    return {first, last, last - first};
  }
  int64_t begin = place * window.stride - window.padding, end = begin + window.kernel, edge = extent + window.padding;
  int64_t first = begin > 0 ? begin : 0, last = end < extent ? end : extent;
  return {first, last, args.padding_counts ? (end < edge ? end : edge) - begin : last - first};
}

}  // namespace shardgrad::kernels
