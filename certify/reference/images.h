#pragma once
// Reference versions of convolutions and pooling; contracts in kernels/ops.h.

#include <cmath>
#include <vector>

#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/certify/reference/rows.h>

namespace shardgrad::reference {

/// For one channel of one sample, calls visit(element of y, element of x or -1 where it is padded, place in the window)
/// for each pair that meets.
template <class Visit>
void for_each_in_windows(const Shape& x, const Shape& y, int64_t x_channel, int64_t y_channel, int64_t sample,
                         const Window& down, const Window& across, const Visit& visit) {
  int64_t y0 = (sample * y[1] + y_channel) * y[2] * y[3], x0 = (sample * x[1] + x_channel) * x[2] * x[3];
  for (int64_t r = 0; r < y[2]; ++r)
    for (int64_t c = 0; c < y[3]; ++c)
      for (int64_t i = 0; i < down.kernel; ++i)
        for (int64_t j = 0; j < across.kernel; ++j) {
          int64_t row = r * down.stride + i * down.dilation - down.padding;
          int64_t col = c * across.stride + j * across.dilation - across.padding;
          bool inside = row >= 0 && row < x[2] && col >= 0 && col < x[3];
          visit(y0 + r * y[3] + c, inside ? x0 + row * x[3] + col : -1, i * across.kernel + j);
        }
}

/// Calls visit(element of y, element of x or -1 where it is padded, element of w) for each product of a convolution.
template <class Visit>
void for_each_product(const Shape& x, const Shape& w, const Shape& y, const kernels::ConvArgs& args,
                      const Visit& visit) {
  int64_t outs = w[0] / args.groups, window = args.down.kernel * args.across.kernel;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t o = 0; o < w[0]; ++o)
      for (int64_t c = 0; c < w[1]; ++c)
        for_each_in_windows(
            x, y, o / outs * w[1] + c, o, n, args.down, args.across,
            [&](int64_t to, int64_t from, int64_t place) { visit(to, from, (o * w[1] + c) * window + place); });
}

inline double number_or_zero(const std::vector<double>& numbers, int64_t i) { return i < 0 ? 0 : numbers[size_t(i)]; }

inline void put_all(const OutView& y, const std::vector<double>& sums) {
  for (int64_t i = 0; i < y.numel(); ++i) put(y, i, sums[size_t(i)]);
}

inline void conv2d(OutView y, View x, View w, View bias, kernels::ConvArgs args) {
  std::vector<double> in = numbers_of(x), weight = numbers_of(w), sums(size_t(y.numel()));
  for_each_product(x.shape, w.shape, y.shape, args, [&](int64_t to, int64_t from, int64_t by) {
    sums[size_t(to)] += number_or_zero(in, from) * weight[size_t(by)];
  });
  int64_t places = y.shape[2] * y.shape[3];
  for (int64_t i = 0; i < y.numel(); ++i) sums[size_t(i)] += get_or(bias, i / places % y.shape[1], 0);
  put_all(y, sums);
}

/// The place whose window has this padded position `element` elements from its beginning: false where none could, with
/// however many places.
inline bool meets(const Window& window, int64_t position, int64_t element, int64_t& place) {
  int64_t begin = position + window.padding - element * window.dilation;
  place = begin / window.stride;
  return begin % window.stride == 0;
}

inline void conv2d_backward_input(OutView dx, View dy, View w, kernels::ConvArgs args) {
  std::vector<double> grad = numbers_of(dy), weight = numbers_of(w);
  int64_t in = w.shape[1], outs = w.shape[0] / args.groups, height = dx.shape[2], width = dx.shape[3];
  for (int64_t e = 0; e < dx.numel(); ++e) {
    int64_t channel = e / (height * width) % dx.shape[1], sample = e / (height * width) / dx.shape[1], r, c;
    double sum = 0;
    for (int64_t o = channel / in * outs; o < (channel / in + 1) * outs; ++o)
      for (int64_t i = 0; i < args.down.kernel; ++i)
        for (int64_t j = 0; j < args.across.kernel; ++j) {
          if (!meets(args.down, e / width % height, i, r) || !meets(args.across, e % width, j, c)) continue;
          bool there = r >= 0 && r < dy.shape[2] && c >= 0 && c < dy.shape[3];
          int64_t from = ((sample * dy.shape[1] + o) * dy.shape[2] + r) * dy.shape[3] + c;
          int64_t by = ((o * in + channel % in) * args.down.kernel + i) * args.across.kernel + j;
          sum += number_or_zero(grad, there ? from : -1) * weight[size_t(by)];
        }
    put(dx, e, sum);
  }
}

