#pragma once
// One array in NumPy's .npy format, as np.save writes it:
//
//     6 bytes   "\x93NUMPY"
//     2 bytes   version: 1 0, 2 0 or 3 0
//     2 bytes   length of the header, little-endian; 4 bytes from version 2 on
//     header    {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
//     array     row-major; here little-endian
//
// Rows are those of dimension 0.

#include <span>
#include <string>

#include <shardgrad/core/tensor.h>
#include <shardgrad/train/data/data_file.h>

namespace shardgrad::data {

class NpyFile {
 public:
  enum class Type { f16, f32, f64, i32, i64, u8, u16, u32, boolean };

  /// Throws Error(input), with the path and what to do, for what is no whole .npy file, and for one whose elements or
  /// order cannot be read: big-endian, of other types, pickled, in columns (Fortran's order).
  explicit NpyFile(std::string path);

  const std::string& path() const { return file_.path(); }
  const DataFile& file() const { return file_; }
  Type type() const { return type_; }
  bool is_floating() const { return type_ <= Type::f64; }
  const Shape& shape() const { return shape_; }
  int64_t rows() const { return shape_[0]; }
  int64_t row_numel() const { return row_numel_; }
  int64_t row_bytes() const { return row_bytes_; }
  /// Byte of the file.
  int64_t row_begin(int64_t row) const { return begin_ + row * row_bytes_; }
  /// Numbers from the bytes of this file's elements.
  void convert(const std::byte* from, std::span<double> to) const;
  /// The same where they are integers.
  void convert(const std::byte* from, std::span<int64_t> to) const;

 private:
  std::string read_header();
  void understand(const std::string& header);

  DataFile file_;
  Type type_ = Type::f32;
  Shape shape_;
  int64_t begin_ = 0, row_numel_ = 1, row_bytes_ = 0;
};

/// Writes a tensor on the cpu, of f32, f64, i32, i64 or u8. Throws Error(input) for another, and when the file cannot
/// be written.
void write_npy(const std::string& path, const Tensor& values);

}  // namespace shardgrad::data
