#pragma once
// Times work on a device's compute stream, by the device's clock, as it is in a program: what it reads is in no cache.

#include <functional>
#include <span>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

class ColdTiming {
 public:
  explicit ColdTiming(Device device);

  struct Piece {
    std::function<void()> prepare;  ///< runs before the caches are flushed; not timed
    std::function<void()> work;     ///< queues what is timed
  };
  struct Result {
    std::vector<double> seconds;  ///< of each piece: the median
    int calls = 0;
  };
  /// The pieces take turns, so that all meet the same machine: 20 times, or fewer when that takes seconds.
  Result medians(std::span<const Piece> pieces) const;

  /// Puts other bytes in the place of all that caches hold.
  void flush() const;
  /// What flush() writes: larger than any cache. An element says how often it was written.
  const Tensor& buffer() const { return buffer_; }

 private:
  Tensor buffer_;
};

}  // namespace shardgrad
