// group_norm: x̂ = (x - mean) · rstd, with one mean and rstd per sample and group of neighbouring channels.
//
// group_norm           reads x three times, writes y once.  group_norm_backward  reads dy and x twice, writes dx.
// About 8 operations per element.

#include <shardgrad/kernels/cuda/norm.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// x (samples, channels, places), in whose rows of `places` or of a group's elements sums are taken.
struct Groups {
  int64_t samples, channels, each, places = 1;  ///< each: channels of a group
  Groups(const View& x, int64_t groups) : samples(x.shape[0]), channels(x.shape[1]), each(channels / groups) {
    for (int d = 2; d < x.shape.ndim(); ++d) places *= x.shape[d];
  }
  int64_t rows() const { return samples * channels; }  ///< of places
  int64_t count() const { return each > 0 ? rows() / each : 0; }
  __device__ int64_t group_of(int64_t i) const { return i / (each * places); }
  __device__ int64_t channel_of(int64_t i) const { return i / places % channels; }
};

/// What an element adds, as the terms of sums.h, to the sum of its row of `cols` elements.
template <class Term> struct InRows {
  Term term;
  Groups m;
  int64_t cols;
  __device__ void operator()(int64_t row, int64_t i, int64_t, double* sums) const {
    term.add(row * cols + i, m.group_of(row * cols + i), sums);
  }
};
template <int count, class Term, class Finish>
void sum_groups(const Launch& how, const Groups& m, Term term, Finish finish) {
  int64_t cols = m.each * m.places;
  sum_rows<double, count>(how, InRows<Term>{term, m, cols}, finish, m.count(), cols);
}

template <class T, class S = Compute<T>>
__global__ void normalize_groups_kernel(Wanted<T> y, const T* x, const S* mean, const S* rstd, const T* weight,
                                        const T* bias, int64_t n, Groups m) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t c = m.channel_of(i), g = m.group_of(i);
  y(i, (load(x + i) - load(mean + g)) * load(rstd + g) * load_or(weight, c, S(1)) + load_or(bias, c, S(0)));
}

void group_norm(const Launch& how, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                int64_t groups, double eps) {
  Groups m(x, groups);
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch scratch(how, size_t(2 * m.count()) * sizeof(S));
    S *means = scratch.as<S>(), *rstds = means + m.count();
    double over = 1.0 / double(m.each * m.places);
    sum_groups<1>(how, m, Value<T>{x.as<T>()}, KeepMean<S>{means, Wanted<S>(mean), over});
    sum_groups<1>(how, m, Square<T>{x.as<T>(), means}, KeepRstd<S>{rstds, Wanted<S>(rstd), over, eps});
    launch<normalize_groups_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, Wanted<T>(y), x.as<T>(), means, rstds,
                                       weight.as<T>(), bias.as<T>(), x.numel(), m);
  });
}

/// The sums of a group's channels, weighted, of those (dweight, dbias) of each sample's channels.
template <class T> struct OfChannels {
  const double* from;
  const T* weight;
  Groups m;
  __device__ void operator()(int64_t group, int64_t k, int64_t, double* sums) const {
    int64_t row = group * m.each + k;
    double scale = double(load_or(weight, row % m.channels, Compute<T>(1)));
    for (int j = 0; j < 2; ++j) sums[j] += scale * from[2 * row + j];
  }
};

// dx = rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = dy · weight and means over the group, whose sums are (g · x̂, g)
template <class T, class S = Compute<T>>
__global__ void group_norm_backward_kernel(Wanted<T> dx, const T* dy, const T* x, const T* weight, const S* mean,
                                           const S* rstd, const double* sums, int64_t n, Groups m, double over) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t c = m.channel_of(i), g = m.group_of(i);
  S scale = load(rstd + g), normal = (load(x + i) - load(mean + g)) * scale;
  S weighted = load(dy + i) * load_or(weight, c, S(1));
  dx(i, scale * (weighted - S(sums[2 * g + 1] * over) - normal * S(sums[2 * g] * over)));
}

void group_norm_backward(const Launch& how, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd, int64_t groups) {
  Groups m(x, groups);
  if (m.channels == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch scratch(how, size_t(2 * (m.rows() + m.count())) * sizeof(double));
    double *of_rows = scratch.as<double>(), *of_groups = of_rows + 2 * m.rows();
    WeightTerm<T> term{dy.as<T>(), x.as<T>(), mean.as<S>(), rstd.as<S>()};
    sum_rows<double, 2>(how, InRows<WeightTerm<T>>{term, m, m.places}, Keep<double, 2>{of_rows}, m.rows(), m.places);
    if (dweight.defined() || dbias.defined())
      sum_columns<double, 2>(how, Partials<double, 2>{of_rows, m.samples, m.channels},
                             WeightFinish<T>{Wanted<T>(dweight), Wanted<T>(dbias), nullptr}, 1, m.samples, m.channels);
    if (!dx.defined() || x.numel() == 0) return;
    sum_rows<double, 2>(how, OfChannels<T>{of_rows, weight.as<T>(), m}, Keep<double, 2>{of_groups}, m.count(), m.each);
    launch<group_norm_backward_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, Wanted<T>(dx), dy.as<T>(), x.as<T>(),
                                          weight.as<T>(), mean.as<S>(), rstd.as<S>(), of_groups, x.numel(), m,
                                          1.0 / double(m.each * m.places));
  });
}

const Registered registered[] = {
    add_kernel<group_norm>(kernels::group_norm, kFloats),
    add_kernel<group_norm_backward>(kernels::group_norm_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
