// group_norm: one part of a sample's channels after the other, which stays in the cache meanwhile.

#include <cmath>
#include <vector>

#include <shardgrad/kernels/cpu/norm.h>

namespace shardgrad::cpu {
namespace {

// x (samples, channels, places), of whose channels each group has `each` that lie side by side.
struct Groups {
  int64_t count, channels, each, places;  // of groups in all samples; channels in all, and of a group
  int type;
  int64_t element;

  Groups(const View& x, int64_t groups)
      : count(x.shape[0] * groups),
        channels(x.shape[1]),
        each(channels / groups),
        places(1),
        type(int(x.dtype)),
        element(int64_t(size_of(x.dtype))) {
    for (int d = 2; d < x.shape.ndim(); ++d) places *= x.shape[d];
  }
  double elements() const { return double(each * places); }

  // Calls visit(bytes from the beginning, run) for parts of n neighbours from element `first` on.
  template <class Visit> void over_parts(int64_t first, int64_t n, const Visit& visit) const {
    for (int64_t i = 0; i < n; i += kTogether) visit((first + i) * element, Runs{1, std::min(kTogether, n - i), 0});
  }
  // Calls visit(channel, its number among those of all samples) for the channels of a group.
  template <class Visit> void over_channels(int64_t group, const Visit& visit) const {
    for (int64_t i = group * each; i < (group + 1) * each; ++i) visit(i % channels, i);
  }
  template <class Visit> void over_groups(const Launch& launch, const Visit& visit) const {
    parallel_for(launch.threads, count, grain_for(4 * each * places), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) visit(group);
    });
  }
};

// Of each channel, read once for all samples.
std::vector<double> numbers_of(View x, int64_t channels, double otherwise) {
  std::vector<double> numbers;
  for (int64_t c = 0; c < channels; ++c) numbers.push_back(number_at(x, c, otherwise));
  return numbers;
}

void group_norm(const Launch& launch, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                int64_t groups, double eps) {
  Groups m(x, groups);
  if (x.numel() == 0) return;
  auto& loop = loops().channels;
  const char* from = x.as<char>();
  std::vector<double> weights = numbers_of(weight, m.channels, 1), biases = numbers_of(bias, m.channels, 0);
  m.over_groups(launch, [&](int64_t group) {
    double sum = 0, squares = 0;
    int64_t first = group * m.each * m.places, n = m.each * m.places;
    m.over_parts(first, n, [&](int64_t at, const Runs& run) { sum += loop.sum[m.type](from + at, run); });
    double center = as_statistic(sum / m.elements(), x.dtype);
    m.over_parts(first, n,
                 [&](int64_t at, const Runs& run) { squares += loop.squares[m.type](from + at, run, center); });
    double scale = as_statistic(1 / std::sqrt(squares / m.elements() + eps), x.dtype);
    put_number(mean, group, center);
    put_number(rstd, group, scale);
    m.over_channels(group, [&](int64_t c, int64_t i) {
      int64_t at = i * m.places * m.element;
      ChannelNorm norm{center, scale, weights[size_t(c)], biases[size_t(c)]};
      loop.normalize[m.type](y.as<char>() + at, from + at, {1, m.places, 0}, norm, y.beta != 0);
    });
  });
}

// The sums of each sample's channels: Σ dy · x̂, then Σ dy, at twice the channel's number; and dx from those of a group.
void backward_of_group(const Groups& m, int64_t group, double* sums, OutView dx, View dy, View x,
                       const std::vector<double>& weights, ChannelNorm norm) {
  auto& loop = loops().channels;
  double along = 0, turned = 0;
  m.over_channels(group, [&](int64_t c, int64_t i) {
    double own[2] = {}, weight = weights[size_t(c)];
    m.over_parts(i * m.places, m.places, [&](int64_t at, const Runs& run) {
      loop.products[m.type](own, dy.as<char>() + at, x.as<char>() + at, run, norm);
    });
    turned += weight * (sums[2 * i] = own[0]);
    along += weight * (sums[2 * i + 1] = own[1]);
  });
  if (!dx.defined()) return;
  m.over_channels(group, [&](int64_t c, int64_t i) {
    int64_t at = i * m.places * m.element;
    norm.weight = weights[size_t(c)];
    loop.group_backward[m.type](dx.as<char>() + at, dy.as<char>() + at, x.as<char>() + at, {1, m.places, 0}, norm,
                                along / m.elements(), turned / m.elements(), dx.beta != 0);
  });
}

void group_norm_backward(const Launch& launch, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd, int64_t groups) {
  Groups m(x, groups);
  int64_t samples = x.shape[0];
  Workspace room(kCpu, size_t(2 * samples * m.channels) * sizeof(double));
  double* sums = room.as<double>();
  std::vector<double> weights = numbers_of(weight, m.channels, 1);
  m.over_groups(launch, [&](int64_t group) {
    ChannelNorm norm{number_at(mean, group, 0), number_at(rstd, group, 1)};
    backward_of_group(m, group, sums, dx, dy, x, weights, norm);
  });
  if (!dweight.defined() && !dbias.defined()) return;
  parallel_for(launch.threads, m.channels, grain_for(2 * samples), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double total[2] = {};
      for (int64_t n = 0; n < samples; ++n)
        for (int k = 0; k < 2; ++k) total[k] += sums[2 * (n * m.channels + c) + k];
      put_number(dweight, c, total[0]);
      put_number(dbias, c, total[1]);
    }
  });
}

const Each registered_group_norm(kernels::group_norm, kFloats, group_norm);
const Each registered_backward(kernels::group_norm_backward, kFloats, group_norm_backward);

}  // namespace
}  // namespace shardgrad::cpu
