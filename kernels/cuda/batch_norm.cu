// batch_norm: x̂ = (x - mean) · rstd, with one mean and rstd per channel.
//
// batch_norm           reads x three times, writes y once.  batch_norm_backward  reads dy and x twice, writes dx.
// batch_norm_apply     reads x once, writes y; 4 operations per element, the others about 8.

#include <shardgrad/kernels/cuda/norm.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// x (samples, channels, places).
struct Channels {
  int64_t samples, channels, places = 1;
  explicit Channels(const View& x) : samples(x.shape[0]), channels(x.shape[1]) {
    for (int d = 2; d < x.shape.ndim(); ++d) places *= x.shape[d];
  }
  int64_t count() const { return samples * places; }
  __device__ int64_t channel_of(int64_t i) const { return places == 1 ? i % channels : i / places % channels; }
};

/// What an element adds, as the terms of sums.h: of a column of (samples, channels), or of a channel's runs.
template <class Term> struct InColumns {
  Term term;
  int64_t channels;
  __device__ void operator()(int64_t, int64_t sample, int64_t channel, double* sums) const {
    term.add(sample * channels + channel, channel, sums);
  }
};
template <class Term> struct InRuns {
  Term term;
  int64_t channels, places;
  __device__ void operator()(int64_t channel, int64_t i, int64_t, double* sums) const {
    term.add((i / places * channels + channel) * places + i % places, channel, sums);
  }
};
template <int count, class Term, class Finish>
void sum_channels(const Launch& how, const Channels& m, Term term, Finish finish) {
  if (m.places == 1)
    sum_columns<double, count>(how, InColumns<Term>{term, m.channels}, finish, 1, m.samples, m.channels);
  else
    sum_rows<double, count>(how, InRuns<Term>{term, m.channels, m.places}, finish, m.channels, m.count());
}

template <class T, class S = Compute<T>>
__global__ void normalize_channels_kernel(Wanted<T> y, const T* x, const S* mean, const S* rstd, const T* weight,
                                          const T* bias, int64_t n, Channels m) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t c = m.channel_of(i);
  y(i, (load(x + i) - load(mean + c)) * load(rstd + c) * load_or(weight, c, S(1)) + load_or(bias, c, S(0)));
}

template <class T>
void normalize_channels(const Launch& how, OutView y, View x, const Compute<T>* mean, const Compute<T>* rstd,
                        View weight, View bias) {
  launch<normalize_channels_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, Wanted<T>(y), x.as<T>(), mean, rstd,
                                       weight.as<T>(), bias.as<T>(), x.numel(), Channels(x));
}

void batch_norm(const Launch& how, OutView y, OutView mean, OutView rstd, View x, View weight, View bias, double eps) {
  Channels m(x);
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch scratch(how, size_t(2 * m.channels) * sizeof(S));
    S *means = scratch.as<S>(), *rstds = means + m.channels;
    double over = 1.0 / double(m.count());
    sum_channels<1>(how, m, Value<T>{x.as<T>()}, KeepMean<S>{means, Wanted<S>(mean), over});
    sum_channels<1>(how, m, Square<T>{x.as<T>(), means}, KeepRstd<S>{rstds, Wanted<S>(rstd), over, eps});
    normalize_channels<T>(how, y, x, means, rstds, weight, bias);
  });
}

void batch_norm_apply(const Launch& how, OutView y, View x, View mean, View rstd, View weight, View bias) {
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    normalize_channels<T>(how, y, x, mean.as<S>(), rstd.as<S>(), weight, bias);
  });
}

// dx = weight · rstd · (dy - dbias / samples - x̂ · dweight / samples); sums are (dweight, dbias) per channel
template <class T, class S = Compute<T>>
__global__ void batch_norm_backward_kernel(Wanted<T> dx, const T* dy, const T* x, const T* weight, const S* mean,
                                           const S* rstd, const double* sums, int64_t n, Channels m, double over) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t c = m.channel_of(i);
  S scale = load(rstd + c), normal = (load(x + i) - load(mean + c)) * scale;
  S centered = load(dy + i) - S(sums[2 * c + 1] * over) - normal * S(sums[2 * c] * over);
  dx(i, load_or(weight, c, S(1)) * scale * centered);
}

void batch_norm_backward(const Launch& how, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd) {
  Channels m(x);
  if (m.channels == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch sums(how, size_t(2 * m.channels) * sizeof(double));
    sum_channels<2>(how, m, WeightTerm<T>{dy.as<T>(), x.as<T>(), mean.as<S>(), rstd.as<S>()},
                    WeightFinish<T>{Wanted<T>(dweight), Wanted<T>(dbias), sums.as<double>()});
    if (!dx.defined() || x.numel() == 0) return;
    launch<batch_norm_backward_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, Wanted<T>(dx), dy.as<T>(), x.as<T>(),
                                          weight.as<T>(), mean.as<S>(), rstd.as<S>(), sums.as<double>(), x.numel(), m,
                                          1.0 / double(m.count()));
  });
}

const Registered registered[] = {
    add_kernel<batch_norm>(kernels::batch_norm, kFloats),
    add_kernel<batch_norm_apply>(kernels::batch_norm_apply, kFloats),
    add_kernel<batch_norm_backward>(kernels::batch_norm_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
