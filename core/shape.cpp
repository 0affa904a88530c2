#include <shardgrad/core/shape.h>

#include <algorithm>

namespace shardgrad {

Shape::Shape(std::span<const int64_t> dims) {
  SG_CHECK(dims.size() <= size_t(kMaxDims), "shape: ", dims.size(), " dimensions; at most ", kMaxDims,
           " are supported");
  ndim_ = int(dims.size());
  bool empty = std::ranges::find(dims, 0) != dims.end();
  for (int d = 0; d < ndim_; ++d) {
    int64_t extent = dims[size_t(d)];
    SG_CHECK(extent >= 0, "shape: dimension ", d, " is negative (", extent, ")");
    dims_[size_t(d)] = extent;
    int64_t product = 0;
    bool overflow = !empty && (__builtin_mul_overflow(numel_, extent, &product) || product > kMaxElements);
    SG_CHECK(!overflow, "shape: more than 2^56 elements at dimension ", d, " (extent ", extent, ")");
    numel_ = product;
  }
}

Shape Shape::with(int d, int64_t extent) const {
  std::array<int64_t, kMaxDims> dims = dims_;
  dims[size_t(checked(d))] = extent;
  return Shape(std::span<const int64_t>(dims.data(), size_t(ndim_)));
}

bool Shape::operator==(const Shape& other) const {
  return ndim_ == other.ndim_ && std::equal(begin(), end(), other.begin());
}

void Shape::bad_dim(int d) const { fail("dimension ", d, " is out of range for shape ", *this); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int d = 0; d < shape.ndim(); ++d) out << (d ? ", " : "") << shape[d];
  return out << ']';
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  int ndim = std::max(a.ndim(), b.ndim());
  std::array<int64_t, kMaxDims> dims{};
  for (int d = 1; d <= ndim; ++d) {
    int64_t x = d <= a.ndim() ? a[-d] : 1, y = d <= b.ndim() ? b[-d] : 1;
    SG_CHECK(x == y || x == 1 || y == 1, op, ": shapes ", a, " and ", b, " do not broadcast (", x, " against ", y,
             " in dimension ", -d, ")");
    dims[size_t(ndim - d)] = x == 1 ? y : x;
  }
  return Shape(std::span<const int64_t>(dims.data(), size_t(ndim)));
}

}  // namespace shardgrad
