// layer_norm and rms_norm: x̂ = (x - mean) · rstd, with one mean and rstd per row; the mean of rms_norm is 0. rows.h
// says which threads have a row.
//
// layer_norm           reads x once (a row that fits nowhere three times, the last two from the caches), writes y.
// layer_norm_backward  dx: reads dy and x once (twice), writes dx; dweight, dbias: one more pass over dy and x, whose
//                      sums of chunks of rows the launch of dx adds up.
// About 8 operations per element.

#include <optional>

#include <shardgrad/kernels/cuda/norm_rows.h>
#include <shardgrad/kernels/cuda/rows.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class T, int packs, bool by_block, class S = Compute<T>>
__global__ void layer_norm_kernel(Wanted<T> y, Wanted<S> mean, Wanted<S> rstd, const T* x, NormRows<T> r) {
  using Threads = RowThreads<by_block>;
  int64_t row = Threads::row();
  if (row >= r.rows) return;
  x += row * r.cols;
  RowPack<T> part[packs];
  SG_UNROLL
  for (int k = 0; k < packs; ++k) part[k] = load_part(x, Threads::template first<T>(k), r.cols, r.packed);
  normalize<Threads>(row, part, r, y, mean, rstd);
}

template <class T, class S = Compute<T>>
__global__ void wide_layer_norm_kernel(Wanted<T> y, Wanted<S> mean, Wanted<S> rstd, const T* x, NormRows<T> r) {
  int64_t row = blockIdx.x;
  x += row * r.cols;
  S center = 0, squares = 0;
  if (r.centered) {
    S sum = 0;
    for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) sum += load(x + c);
    center = block_reduce<Sum>(sum) / S(r.cols);
  }
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) {
    S d = load(x + c) - center;
    squares += d * d;
  }
  S scale = rstd_of(block_reduce<Sum>(squares), r.cols, r.eps);
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x)
    y(row * r.cols + c, (load(x + c) - center) * scale * load_or(r.weight, c, S(1)) + load_or(r.bias, c, S(0)));
  if (threadIdx.x > 0) return;
  mean(row, center);
  rstd(row, scale);
}

void normalize_rows(const Launch& how, OutView y, OutView mean, OutView rstd, View x, View weight, View bias,
                    double eps, bool centered) {
  Matrix m(x);
  if (x.numel() == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    bool packed = true;
    for (const T* each : {static_cast<const T*>(y.as<T>()), x.as<T>(), weight.as<T>(), bias.as<T>()})
      packed = packed && rows_packed(each, m.cols);
    NormRows<T> r{m.rows, int(m.cols), eps, centered, packed, weight.as<T>(), bias.as<T>()};
    bool fits = dispatch_rows<T>(m.cols, [&]<int packs, bool by_block>() {
      launch<layer_norm_kernel<T, packs, by_block>>(how, row_blocks<by_block>(m.rows), Wanted<T>(y), Wanted<S>(mean),
                                                    Wanted<S>(rstd), x.as<T>(), r);
    });
    if (!fits)
      launch<wide_layer_norm_kernel<T>>(how, {blocks_for(m.rows, 1), kBlock}, Wanted<T>(y), Wanted<S>(mean),
                                        Wanted<S>(rstd), x.as<T>(), r);
  });
}
void layer_norm(const Launch& how, OutView y, OutView mean, OutView rstd, View x, View weight, View bias, double eps) {
  normalize_rows(how, y, mean, rstd, x, weight, bias, eps, true);
}
void rms_norm(const Launch& how, OutView y, OutView rstd, View x, View weight, double eps) {
  normalize_rows(how, y, {}, rstd, x, weight, {}, eps, false);
}

/// What dx's launch does for the gradients of weight and bias.
template <class T> using WeightPass = SecondPass<double, 2, WeightFinish<T>>;

// dx = rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = dy · weight; without mean(g) where there are no means of x
template <class T, int packs, bool by_block, class S = Compute<T>>
__global__ void layer_norm_backward_kernel(Wanted<T> dx, const T* dy, const T* x, const S* mean, const S* rstd,
                                           NormRows<T> r, WeightPass<T> weights) {
  using Threads = RowThreads<by_block>;
  if (blockIdx.x >= weights.first_block) return weights.run();
  int64_t row = Threads::row();
  if (row >= r.rows) return;
  dy += row * r.cols, x += row * r.cols;
  auto first = [](int k) { return (k * Threads::width + int(threadIdx.x)) * kPackOf<T>; };
  RowPack<T> gradients[packs], values[packs];
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    gradients[k] = load_part(dy, first(k), r.cols, r.packed);  // 0 beyond the row: adds nothing
    values[k] = load_part(x, first(k), r.cols, r.packed);
  }
  S center = load_or(mean, row, S(0)), scale = load(rstd + row), sum = 0, dot = 0;
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    RowPack<T> weight = r.part_of(r.weight, first(k), 1);
    SG_UNROLL
    for (int e = 0; e < kPackOf<T>; ++e) {
      S g = convert<S>(gradients[k][e]) * convert<S>(weight[e]);
      sum += g;
      dot += g * (convert<S>(values[k][e]) - center) * scale;
    }
  }
  S mean_g = mean ? Threads::template reduce<Sum>(sum) / S(r.cols) : S(0);
  S mean_dot = Threads::template reduce<Sum>(dot) / S(r.cols);
  SG_UNROLL
  for (int k = 0; k < packs; ++k) {
    RowPack<T> weight = r.part_of(r.weight, first(k), 1);
    store_part(dx.to + row * r.cols, first(k), r.cols, r.packed, dx.accumulate, [&](int e) {
      S g = convert<S>(gradients[k][e]) * convert<S>(weight[e]);
      return scale * (g - mean_g - (convert<S>(values[k][e]) - center) * scale * mean_dot);
    });
  }
}

