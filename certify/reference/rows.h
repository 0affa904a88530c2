#pragma once
// Reference versions of softmax, normalisations and losses; contracts in kernels/ops.h.

#include <algorithm>
#include <vector>

#include <shardgrad/certify/reference/element.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::reference {

inline int64_t rows_of(const View& x) { return x.shape[-1] ? x.numel() / x.shape[-1] : 0; }

/// What shares a mean and a variance, or a sum of exponentials: a row's elements, those along a dimension, or a
/// channel's or a group's of (samples, channels, …).
struct Together {
  int64_t first, count, run, stride;  ///< runs of elements, whose beginnings are `stride` apart
  static Together row(const Shape& x, int64_t r) { return {r * x[-1], x[-1], x[-1], 0}; }
  static Together line(const Around& x, int64_t o, int64_t i) { return {x.at(o, 0, i), x.extent, 1, x.inner}; }
  static Together group(const Shape& x, int64_t groups, int64_t g) {
    int64_t count = x.numel() / (x[0] * groups);
    return {g * count, count, count, 0};
  }
  static Together channel(const Shape& x, int64_t c) {
    int64_t places = 1;
    for (int d = 2; d < x.ndim(); ++d) places *= x[d];
    return {c * places, x[0] * places, places, x[1] * places};
  }
  int64_t operator[](int64_t k) const { return first + k / run * stride + k % run; }
};

/// The largest element and Σ exp(x - largest).
struct ExpSum {
  double top = -INFINITY, sum = 0;
  ExpSum(const View& x, const Together& all) {
    for (int64_t k = 0; k < all.count; ++k) top = std::max(top, get(x, all[k]));
    for (int64_t k = 0; k < all.count; ++k) sum += std::exp(get(x, all[k]) - top);
  }
};

/// Calls each(elements) for all lines along dim.
template <class Each> void over_lines(const Shape& x, int dim, const Each& each) {
  Around lines(x, dim);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) each(Together::line(lines, o, i));
}

inline void softmax(OutView y, View x, int dim, bool log) {
  over_lines(x.shape, dim, [&](const Together& line) {
    ExpSum e(x, line);
    for (int64_t k = 0; k < line.count; ++k) {
      double shifted = get(x, line[k]) - e.top;
      put(y, line[k], log ? shifted - std::log(e.sum) : std::exp(shifted) / e.sum);
    }
  });
}

inline void softmax_backward(OutView dx, View dy, View y, int dim, bool log) {
  over_lines(y.shape, dim, [&](const Together& line) {
    double dot = 0;
    for (int64_t k = 0; k < line.count; ++k) dot += log ? get(dy, line[k]) : get(dy, line[k]) * get(y, line[k]);
    for (int64_t k = 0; k < line.count; ++k) {
      double g = get(dy, line[k]), v = get(y, line[k]);
      put(dx, line[k], log ? g - std::exp(v) * dot : v * (g - dot));
    }
  });
}

inline double get_or(const View& x, int64_t i, double otherwise) { return x.defined() ? get(x, i) : otherwise; }
inline void put_wanted(const OutView& y, int64_t i, double value) {
  if (y.defined()) put(y, i, value);
}

/// mean and 1 / sqrt(variance + eps).
struct Moments {
  double mean = 0, rstd = 0;
  Moments(const View& x, const Together& all, double eps) {
    double variance = 0, n = double(all.count);
    for (int64_t k = 0; k < all.count; ++k) mean += get(x, all[k]) / n;
    for (int64_t k = 0; k < all.count; ++k) variance += std::pow(get(x, all[k]) - mean, 2) / n;
    rstd = 1 / std::sqrt(variance + eps);
  }
};

inline void layer_norm(OutView y, OutView mean, OutView rstd, View x, View weight, View bias, double eps) {
  int64_t cols = x.shape[-1];
  for (int64_t r = 0; r < rows_of(x); ++r) {
    Moments m(x, Together::row(x.shape, r), eps);
    put_wanted(mean, r, m.mean);
    put_wanted(rstd, r, m.rstd);
    for (int64_t c = 0; c < cols; ++c)
      put(y, r * cols + c, (get(x, r * cols + c) - m.mean) * m.rstd * get_or(weight, c, 1) + get_or(bias, c, 0));
  }
}

/// dx = scale · rstd · (g - mean(g) - x̂ · mean(g · x̂)), g = dy · weight.
template <class WeightAt>
void normalize_backward(OutView dx, View dy, View x, double mean, double rstd, WeightAt weight, const Together& all,
                        double scale = 1) {
  double mean_g = 0, mean_dot = 0, n = double(all.count);
  auto normal = [&](int64_t i) { return (get(x, i) - mean) * rstd; };
  for (int64_t k = 0; k < all.count; ++k) {
    double g = get(dy, all[k]) * weight(all[k]);
    mean_g += g / n;
    mean_dot += g * normal(all[k]) / n;
  }
  for (int64_t k = 0; k < all.count; ++k) {
    int64_t i = all[k];
    put(dx, i, scale * rstd * (get(dy, i) * weight(i) - mean_g - normal(i) * mean_dot));
  }
}

