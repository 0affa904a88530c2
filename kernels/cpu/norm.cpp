// layer_norm and rms_norm, of rows or of sums of them.

#include <shardgrad/kernels/cpu/norm.h>

namespace shardgrad::cpu {
namespace {

struct AsTheyAre {
  void operator()(int64_t, int64_t) const {}
};

/// make(first, n) is called for rows of x before they are read.
template <class Make = AsTheyAre>
void normalize_rows(const Launch& launch, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                    double eps, bool centered, const Make& make = {}) {
  Matrix m(x);
  parallel_for(launch.threads, m.rows, grain_for(4 * m.cols), [&](int64_t begin, int64_t end) {
    constexpr int64_t block = 32;
    double means[block] = {}, rstds[block];  // room for either type
    double* center = centered ? means : nullptr;
    for (int64_t r = begin; r < end; r += block) {
      int64_t n = std::min(block, end - r);
      make(r, n);
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

// What `sum` holds already is not normalised: where it is added to, the new rows lie apart first.
void normalize_sums(const Launch& launch, OutView sum, OutView y, OutView mean, OutView rstd, View x, View residual,
                    View weight, View bias, double eps, bool centered) {
  Matrix m(x);
  auto add = loops().elementwise.binary[int(Binary::add)][m.type];
  std::optional<Workspace> apart;
  OutView rows = sum;
  if (sum.beta != 0) rows.data = apart.emplace(kCpu, size_t(m.rows) * m.row_bytes).as<char>();
  auto make = [&](int64_t first, int64_t n) {
    Grid grid{.cols = n * m.cols, .accumulate = false};
    add(row(rows, m, first), row(x, m, first), row(residual, m, first), grid, {});
    if (apart) loops().elementwise.cast[m.type][m.type](row(sum, m, first), row(rows, m, first), grid.cols, true);
  };
  View made{rows.data, x.shape, x.dtype, true};
  normalize_rows(launch, y, mean, rstd, made, weight, bias, eps, centered, make);
}
void add_layer_norm(const Launch& launch, OutView sum, OutView y, OutView mean, OutView rstd, View x, View residual,
                    View weight, View bias, double eps) {
  normalize_sums(launch, sum, y, mean, rstd, x, residual, weight, bias, eps, true);
}
void add_rms_norm(const Launch& launch, OutView sum, OutView y, OutView rstd, View x, View residual, View weight,
                  double eps) {
  normalize_sums(launch, sum, y, {}, rstd, x, residual, weight, {}, eps, false);
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

const Each registered_layer_norm(kernels::layer_norm, kFloats, layer_norm);
const Each registered_rms_norm(kernels::rms_norm, kFloats, rms_norm);
const Each registered_add_layer_norm(kernels::add_layer_norm, kFloats, add_layer_norm);
const Each registered_add_rms_norm(kernels::add_rms_norm, kFloats, add_rms_norm);
const Each registered_rms_norm_backward(kernels::rms_norm_backward, kFloats, rms_norm_backward);
const Each registered_layer_norm_backward(kernels::layer_norm_backward, kFloats, layer_norm_backward);

}  // namespace
}  // namespace shardgrad::cpu
