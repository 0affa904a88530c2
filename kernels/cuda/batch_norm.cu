// batch_norm: x̂ = (x - mean) · rstd, with one mean and rstd per column.
//
// batch_norm           reads x three times, writes y once.  batch_norm_backward  reads dy and x twice, writes dx.
// batch_norm_apply     reads x once, writes y; 4 operations per element, the others about 8.

#include <shardgrad/kernels/cuda/norm.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class T> struct Value {
  const T* x;
  int64_t cols;
  __device__ void operator()(int64_t, int64_t row, int64_t col, double* sums) const {
    sums[0] += double(load(x + row * cols + col));
  }
};
template <class T> struct Square {
  const T* x;
  const Compute<T>* mean;
  int64_t cols;
  __device__ void operator()(int64_t, int64_t row, int64_t col, double* sums) const {
    double d = double(load(x + row * cols + col)) - double(load(mean + col));
    sums[0] += d * d;
  }
};
/// Keeps a statistic for the kernels that follow, and gives it to whoever wants it.
template <class S> struct KeepMean {
  S* kept;
  Wanted<S> wanted;
  double over;
  __device__ void operator()(int64_t col, const double* sums) const {
    kept[col] = S(sums[0] * over);
    wanted(col, S(sums[0] * over));
  }
};
template <class S> struct KeepRstd {
  S* kept;
  Wanted<S> wanted;
  double over, eps;
  __device__ void operator()(int64_t col, const double* sums) const {
    kept[col] = S(1 / std::sqrt(sums[0] * over + eps));
    wanted(col, S(1 / std::sqrt(sums[0] * over + eps)));
  }
};

template <class T, class S = Compute<T>>
__global__ void normalize_columns_kernel(Wanted<T> y, const T* x, const S* mean, const S* rstd, const T* weight,
                                         const T* bias, int64_t n, int64_t cols) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t c = i % cols;
  y(i, (load(x + i) - load(mean + c)) * load(rstd + c) * load_or(weight, c, S(1)) + load_or(bias, c, S(0)));
}

template <class T>
void normalize_columns(const Launch& how, OutView y, View x, const Compute<T>* mean, const Compute<T>* rstd,
                       View weight, View bias) {
  launch<normalize_columns_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, Wanted<T>(y), x.as<T>(), mean, rstd,
                                      weight.as<T>(), bias.as<T>(), x.numel(), Matrix(x).cols);
}

void batch_norm(const Launch& how, OutView y, OutView mean, OutView rstd, View x, View weight, View bias, double eps) {
  Matrix m(x);
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch scratch(how, size_t(2 * m.cols) * sizeof(S));
    S *means = scratch.as<S>(), *rstds = means + m.cols;
    double over = 1.0 / double(m.rows);
    sum_columns<double, 1>(how, Value<T>{x.as<T>(), m.cols}, KeepMean<S>{means, Wanted<S>(mean), over}, 1, m.rows,
                           m.cols);
    sum_columns<double, 1>(how, Square<T>{x.as<T>(), means, m.cols}, KeepRstd<S>{rstds, Wanted<S>(rstd), over, eps}, 1,
                           m.rows, m.cols);
    normalize_columns<T>(how, y, x, means, rstds, weight, bias);
  });
}

void batch_norm_apply(const Launch& how, OutView y, View x, View mean, View rstd, View weight, View bias) {
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    normalize_columns<T>(how, y, x, mean.as<S>(), rstd.as<S>(), weight, bias);
  });
}

// dx = weight · rstd · (dy - dbias / samples - x̂ · dweight / samples); sums are (dweight, dbias) per column
template <class T, class S = Compute<T>>
__global__ void batch_norm_backward_kernel(Wanted<T> dx, const T* dy, const T* x, const T* weight, const S* mean,
                                           const S* rstd, const double* sums, int64_t n, int64_t cols, double over) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t c = i % cols;
  S scale = load(rstd + c), normal = (load(x + i) - load(mean + c)) * scale;
  S centered = load(dy + i) - S(sums[2 * c + 1] * over) - normal * S(sums[2 * c] * over);
  dx(i, load_or(weight, c, S(1)) * scale * centered);
}

void batch_norm_backward(const Launch& how, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd) {
  Matrix m(x);
  if (m.cols == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch sums(how, size_t(2 * m.cols) * sizeof(double));
    sum_columns<double, 2>(how, WeightTerm<T>{dy.as<T>(), x.as<T>(), mean.as<S>(), rstd.as<S>(), m.cols, false},
                           WeightFinish<T>{Wanted<T>(dweight), Wanted<T>(dbias), sums.as<double>()}, 1, m.rows, m.cols);
    if (!dx.defined() || m.rows == 0) return;
    launch<batch_norm_backward_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, Wanted<T>(dx), dy.as<T>(), x.as<T>(),
                                          weight.as<T>(), mean.as<S>(), rstd.as<S>(), sums.as<double>(), x.numel(),
                                          m.cols, 1.0 / double(m.rows));
  });
}

const Registered registered[] = {
    add_kernel<batch_norm>(kernels::batch_norm, kFloats),
    add_kernel<batch_norm_apply>(kernels::batch_norm_apply, kFloats),
    add_kernel<batch_norm_backward>(kernels::batch_norm_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