inline void conv2d_backward_weight(OutView dw, OutView dbias, View dy, View x, kernels::ConvArgs args) {
  std::vector<double> grad = numbers_of(dy), in = numbers_of(x);
  if (dw.defined()) {
    std::vector<double> sums(size_t(dw.numel()));
    for_each_product(x.shape, dw.shape, dy.shape, args, [&](int64_t to, int64_t from, int64_t by) {
      sums[size_t(by)] += grad[size_t(to)] * number_or_zero(in, from);
    });
    put_all(dw, sums);
  }
  if (!dbias.defined()) return;
  std::vector<double> sums(size_t(dbias.numel()));
  for (int64_t i = 0; i < dy.numel(); ++i) sums[size_t(i / (dy.shape[2] * dy.shape[3]) % dy.shape[1])] += get(dy, i);
  put_all(dbias, sums);
}

/// As for_each_in_windows, for every sample and channel.
template <class Visit>
void for_each_pooled(const Shape& x, const Shape& y, const kernels::PoolArgs& args, const Visit& visit) {
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t c = 0; c < x[1]; ++c) for_each_in_windows(x, y, c, c, n, args.down, args.across, visit);
}

inline void max_pool2d(OutView y, OutView index, View x, kernels::PoolArgs args) {
  std::vector<double> best(size_t(y.numel()));
  std::vector<int64_t> at(size_t(y.numel()), -1);
  for_each_pooled(x.shape, y.shape, args, [&](int64_t to, int64_t from, int64_t) {
    if (from < 0) return;
    double value = get(x, from), &top = best[size_t(to)];
    bool larger = value > top || (std::isnan(value) && !std::isnan(top));
    if (larger || at[size_t(to)] < 0) top = value, at[size_t(to)] = from % (x.shape[2] * x.shape[3]);
  });
  put_all(y, best);
  for (int64_t i = 0; index.defined() && i < index.numel(); ++i) put_integer(index, i, at[size_t(i)]);
}

inline void max_pool2d_backward(OutView dx, View dy, View index, kernels::PoolArgs) {
  std::vector<double> sums(size_t(dx.numel()));
  int64_t image = dx.shape[2] * dx.shape[3], places = dy.shape[2] * dy.shape[3];
  for (int64_t i = 0; i < dy.numel(); ++i) sums[size_t(i / places * image + get_integer(index, i))] += get(dy, i);
  put_all(dx, sums);
}

/// Calls visit(element of y, element of x, share of it in the mean).
template <class Visit>
void for_each_share(const Shape& x, const Shape& y, const kernels::PoolArgs& args, const Visit& visit) {
  auto share = [&](const Window& w, int64_t place, int64_t places, int64_t extent, int64_t i) {
    if (args.parts) {
      int64_t first = place * extent / places, last = ((place + 1) * extent + places - 1) / places;
      return i >= first && i < last ? 1 / double(last - first) : 0;
    }
    int64_t seen = 0, counted = 0;
    for (int64_t j = 0, at = place * w.stride - w.padding; j < w.kernel; ++j, ++at) {
      seen += at == i;
      bool inside = at >= 0 && at < extent, pad = at >= -w.padding && at < extent + w.padding;
      counted += inside || (pad && args.padding_counts);
    }
    return seen ? 1 / double(counted) : 0;
  };
  for (int64_t to = 0; to < y.numel(); ++to)
    for (int64_t r = 0; r < x[2]; ++r) {
      double down = share(args.down, to / y[3] % y[2], y[2], x[2], r);
      for (int64_t c = 0; c < x[3] && down != 0; ++c)
        if (double across = share(args.across, to % y[3], y[3], x[3], c); across != 0)
          visit(to, (to / (y[2] * y[3]) * x[2] + r) * x[3] + c, down * across);
    }
}

inline void avg_pool2d(OutView y, View x, kernels::PoolArgs args) {
  std::vector<double> sums(size_t(y.numel()));
  for_each_share(x.shape, y.shape, args,
                 [&](int64_t to, int64_t from, double share) { sums[size_t(to)] += share * get(x, from); });
  put_all(y, sums);
}

inline void avg_pool2d_backward(OutView dx, View dy, kernels::PoolArgs args) {
  std::vector<double> sums(size_t(dx.numel()));
  for_each_share(dx.shape, dy.shape, args,
                 [&](int64_t to, int64_t from, double share) { sums[size_t(from)] += share * get(dy, to); });
  put_all(dx, sums);
}

}  // namespace shardgrad::reference