template <class T, class S = Compute<T>>
__global__ void wide_layer_norm_backward_kernel(Wanted<T> dx, const T* dy, const T* x, const S* mean, const S* rstd,
                                                NormRows<T> r) {
  int64_t row = blockIdx.x;
  dy += row * r.cols, x += row * r.cols;
  S center = load_or(mean, row, S(0)), scale = load(rstd + row), sum = 0, dot = 0;
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) {
    S g = load(dy + c) * load_or(r.weight, c, S(1));
    sum += g;
    dot += g * (load(x + c) - center) * scale;
  }
  S mean_g = mean ? block_reduce<Sum>(sum) / S(r.cols) : S(0), mean_dot = block_reduce<Sum>(dot) / S(r.cols);
  for (int64_t c = threadIdx.x; c < r.cols; c += blockDim.x) {
    S g = load(dy + c) * load_or(r.weight, c, S(1));
    dx(row * r.cols + c, scale * (g - mean_g - (load(x + c) - center) * scale * mean_dot));
  }
}

/// Over the rows of a matrix, of which each has its statistics.
template <class T> struct RowTerm {
  WeightTerm<T> term;
  int64_t cols;
  __device__ void operator()(int64_t, int64_t row, int64_t col, double* sums) const {
    term.add(row * cols + col, row, sums);
  }
};

/// With the second pass of the weights' sums, where there is one: only where rows_fit.
template <class T, class S = Compute<T>>
void norm_backward_rows(const Launch& how, OutView dx, View dy, View x, View weight, View mean, View rstd,
                        WeightPass<T> weights) {
  Matrix m(x);
  bool packed = true;
  for (const T* each : {static_cast<const T*>(dx.as<T>()), dy.as<T>(), x.as<T>(), weight.as<T>()})
    packed = packed && rows_packed(each, m.cols);
  NormRows<T> r{m.rows, int(m.cols), 0, true, packed, weight.as<T>(), nullptr};
  bool fits = dispatch_rows<T>(m.cols, [&]<int packs, bool by_block>() {
    Config config = row_blocks<by_block>(m.rows);
    weights.add_to(config);
    launch<layer_norm_backward_kernel<T, packs, by_block>>(how, config, Wanted<T>(dx), dy.as<T>(), x.as<T>(),
                                                           mean.as<S>(), rstd.as<S>(), r, weights);
  });
  if (!fits)
    launch<wide_layer_norm_backward_kernel<T>>(how, {blocks_for(m.rows, 1), kBlock}, Wanted<T>(dx), dy.as<T>(),
                                               x.as<T>(), mean.as<S>(), rstd.as<S>(), r);
}

template <class T, class S = Compute<T>>
void norm_backward(const Launch& how, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                   View mean, View rstd) {
  Matrix m(x);
  bool rows = dx.defined() && m.rows > 0;
  int64_t chunks = chunks_of(m.rows, kChunkRows);
  WeightPass<T> second{{}, {Wanted<T>(dweight), Wanted<T>(dbias), nullptr}};
  std::optional<Scratch> partials;
  if (dweight.defined() || dbias.defined()) {
    RowTerm<T> term{{dy.as<T>(), x.as<T>(), mean.as<S>(), rstd.as<S>()}, m.cols};
    if (rows && chunks > 1 && chunks <= second.kMostChunks && rows_fit<T>(m.cols)) {
      partials.emplace(how, size_t(chunks * m.cols) * 2 * sizeof(double));
      second.partials = {partials->template as<double>(), chunks, m.cols};
      sum_chunks_of_columns<double, 2>(how, term, partials->template as<double>(), 1, m.rows, m.cols);
    } else {
      sum_columns<double, 2>(how, term, second.finish, 1, m.rows, m.cols);
    }
  }
  if (rows) norm_backward_rows<T>(how, dx, dy, x, weight, mean, rstd, second);
}

void layer_norm_backward(const Launch& how, OutView dx, OutView dweight, OutView dbias, View dy, View x, View weight,
                         View mean, View rstd) {
  if (x.shape[-1] == 0) return;
  dispatch_floats(x.dtype, [&]<class T>() { norm_backward<T>(how, dx, dweight, dbias, dy, x, weight, mean, rstd); });
}

void rms_norm_backward(const Launch& how, OutView dx, OutView dweight, View dy, View x, View weight, View rstd) {
  layer_norm_backward(how, dx, dweight, {}, dy, x, weight, {}, rstd);
}

const Registered registered[] = {
    add_kernel<layer_norm>(kernels::layer_norm, kFloats),
    add_kernel<layer_norm_backward>(kernels::layer_norm_backward, kFloats),
    add_kernel<rms_norm>(kernels::rms_norm, kFloats),
    add_kernel<rms_norm_backward>(kernels::rms_norm_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