inline void layer_norm_backward(OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight, View mean,
                                View rstd) {
  int64_t cols = x.shape[-1];
  for (int64_t c = 0; c < cols; ++c) {
    double weight_sum = 0, bias_sum = 0;
    for (int64_t r = 0; r < rows_of(x); ++r) {
      weight_sum += get(dy, r * cols + c) * (get(x, r * cols + c) - get(mean, r)) * get(rstd, r);
      bias_sum += get(dy, r * cols + c);
    }
    put_wanted(dweight, c, weight_sum);
    put_wanted(dbias, c, bias_sum);
  }
  auto weight_at = [&](int64_t i) { return get_or(weight, i % cols, 1); };
  for (int64_t r = 0; dx.defined() && r < rows_of(x); ++r)
    normalize_backward(dx, dy, x, get(mean, r), get(rstd, r), weight_at, Together::row(x.shape, r));
}

inline void rms_norm(OutView y, OutView rstd, View x, View weight, double eps) {
  int64_t cols = x.shape[-1];
  for (int64_t r = 0; r < rows_of(x); ++r) {
    double square = 0;
    for (int64_t c = 0; c < cols; ++c) square += std::pow(get(x, r * cols + c), 2) / double(cols);
    double scale = 1 / std::sqrt(square + eps);
    put_wanted(rstd, r, scale);
    for (int64_t c = 0; c < cols; ++c) put(y, r * cols + c, get(x, r * cols + c) * scale * get_or(weight, c, 1));
  }
}

inline void rms_norm_backward(OutView dx, OutView dweight, View dy, View x, View weight, View rstd) {
  int64_t cols = x.shape[-1];
  std::vector<double> sums(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows_of(x); ++r) {
    double scale = get(rstd, r), mean_dot = 0;
    auto normal = [&](int64_t c) { return get(x, r * cols + c) * scale; };
    auto g = [&](int64_t c) { return get(dy, r * cols + c) * get_or(weight, c, 1); };
    for (int64_t c = 0; c < cols; ++c) sums[size_t(c)] += get(dy, r * cols + c) * normal(c);
    for (int64_t c = 0; c < cols; ++c) mean_dot += g(c) * normal(c) / double(cols);
    for (int64_t c = 0; c < cols; ++c) put_wanted(dx, r * cols + c, scale * (g(c) - normal(c) * mean_dot));
  }
  for (int64_t c = 0; c < cols; ++c) put_wanted(dweight, c, sums[size_t(c)]);
}

/// Of element i of (samples, channels, …).
inline int64_t channel_of(const Shape& x, int64_t i) { return i / (x.numel() / (x[0] * x[1])) % x[1]; }

inline void normalize_channel(OutView y, View x, int64_t c, double mean, double rstd, View weight, View bias) {
  Together all = Together::channel(x.shape, c);
  for (int64_t k = 0; k < all.count; ++k)
    put(y, all[k], (get(x, all[k]) - mean) * rstd * get_or(weight, c, 1) + get_or(bias, c, 0));
}

inline void batch_norm_apply(OutView y, View x, View mean, View rstd, View weight, View bias) {
  for (int64_t c = 0; c < x.shape[1]; ++c) normalize_channel(y, x, c, get(mean, c), get(rstd, c), weight, bias);
}

inline void batch_norm(OutView y, OutView mean, OutView rstd, View x, View weight, View bias, double eps) {
  for (int64_t c = 0; c < x.shape[1]; ++c) {
    Moments m(x, Together::channel(x.shape, c), eps);
    put_wanted(mean, c, m.mean);
    put_wanted(rstd, c, m.rstd);
    normalize_channel(y, x, c, m.mean, m.rstd, weight, bias);
  }
}

inline void batch_norm_backward(OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight, View mean,
                                View rstd) {
  for (int64_t c = 0; c < x.shape[1]; ++c) {
    Together all = Together::channel(x.shape, c);
    double weight_sum = 0, bias_sum = 0;
    for (int64_t k = 0; k < all.count; ++k) {
      weight_sum += get(dy, all[k]) * (get(x, all[k]) - get(mean, c)) * get(rstd, c);
      bias_sum += get(dy, all[k]);
    }
    put_wanted(dweight, c, weight_sum);
    put_wanted(dbias, c, bias_sum);
    if (dx.defined())
      normalize_backward(
          dx, dy, x, get(mean, c), get(rstd, c), [](int64_t) { return 1; }, all, get_or(weight, c, 1));
  }
}

inline void group_norm(OutView y, OutView mean, OutView rstd, View x, View weight, View bias, int64_t groups,
                       double eps) {
  for (int64_t g = 0; x.numel() && g < x.shape[0] * groups; ++g) {
    Together all = Together::group(x.shape, groups, g);
    Moments m(x, all, eps);
    put_wanted(mean, g, m.mean);
    put_wanted(rstd, g, m.rstd);
    for (int64_t k = 0; k < all.count; ++k) {
      int64_t c = channel_of(x.shape, all[k]);
      put(y, all[k], (get(x, all[k]) - m.mean) * m.rstd * get_or(weight, c, 1) + get_or(bias, c, 0));
    }
  }
}

