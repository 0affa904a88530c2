#pragma once
// Sums over the windows of images, in one of two ways: neighbouring places of an image are a vector, or as many
// samples. Which parts of images are computed at a time depends on the threads, but no sum on the way or the parts: it
// is of blocks of the elements of a window, in their order.

#include <shardgrad/kernels/cpu/convolution_parts.h>

namespace shardgrad::cpu {

/// y = windows of x times weights. T is the type that E is computed in.
template <class E, class T = Compute<E>> struct WindowSumsOf {
  Axis down, across;
  int64_t samples, groups, in, out;  ///< channels of a group
  const E* x;
  std::vector<const T*> weights;  ///< packed, of each group
  bool finite;                    ///< all weights are
  const T* bias;
  OutView y;

  void run(int threads) const;
  int64_t depth() const { return in * int64_t(down.taps.size() * across.taps.size()); }
  static int64_t vector() { return loops().convolution.vector[kType<T>]; }

  /// A band of an image and group at a time (convolution_bands.cpp).
  void of_bands(int threads) const;
  /// A place of many samples at a time, for small images (convolution_samples.cpp). What a window sees of the padding
  /// is left out: weights must be finite.
  void of_samples(int threads) const;
  bool samples_are_better() const;
};

}  // namespace shardgrad::cpu
