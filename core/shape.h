#pragma once
// The extents of a tensor: up to kMaxDims dimensions, stored inline, row-major.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include <shardgrad/core/error.h>

namespace shardgrad {

inline constexpr int kMaxDims = 6;
/// The most elements a shape may have, so that bytes of every dtype, and sums of some, can be counted in 63 bits.
inline constexpr int64_t kMaxElements = int64_t(1) << 56;

/// Extents of a contiguous row-major tensor. A scalar has ndim() == 0 and numel() == 1.
/// Throws Error(input) for a negative extent, more than kMaxDims dimensions, or a product above kMaxElements.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int ndim() const { return ndim_; }
  int64_t numel() const { return numel_; }
  /// Extent of dimension d; negative d counts from the end. Throws when out of range.
  int64_t operator[](int d) const { return dims_[size_t(checked(d))]; }
  std::span<const int64_t> dims() const { return {dims_.data(), size_t(ndim_)}; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + ndim_; }
  /// The dimension index with negatives resolved. Throws when out of range.
  int checked(int d) const {
    int resolved = d < 0 ? d + ndim_ : d;
    if (resolved < 0 || resolved >= ndim_) [[unlikely]]
      bad_dim(d);
    return resolved;
  }
  /// This shape with dimension d set to extent.
  Shape with(int d, int64_t extent) const;
  bool operator==(const Shape& other) const;

 private:
  [[noreturn]] void bad_dim(int d) const;
  std::array<int64_t, kMaxDims> dims_{};
  int64_t numel_ = 1;
  int ndim_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// The NumPy broadcast of two shapes. Throws Error(input) naming op and both shapes when they do not fit.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

}  // namespace shardgrad
