#pragma once
// What convolutions and pooling check of their windows.

#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/kernels/window.h>

namespace shardgrad {

inline constexpr int64_t kCounted = int64_t(1) << 31;  // kernels count positions and places in 32 bits

inline void check_window(const char* op, const Window& window) {
  SG_CHECK(window.kernel >= 1 && window.stride >= 1 && window.padding >= 0 && window.dilation >= 1 &&
               std::max({window.kernel, window.padding, window.dilation}) < kCounted,
           op, ": kernel ", window.kernel, ", stride ", window.stride, ", padding ", window.padding, " and dilation ",
           window.dilation, " are not possible");
}

/// With its padding.
inline int64_t padded(int64_t extent, const Window& window) { return extent + 2 * window.padding; }

}  // namespace shardgrad
