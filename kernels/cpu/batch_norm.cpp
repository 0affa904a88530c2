// batch_norm and batch_norm_apply. Of (samples, channels) the columns of a matrix are normalised, side by side; of
// (samples, channels, …) one channel after the other, which stays in the cache meanwhile.

#include <cmath>

#include <shardgrad/kernels/cpu/norm.h>

namespace shardgrad::cpu {
namespace {

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

void by_columns(const Launch& launch, const Matrix& m, OutView y, OutView mean, OutView rstd, View x, View weight,
                View bias, double eps) {
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

void by_columns_backward(const Launch& launch, const Matrix& m, OutView dx, OutView dweight, OutView dbias, View dy,
                         View x, View weight, View mean, View rstd) {
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

// x (samples, channels, places), where a channel has a run of `places` elements in each sample.
struct Channels {
  int64_t samples, channels, places;
  DType dtype;
  size_t element;

  explicit Channels(const View& x)
      : samples(x.shape[0]), channels(x.shape[1]), places(1), dtype(x.dtype), element(size_of(x.dtype)) {
    for (int d = 2; d < x.shape.ndim(); ++d) places *= x.shape[d];
  }
  int64_t count() const { return samples * places; }
  Matrix columns() const { return {samples, channels, dtype}; }
  bool are_columns() const { return places == 1; }

  // Calls each(bytes from the beginning to its first element, runs) for parts of a channel, in which sums may be taken.
  template <class Each> void over_parts(int64_t channel, const Each& each) const {
    int64_t runs = std::max<int64_t>(1, kTogether / std::max<int64_t>(places, 1));
    for (int64_t n = 0; n < samples; n += runs)
      for (int64_t i = 0; i < places; i += kTogether)
        each(size_t((n * channels + channel) * places + i) * element,
             Runs{std::min(runs, samples - n), std::min(kTogether, places - i), channels * places});
  }
  // Calls each(channel) for all of them.
  template <class Each> void over_channels(const Launch& launch, const Each& each) const {
    parallel_for(launch.threads, channels, grain_for(4 * count()), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) each(c);
    });
  }
};

void normalize_channel(const Channels& m, int64_t c, OutView y, View x, const ChannelNorm& norm) {
  m.over_parts(c, [&](size_t at, const Runs& runs) {
    loops().channels.normalize[int(m.dtype)](y.as<char>() + at, x.as<char>() + at, runs, norm, y.beta != 0);
  });
}

void batch_norm(const Launch& launch, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                double eps) {
  Channels m(x);
  if (x.numel() == 0) return;
  if (m.are_columns()) return by_columns(launch, m.columns(), y, mean, rstd, x, weight, bias, eps);
  auto& channels = loops().channels;
  int type = int(m.dtype);
  m.over_channels(launch, [&](int64_t c) {
    double sum = 0, squares = 0;
    m.over_parts(c, [&](size_t at, const Runs& runs) { sum += channels.sum[type](x.as<char>() + at, runs); });
    double center = as_statistic(sum / double(m.count()), m.dtype);
    m.over_parts(
        c, [&](size_t at, const Runs& runs) { squares += channels.squares[type](x.as<char>() + at, runs, center); });
    double scale = as_statistic(1 / std::sqrt(squares / double(m.count()) + eps), m.dtype);
    put_number(mean, c, center);
    put_number(rstd, c, scale);
    normalize_channel(m, c, y, x, norm_of(c, center, scale, weight, bias));
  });
}

void batch_norm_apply(const Launch& launch, OutView y, View x, View mean, View rstd, View weight, View bias) {
  Channels m(x);
  if (m.are_columns()) return normalize_columns(launch, m.columns(), y, x, {mean.data, rstd.data, false}, weight, bias);
  m.over_channels(launch, [&](int64_t c) {
    normalize_channel(m, c, y, x, norm_of(c, number_at(mean, c, 0), number_at(rstd, c, 1), weight, bias));
  });
}

void batch_norm_backward(const Launch& launch, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd) {
  Channels m(x);
  if (m.channels == 0) return;
  if (m.are_columns()) return by_columns_backward(launch, m.columns(), dx, dweight, dbias, dy, x, weight, mean, rstd);
  auto& channels = loops().channels;
  int type = int(m.dtype);
  m.over_channels(launch, [&](int64_t c) {
    ChannelNorm norm = norm_of(c, number_at(mean, c, 0), number_at(rstd, c, 1), weight, {});
    double sums[2] = {}, count = double(m.count());
    m.over_parts(c, [&](size_t at, const Runs& runs) {
      channels.products[type](sums, dy.as<char>() + at, x.as<char>() + at, runs, norm);
    });
    put_number(dweight, c, sums[0]);
    put_number(dbias, c, sums[1]);
    if (!dx.defined()) return;
    m.over_parts(c, [&](size_t at, const Runs& runs) {
      channels.backward[type](dx.as<char>() + at, dy.as<char>() + at, x.as<char>() + at, runs, norm, sums[1] / count,
                              sums[0] / count, dx.beta != 0);
    });
  });
}

const Each registered_batch_norm(kernels::batch_norm, kFloats, batch_norm);
const Each registered_apply(kernels::batch_norm_apply, kFloats, batch_norm_apply);
const Each registered_backward(kernels::batch_norm_backward, kFloats, batch_norm_backward);

}  // namespace
}  // namespace shardgrad::cpu
