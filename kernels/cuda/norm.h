#pragma once
// What the normalisations share.

#include <shardgrad/kernels/cuda/sums.h>

namespace shardgrad::SG_DEVICE {
namespace {

struct Matrix {
  int64_t rows, cols;
  explicit Matrix(const View& x) : rows(x.shape[-1] ? x.numel() / x.shape[-1] : 0), cols(x.shape[-1]) {}
};

/// A result that somebody may want.
template <class T> struct Wanted {
  T* to = nullptr;
  bool accumulate = false;
  Wanted() = default;
  explicit Wanted(const OutView& view) : to(view.as<T>()), accumulate(view.beta != 0) {}
  __device__ void operator()(int64_t i, Compute<T> value) const {
    if (to) store(to + i, value, accumulate);
  }
};

template <class T> __device__ Compute<T> load_or(const T* from, int64_t i, Compute<T> otherwise) {
  return from ? load(from + i) : otherwise;
}

/// What element i adds to the sum, and to that of the squares of its distances from the mean number s.
template <class T> struct Value {
  const T* x;
  __device__ void add(int64_t i, int64_t, double* sums) const { sums[0] += double(load(x + i)); }
};
template <class T> struct Square {
  const T* x;
  const Compute<T>* mean;
  __device__ void add(int64_t i, int64_t s, double* sums) const {
    double d = double(load(x + i)) - double(load(mean + s));
    sums[0] += d * d;
  }
};
/// Keeps a statistic for the kernels that follow, and gives it to whoever wants it.
template <class S> struct KeepMean {
  S* kept;
  Wanted<S> wanted;
  double over;
  __device__ void operator()(int64_t s, const double* sums) const {
    kept[s] = S(sums[0] * over);
    wanted(s, S(sums[0] * over));
  }
};
template <class S> struct KeepRstd {
  S* kept;
  Wanted<S> wanted;
  double over, eps;
  __device__ void operator()(int64_t s, const double* sums) const {
    kept[s] = S(1 / std::sqrt(sums[0] * over + eps));
    wanted(s, S(1 / std::sqrt(sums[0] * over + eps)));
  }
};

/// What element i, which has the statistics s, adds to Σ dy · x̂ and Σ dy; there may be no means.
template <class T, class S = Compute<T>> struct WeightTerm {
  const T *dy, *x;
  const S *mean, *rstd;
  __device__ void add(int64_t i, int64_t s, double* sums) const {
    S g = load(dy + i), normal = (load(x + i) - load_or(mean, s, S(0))) * load(rstd + s);
    sums[0] += double(g) * double(normal);
    sums[1] += double(g);
  }
};
template <class T> struct WeightFinish {
  Wanted<T> dweight, dbias;
  double* sums_out;  // for batch_norm's dx
  __device__ void operator()(int64_t col, const double* sums) const {
    dweight(col, Compute<T>(sums[0]));
    dbias(col, Compute<T>(sums[1]));
    if (sums_out) sums_out[2 * col] = sums[0], sums_out[2 * col + 1] = sums[1];
  }
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
