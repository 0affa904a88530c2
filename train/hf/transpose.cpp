#include <shardgrad/train/hf/transpose.h>

#include <algorithm>
#include <cstdint>

#include <shardgrad/core/error.h>

namespace shardgrad::train::hf {
namespace {

constexpr int64_t kTile = 16;  // a tile's rows and columns are lines of a cache, for elements of 4 bytes

template <class T> class Transpose {
 public:
  Transpose(const T* matrix, int64_t rows, int64_t columns, T* to, int64_t first)
      : from_(matrix), rows_(rows), columns_(columns), to_(to), first_(first) {}
  void copy(int64_t count) const {
    int64_t last = first_ + count, begin = (first_ + rows_ - 1) / rows_, end = last / rows_;
    if (begin > end) return copy_singly(first_, last);  // within one column
    copy_singly(first_, begin * rows_);
    copy_columns(begin, end);
    copy_singly(end * rows_, last);
  }

 private:
  T* place(int64_t element) const { return to_ + (element - first_); }
  // Elements [begin, end) of the transpose.
  void copy_singly(int64_t begin, int64_t end) const {
    for (int64_t e = begin; e < end; ++e) *place(e) = from_[e % rows_ * columns_ + e / rows_];
  }
  // Columns [begin, end) of the matrix, whole.
  void copy_columns(int64_t begin, int64_t end) const {
    int64_t tiled = rows_ / kTile * kTile, column = begin;
    for (; column + kTile <= end; column += kTile) {
      for (int64_t row = 0; row < tiled; row += kTile) copy_tile(row, column);
      for (int64_t c = column; c < column + kTile; ++c) copy_singly(c * rows_ + tiled, (c + 1) * rows_);
    }
    copy_singly(column * rows_, end * rows_);
  }
  void copy_tile(int64_t row, int64_t column) const {
    T tile[kTile][kTile];
    for (int64_t i = 0; i < kTile; ++i)
      for (int64_t j = 0; j < kTile; ++j) tile[j][i] = from_[(row + i) * columns_ + column + j];
    for (int64_t j = 0; j < kTile; ++j) std::copy_n(tile[j], kTile, place((column + j) * rows_ + row));
  }

  const T* from_;
  int64_t rows_, columns_;
  T* to_;
  int64_t first_;
};

template <class T> void read(const Tensor& matrix, int64_t first, const Tensor& values) {
  Transpose<T>(static_cast<const T*>(matrix.in().data), matrix.size(0), matrix.size(1),
               static_cast<T*>(values.out().data), first)
      .copy(values.numel());
}

}  // namespace

void read_transposed(const Tensor& matrix, int64_t first, const Tensor& values) {
  SG_CHECK(
      matrix.ndim() == 2 && matrix.dtype() == values.dtype() && first >= 0 && first + values.numel() <= matrix.numel(),
      "read_transposed: elements from ", first, " as many as ", values, " are not in the transpose of ", matrix);
  if (values.numel() == 0) return;
  switch (size_of(matrix.dtype())) {
    case 1:
      return read<uint8_t>(matrix, first, values);
    case 2:
      return read<uint16_t>(matrix, first, values);
    case 4:
      return read<uint32_t>(matrix, first, values);
    default:
      return read<uint64_t>(matrix, first, values);
  }
}

}  // namespace shardgrad::train::hf
