#pragma once
// What layer_norm and rms_norm of rows share with the same of sums.

#include <shardgrad/kernels/cuda/norm.h>
#include <shardgrad/kernels/cuda/rows.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// How rows lie, and what is done to them.
template <class T> struct NormRows {
  int64_t rows;
  int cols;
  double eps;
  bool centered, packed;
  const T *weight, *bias;

  /// Weight or bias, or what stands for one that is not there.
  __device__ RowPack<T> part_of(const T* from, int first, float otherwise) const {
    if (from) return load_part(from, first, cols, packed);
    typename RowPack<T>::Elements same;
    SG_UNROLL
    for (T& element : same.at) element = convert<T>(otherwise);
    return RowPack<T>(same);
  }
};

template <class S> __device__ S rstd_of(S squares, int64_t cols, double eps) {
  return S(1 / std::sqrt(double(squares) / double(cols) + eps));
}

/// Normalises a row, of which each of the threads that have it keeps its packs: 0 beyond the row.
template <class Threads, class T, int packs, class S = Compute<T>>
__device__ void normalize(int64_t row, const RowPack<T> (&part)[packs], const NormRows<T>& r, const Wanted<T>& y,
                          const Wanted<S>& mean, const Wanted<S>& rstd) {
  auto first = [](int k) { return Threads::template first<T>(k); };
  S center = 0, squares = 0;
  if (r.centered) {
    S sum = 0;
    SG_UNROLL
    for (int k = 0; k < packs; ++k)
      for (T element : part[k].elements().at) sum += convert<S>(element);
    center = Threads::template reduce<Sum>(sum) / S(r.cols);
  }
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e) {
      S d = first(k) + e < r.cols ? convert<S>(part[k][e]) - center : S(0);
      squares += d * d;
    }
  }
  S scale = rstd_of(Threads::template reduce<Sum>(squares), r.cols, r.eps);
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    RowPack<T> weight = r.part_of(r.weight, first(k), 1), bias = r.part_of(r.bias, first(k), 0);
    store_part(y.to + row * r.cols, first(k), r.cols, r.packed, y.accumulate, [&](int e) {
      return (convert<S>(part[k][e]) - center) * scale * convert<S>(weight[e]) + convert<S>(bias[e]);
    });
  }
  if (threadIdx.x > 0) return;
  mean(row, center);
  rstd(row, scale);
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
