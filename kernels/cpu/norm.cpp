// layer_norm, rms_norm, batch_norm and batch_norm_apply.

#include <cmath>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/reduce.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

// (rows, columns) of x and its element type.
struct Matrix {
  int64_t rows, cols;
  int type;
  size_t row_bytes, statistic_bytes;

  explicit Matrix(const View& x)
      : rows(x.shape[-1] ? x.numel() / x.shape[-1] : 0),
        cols(x.shape[-1]),
        type(int(x.dtype)),
        row_bytes(size_t(cols) * size_of(x.dtype)),
        statistic_bytes(x.dtype == DType::f64 ? 8 : 4) {}
};

const char* row(View x, const Matrix& m, int64_t r) { return x.as<char>() + size_t(r) * m.row_bytes; }
char* row(OutView y, const Matrix& m, int64_t r) { return y.as<char>() + size_t(r) * m.row_bytes; }

// Writes sums or statistics (f32, or f64) where they are wanted.
void put_sums(OutView y, const void* sums, int64_t begin, int64_t n, size_t size) {
  if (!y.defined()) return;
  auto cast = loops().elementwise.cast[int(y.dtype)][int(size == 8 ? DType::f64 : DType::f32)];
  cast(y.as<char>() + begin * size_of(y.dtype), sums, n, y.beta != 0);
}

void normalize_rows(const Launch& launch, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                    double eps, bool centered) {
  Matrix m(x);
  parallel_for(launch.threads, m.rows, grain_for(4 * m.cols), [&](int64_t begin, int64_t end) {
    constexpr int64_t block = 32;
    double means[block] = {}, rstds[block];  // room for either type
    double* center = centered ? means : nullptr;
    for (int64_t r = begin; r < end; r += block) {
      int64_t n = std::min(block, end - r);
      loops().norm.row_statistics[m.type](center, rstds, row(x, m, r), n, m.cols, eps);
      loops().norm.normalize[m.type](row(y, m, r), row(x, m, r), {center, rstds, true}, weight.data, bias.data, n,
                                     m.cols, y.beta != 0);
      put_sums(mean, means, r, n, m.statistic_bytes);
      put_sums(rstd, rstds, r, n, m.statistic_bytes);
    }
  });
}

void layer_norm(const Launch& launch, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                double eps) {
  normalize_rows(launch, y, mean, rstd, x, weight, bias, eps, true);
}
void rms_norm(const Launch& launch, OutView y, OutView rstd, View x, View weight, double eps) {
  normalize_rows(launch, y, {}, rstd, x, weight, {}, eps, false);
}

// Those of the rows from `first` on.
NormStatistics from_row(const Matrix& m, const NormStatistics& s, int64_t first) {
  if (!s.per_row) return s;
  auto later = [&](const void* p) {
    return p ? static_cast<const char*>(p) + size_t(first) * m.statistic_bytes : nullptr;
  };
  return {later(s.mean), later(s.rstd), true};
}

// Σ dy · x̂ and Σ dy per column: dweight at 0, dbias at cols.
RowSums weight_sums(const Launch& launch, const Matrix& m, View dy, View x, const NormStatistics& s) {
  return RowSums(launch.threads, x.dtype, m.rows, 2 * m.cols, 2 * m.cols, [&](void* sums, int64_t first, int64_t n) {
    void* dbias = static_cast<char*>(sums) + m.cols * m.statistic_bytes;
    loops().norm.weight_sums[m.type](sums, dbias, row(dy, m, first), row(x, m, first), from_row(m, s, first), n,
                                     m.cols);
  });
}

void layer_norm_backward(const Launch& launch, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd) {
  Matrix m(x);
  if (m.cols == 0) return;
  NormStatistics s{mean.data, rstd.data, true};
  if (dweight.defined() || dbias.defined()) {
    RowSums sums = weight_sums(launch, m, dy, x, s);
    put_sums(dweight, sums.at(0), 0, m.cols, m.statistic_bytes);
    put_sums(dbias, sums.at(m.cols), 0, m.cols, m.statistic_bytes);
  }
  if (!dx.defined()) return;
  parallel_for(launch.threads, m.rows, grain_for(4 * m.cols), [&](int64_t begin, int64_t end) {
    loops().norm.row_backward[m.type](row(dx, m, begin), row(dy, m, begin), row(x, m, begin), from_row(m, s, begin),
                                      weight.data, end - begin, m.cols, dx.beta != 0);
  });
}
void rms_norm_backward(const Launch& launch, OutView dx, OutView dweight, View dy, View x, View weight, View rstd) {
  layer_norm_backward(launch, dx, dweight, {}, dy, x, weight, {}, rstd);
}

