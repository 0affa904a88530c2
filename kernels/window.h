#pragma once
// How a window goes over an extent of an image: kernels and operations say it alike.

#include <cstdint>

namespace shardgrad {

/// A window of `kernel` elements at every `stride`-th place of the input, with `padding` elements more at both ends,
/// its elements `dilation` apart.
struct Window {
  int64_t kernel, stride = 1, padding = 0, dilation = 1;
  /// How many places there are.
  int64_t places(int64_t extent) const {
    int64_t room = extent + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  }
};

}  // namespace shardgrad
