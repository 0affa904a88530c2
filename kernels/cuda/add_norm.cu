// add_layer_norm and add_rms_norm: sum = x + residual, and norm.cu's result of it, with the bits of the two kernels one
// after the other. rows.h says which threads have a row.
//
// Reads x and residual once (a row that fits nowhere three times, the last two from the caches), writes sum and y:
// 4 elements moved per element where the two kernels move 5, about 9 operations.

#include <shardgrad/kernels/cuda/norm_rows.h>
#include <shardgrad/kernels/cuda/rows.h>

namespace shardgrad::SG_DEVICE {
namespace {

/// What is added: rounded as the elements of the sum are.
template <class T> struct Summands {
  const T *x, *residual;
  __device__ static T sum_of(T a, T b) {
    using S = Compute<T>;
    return convert<T>(S(convert<S>(a) + convert<S>(b)));
  }
  __device__ T operator[](int64_t i) const { return sum_of(x[i], residual[i]); }
};

template <class T, int packs, bool by_block, class S = Compute<T>>
__global__ void add_norm_kernel(Wanted<T> sum, Wanted<T> y, Wanted<S> mean, Wanted<S> rstd, Summands<T> from,
                                NormRows<T> r) {
  using Threads = RowThreads<by_block>;
  int64_t row = Threads::row();
  if (row >= r.rows) return;
  RowPack<T> part[packs], more[packs];
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    int first = Threads::template first<T>(k);
    part[k] = load_part(from.x + row * r.cols, first, r.cols, r.packed);  // 0 beyond the row
    more[k] = load_part(from.residual + row * r.cols, first, r.cols, r.packed);
  }
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    typename RowPack<T>::Elements made;
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e) made.at[e] = Summands<T>::sum_of(part[k][e], more[k][e]);
    part[k] = RowPack<T>(made);
    store_part(sum.to + row * r.cols, Threads::template first<T>(k), r.cols, r.packed, sum.accumulate,
               [&](int e) { return convert<S>(made.at[e]); });
  }
  normalize<Threads>(row, part, r, y, mean, rstd);
}

template <class T, class S = Compute<T>>
__global__ void wide_add_norm_kernel(Wanted<T> sum, Wanted<T> y, Wanted<S> mean, Wanted<S> rstd, Summands<T> from,
                                     NormRows<T> r) {
  int64_t row = blockIdx.x, begin = row * r.cols, end = begin + r.cols;
  auto value = [&](int64_t i) { return convert<S>(from[i]); };
  S center = 0, squares = 0, total = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    total += value(i);
    sum(i, value(i));
  }
  if (r.centered) center = block_reduce<Sum>(total) / S(r.cols);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    S d = value(i) - center;
    squares += d * d;
  }
  S scale = rstd_of(block_reduce<Sum>(squares), r.cols, r.eps);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    y(i, (value(i) - center) * scale * load_or(r.weight, i - begin, S(1)) + load_or(r.bias, i - begin, S(0)));
  if (threadIdx.x > 0) return;
  mean(row, center);
  rstd(row, scale);
}

void normalize_sums(const Launch& how, OutView sum, OutView y, OutView mean, OutView rstd, View x, View residual,
                    View weight, View bias, double eps, bool centered) {
  Matrix m(x);
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    bool packed = true;
    for (const T* each : {static_cast<const T*>(sum.as<T>()), static_cast<const T*>(y.as<T>()), x.as<T>(),
                          residual.as<T>(), weight.as<T>(), bias.as<T>()})
      packed = packed && rows_packed(each, m.cols);
    NormRows<T> r{m.rows, int(m.cols), eps, centered, packed, weight.as<T>(), bias.as<T>()};
    Summands<T> from{x.as<T>(), residual.as<T>()};
    bool fits = dispatch_rows<T>(m.cols, [&]<int packs, bool by_block>() {
      launch<add_norm_kernel<T, packs, by_block>>(how, row_blocks<by_block>(m.rows), Wanted<T>(sum), Wanted<T>(y),
                                                  Wanted<S>(mean), Wanted<S>(rstd), from, r);
    });
    if (!fits)
      launch<wide_add_norm_kernel<T>>(how, {blocks_for(m.rows, 1), kBlock}, Wanted<T>(sum), Wanted<T>(y),
                                      Wanted<S>(mean), Wanted<S>(rstd), from, r);
  });
}
void add_layer_norm(const Launch& how, OutView sum, OutView y, OutView mean, OutView rstd, View x, View residual,
                    View weight, View bias, double eps) {
  normalize_sums(how, sum, y, mean, rstd, x, residual, weight, bias, eps, true);
}
void add_rms_norm(const Launch& how, OutView sum, OutView y, OutView rstd, View x, View residual, View weight,
                  double eps) {
  normalize_sums(how, sum, y, {}, rstd, x, residual, weight, {}, eps, false);
}

const Registered registered[] = {
    add_kernel<add_layer_norm>(kernels::add_layer_norm, kFloats),
    add_kernel<add_rms_norm>(kernels::add_rms_norm, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