template <class S> void scale_sums(void* sums, int64_t n, double factor) {
  for (int64_t c = 0; c < n; ++c) static_cast<S*>(sums)[c] = S(static_cast<S*>(sums)[c] * factor);
}
template <class S> void to_rstd(void* variances, int64_t n, double factor, double eps) {
  S* v = static_cast<S*>(variances);
  for (int64_t c = 0; c < n; ++c) v[c] = S(1 / std::sqrt(double(v[c]) * factor + eps));
}

void normalize_columns(const Launch& launch, const Matrix& m, OutView y, View x, const NormStatistics& s, View weight,
                       View bias) {
  parallel_for(launch.threads, m.rows, grain_for(m.cols), [&](int64_t begin, int64_t end) {
    loops().norm.normalize[m.type](row(y, m, begin), row(x, m, begin), s, weight.data, bias.data, end - begin, m.cols,
                                   y.beta != 0);
  });
}

void batch_norm(const Launch& launch, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                double eps) {
  Matrix m(x);
  if (x.numel() == 0) return;
  double over = 1.0 / double(m.rows);
  bool wide = m.statistic_bytes == 8;
  RowSums means(launch.threads, x.dtype, m.rows, m.cols, m.cols, [&](void* sums, int64_t first, int64_t n) {
    loops().reduce.add_rows[m.type](sums, row(x, m, first), n, m.cols, m.cols);
  });
  (wide ? scale_sums<double> : scale_sums<float>)(means.at(0), m.cols, over);
  RowSums rstds(launch.threads, x.dtype, m.rows, m.cols, m.cols, [&](void* sums, int64_t first, int64_t n) {
    loops().norm.column_squares[m.type](sums, row(x, m, first), means.at(0), n, m.cols);
  });
  (wide ? to_rstd<double> : to_rstd<float>)(rstds.at(0), m.cols, over, eps);
  normalize_columns(launch, m, y, x, {means.at(0), rstds.at(0), false}, weight, bias);
  put_sums(mean, means.at(0), 0, m.cols, m.statistic_bytes);
  put_sums(rstd, rstds.at(0), 0, m.cols, m.statistic_bytes);
}

void batch_norm_apply(const Launch& launch, OutView y, View x, View mean, View rstd, View weight, View bias) {
  normalize_columns(launch, Matrix(x), y, x, {mean.data, rstd.data, false}, weight, bias);
}

void batch_norm_backward(const Launch& launch, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd) {
  Matrix m(x);
  if (m.cols == 0) return;
  NormStatistics s{mean.data, rstd.data, false};
  RowSums sums = weight_sums(launch, m, dy, x, s);
  put_sums(dweight, sums.at(0), 0, m.cols, m.statistic_bytes);
  put_sums(dbias, sums.at(m.cols), 0, m.cols, m.statistic_bytes);
  if (!dx.defined()) return;
  parallel_for(launch.threads, m.rows, grain_for(m.cols), [&](int64_t begin, int64_t end) {
    loops().norm.column_backward[m.type](row(dx, m, begin), row(dy, m, begin), row(x, m, begin), s, weight.data,
                                         sums.at(0), sums.at(m.cols), m.rows, end - begin, m.cols, dx.beta != 0);
  });
}

const Each registered_layer_norm(kernels::layer_norm, kFloats, layer_norm);
const Each registered_rms_norm(kernels::rms_norm, kFloats, rms_norm);
const Each registered_rms_norm_backward(kernels::rms_norm_backward, kFloats, rms_norm_backward);
const Each registered_batch_norm(kernels::batch_norm, kFloats, batch_norm);
const Each registered_apply(kernels::batch_norm_apply, kFloats, batch_norm_apply);
const Each registered_layer_norm_backward(kernels::layer_norm_backward, kFloats, layer_norm_backward);
const Each registered_batch_norm_backward(kernels::batch_norm_backward, kFloats, batch_norm_backward);

}  // namespace
}  // namespace shardgrad::cpu
