#pragma once
// How an image lies in memory so that a window's elements are at the same distances from every place, and the places of
// a row are neighbours: padded with zeros, and with a stride as several images, one for each remainder of a position.
//
// A row of 5 numbers, seen by windows of 3 with stride 2 and padding 1, has 3 places:
//
//     padded      0 a b c d e 0          place p sees the padded 2p, 2p + 1, 2p + 2
//     remainder 0 0 b d 0     at 0       element 0 of the window of place p: at 0 + p
//     remainder 1 a c e       at 4       element 1: at 4 + p;  element 2, of remainder 0 again: at 1 + p
//
// The gradient of an image is a convolution of dy with the weight turned round; with a stride, one for each remainder,
// of those elements of the window that meet it.

#include <vector>

#include <shardgrad/kernels/window.h>

namespace shardgrad::cpu {

/// One dimension. Element k of the window of place p is at taps[k] + step · p of the padded extent, which begins `low`
/// before the image.
struct Axis {
  int64_t extent = 0, low = 0, step = 1, places = 0;
  std::vector<int64_t> taps, elements;  ///< where the elements of a window are, and which they are
  int64_t first = 0, apart = 1;         ///< where the results of the places belong

  /// Windows over an image of `extent`.
  static Axis of(const Window& window, int64_t extent);
  /// For the gradient of those places of an image of `extent` whose padded position has this remainder by the stride:
  /// windows over dy.
  static Axis of_gradient(const Window& window, int64_t extent, int64_t remainder);

  int64_t reach() const;                ///< of the last element of a window, in places
  std::vector<int64_t> phases() const;  ///< the remainders that taps have
};

/// Places [row, row + rows) × [col, col + cols).
struct Band {
  int64_t row, rows, col, cols;
};

/// The layout of a part of an image, for bands of up to so many places. Places of a row are neighbours, and where a row
/// is no whole number of vectors, what lies between rows counts as places, too.
class WindowImage {
 public:
  WindowImage(const Axis& down, const Axis& across, int64_t channels, int64_t rows, int64_t cols, int64_t vector);
  /// Of each element of a window, by channel, row and column, from where place (0, 0) of a band lies.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  /// Where each vector of places begins, and how many of them are a band's.
  const std::vector<int64_t>& places() const { return places_; }
  int64_t vectors(const Band& band) const;
  int64_t pitch() const { return pitch_; }                            ///< from a place to the one below
  int64_t row() const { return row_; }                                ///< the same in what is computed of vectors
  int64_t size() const { return channels_ * of_channel_ + kBeyond; }  ///< elements, and what a loop may read beyond
  /// From x (channels, height, width) of type E.
  template <class E, class T> void fill(T* to, const E* x, const Band& band) const;

 private:
  static constexpr int64_t kBeyond = 64;
  const Axis &down_, &across_;
  std::vector<int64_t> rows_, cols_;  // phases down and across
  int64_t channels_, pitch_, plane_, of_channel_, vector_, row_;
  std::vector<int64_t> offsets_, places_;
};

}  // namespace shardgrad::cpu
