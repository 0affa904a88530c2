#pragma once
// What the normalisations share.

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/reduce.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {

/// (rows, columns) of x and its element type.
struct Matrix {
  int64_t rows, cols;
  int type;
  size_t row_bytes, statistic_bytes;

  Matrix(int64_t n, int64_t m, DType dtype)
      : rows(n),
        cols(m),
        type(int(dtype)),
        row_bytes(size_t(cols) * size_of(dtype)),
        statistic_bytes(dtype == DType::f64 ? 8 : 4) {}
  explicit Matrix(const View& x) : Matrix(x.shape[-1] ? x.numel() / x.shape[-1] : 0, x.shape[-1], x.dtype) {}
};

inline const char* row(View x, const Matrix& m, int64_t r) { return x.as<char>() + size_t(r) * m.row_bytes; }
inline char* row(OutView y, const Matrix& m, int64_t r) { return y.as<char>() + size_t(r) * m.row_bytes; }

/// Writes sums or statistics (f32, or f64) where they are wanted.
inline void put_sums(OutView y, const void* sums, int64_t begin, int64_t n, size_t size) {
  if (!y.defined()) return;
  auto cast = loops().elementwise.cast[int(y.dtype)][int(size == 8 ? DType::f64 : DType::f32)];
  cast(y.as<char>() + begin * size_of(y.dtype), sums, n, y.beta != 0);
}

/// Elements of a channel that are added up before their sum is a double.
inline constexpr int64_t kTogether = 2048;

/// A number as statistics of `dtype` keep it.
inline double as_statistic(double value, DType dtype) { return dtype == DType::f64 ? value : double(float(value)); }
inline double number_at(View x, int64_t i, double otherwise) {
  if (!x.defined()) return otherwise;
  return dispatch_floats(x.dtype, [&]<class T>() { return convert<double>(x.as<T>()[i]); });
}
inline void put_number(OutView y, int64_t i, double value) {
  if (!y.defined()) return;
  dispatch_floats(y.dtype, [&]<class T>() { put_sum(y.as<T>()[i], Compute<T>(value), y.beta != 0); });
}

inline ChannelNorm norm_of(int64_t c, double mean, double rstd, View weight, View bias) {
  return {mean, rstd, number_at(weight, c, 1), number_at(bias, c, 0)};
}

/// Those of the rows from `first` on.
inline NormStatistics from_row(const Matrix& m, const NormStatistics& s, int64_t first) {
  if (!s.per_row) return s;
  auto later = [&](const void* p) {
    return p ? static_cast<const char*>(p) + size_t(first) * m.statistic_bytes : nullptr;
  };
  return {later(s.mean), later(s.rstd), true};
}

/// Σ dy · x̂ and Σ dy per column: dweight at 0, dbias at cols.
inline RowSums weight_sums(const Launch& launch, const Matrix& m, View dy, View x, const NormStatistics& s) {
  return RowSums(launch.threads, x.dtype, m.rows, 2 * m.cols, 2 * m.cols, [&](void* sums, int64_t first, int64_t n) {
    void* dbias = static_cast<char*>(sums) + m.cols * m.statistic_bytes;
    loops().norm.weight_sums[m.type](sums, dbias, row(dy, m, first), row(x, m, first), from_row(m, s, first), n,
                                     m.cols);
  });
}

}  // namespace shardgrad::cpu