/// With the sums (Σ dy · x̂, Σ dy) of a sample's channels: dweight and dbias are theirs over the samples, and a group's
/// means those over its channels, each times its weight.
inline void group_norm_backward(OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight, View mean,
                                View rstd, int64_t groups) {
  int64_t channels = x.shape[1], rows = x.shape[0] * channels, each = channels / groups;
  int64_t places = x.numel() ? x.numel() / rows : 0;
  auto group_of = [&](int64_t row) { return row / each; };
  auto normal = [&](int64_t i) {
    int64_t g = group_of(i / places);
    return (get(x, i) - get(mean, g)) * get(rstd, g);
  };
  std::vector<double> dots(size_t(rows), 0.0), sums = dots, mean_dot(size_t(x.shape[0] * groups), 0.0),
                                               mean_g = mean_dot;
  for (int64_t i = 0; i < x.numel(); ++i) {
    dots[size_t(i / places)] += get(dy, i) * normal(i);
    sums[size_t(i / places)] += get(dy, i);
  }
  std::vector<double> dots_of(size_t(channels), 0.0), sums_of = dots_of;
  for (int64_t row = 0; row < rows; ++row) {
    double scale = get_or(weight, row % channels, 1) / double(each * places);
    mean_dot[size_t(group_of(row))] += scale * dots[size_t(row)],
        mean_g[size_t(group_of(row))] += scale * sums[size_t(row)];
    dots_of[size_t(row % channels)] += dots[size_t(row)], sums_of[size_t(row % channels)] += sums[size_t(row)];
  }
  for (int64_t c = 0; c < channels; ++c) {
    put_wanted(dweight, c, dots_of[size_t(c)]);
    put_wanted(dbias, c, sums_of[size_t(c)]);
  }
  for (int64_t i = 0; dx.defined() && i < x.numel(); ++i) {
    auto g = size_t(group_of(i / places));
    double own = get(dy, i) * get_or(weight, i / places % channels, 1);
    put(dx, i, get(rstd, int64_t(g)) * (own - mean_g[g] - normal(i) * mean_dot[g]));
  }
}

inline void square_sums(OutView y, View x) {
  int64_t cols = y.numel() ? x.numel() / y.numel() : 0;
  for (int64_t r = 0; r < y.numel(); ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += std::pow(get(x, r * cols + c), 2);
    put(y, r, sum);
  }
}

inline void mse(OutView loss, View x, View target, double scale) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += std::pow(get(x, i) - get(target, i), 2);
  put(loss, 0, scale * sum);
}

inline void mse_backward(OutView dx, View dloss, View x, View target, double scale) {
  for (int64_t i = 0; i < x.numel(); ++i) put(dx, i, get(dloss, 0) * scale * 2 * (get(x, i) - get(target, i)));
}

inline void huber_loss(OutView loss, View x, View target, double scale, double delta) {
  double sum = 0;
  auto term = [&](double d) { return std::min(d, delta) * (d - std::min(d, delta) / 2); };
  for (int64_t i = 0; i < x.numel(); ++i) sum += term(std::abs(get(x, i) - get(target, i)));
  put(loss, 0, scale * sum);
}

inline void huber_loss_backward(OutView dx, View dloss, View x, View target, double scale, double delta) {
  for (int64_t i = 0; i < x.numel(); ++i)
    put(dx, i, get(dloss, 0) * scale * std::clamp(get(x, i) - get(target, i), -delta, delta));
}

inline void cross_entropy(OutView loss, OutView lse, View logits, View labels, kernels::CrossEntropyArgs args) {
  double sum = 0;
  for (int64_t r = 0; r < labels.numel(); ++r) {
    Together row = Together::row(logits.shape, r);
    row.count = args.classes_of(row.count);
    ExpSum e(logits, row);
    put_wanted(lse, 2 * r, e.top);
    put_wanted(lse, 2 * r + 1, std::log(e.sum));
    int64_t label = get_integer(labels, r);
    if (label != args.ignore_index) sum += std::log(e.sum) + e.top - get(logits, r * logits.shape[-1] + label);
  }
  put(loss, 0, args.scale * sum);
}

inline void cross_entropy_backward(OutView dx, View dloss, View logits, View lse, View labels,
                                   kernels::CrossEntropyArgs args) {
  int64_t cols = logits.shape[-1];
  for (int64_t i = 0; i < logits.numel(); ++i) {
    int64_t label = get_integer(labels, i / cols);
    double slope =
        std::exp(get(logits, i) - get(lse, i / cols * 2) - get(lse, i / cols * 2 + 1)) - (label == i % cols ? 1 : 0);
    bool counts = label != args.ignore_index && i % cols < args.classes_of(cols);
    put(dx, i, counts ? get(dloss, 0) * args.scale * slope : 0);
  }
}

}  // namespace shardgrad::reference
