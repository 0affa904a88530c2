#pragma once

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// A tensor seen as (outer, extent, inner) around one dimension.
struct Around {
  int64_t outer = 1, extent, inner = 1;
  Around(const Shape& shape, int dim) : extent(shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  }
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
