// mse and cross_entropy, forward and backward. Losses are f32 (f64 for f64) and accumulate in f64.
//
// mse            reads x and target once, 3 operations per element.   mse_backward            and writes dx.
// cross_entropy  one block per row; reads the logits twice (once from memory), an exponential per element.
// cross_entropy_backward  reads the logits once and writes dx, which may lie over them, an exponential per element: no
//                         softmax is stored.
// Of `cols` columns the first `classes` are there; the others count for nothing and have gradient 0.

#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/sums.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::CrossEntropyArgs;

template <class T> struct SquaredDifference {
  const T *x, *target;
  __device__ void operator()(int64_t, int64_t i, int64_t, double* sums) const {
    double d = double(load(x + i)) - double(load(target + i));
    sums[0] += d * d;
  }
};

void mse(const Launch& how, OutView loss, View x, View target, double scale) {
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    sum_rows<double, 1>(how, SquaredDifference<T>{x.as<T>(), target.as<T>()},
                        Write<S>{loss.as<S>(), loss.beta != 0, scale}, 1, x.numel());
  });
}

template <class S> struct MseSlope {
  const S* dloss;
  double scale;
  template <class C> __device__ C operator()(C x, C target) const {
    return C(2 * scale * double(*dloss)) * (x - target);
  }
};
void mse_backward(const Launch& how, OutView dx, View dloss, View x, View target, double scale) {
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    map<MseSlope<S>, T, T, T>(how, {dloss.as<S>(), scale}, dx, x.as<T>(), target.as<T>());
  });
}

// losses[row] = lse - x[label], 0 where the label is ignored
template <class T, class S = Compute<T>>
__global__ void cross_entropy_kernel(double* losses, S* lse, bool accumulate, const T* x, const int64_t* labels,
                                     int64_t cols, int64_t classes, int64_t ignore) {
  int64_t row = blockIdx.x, label = labels[row];
  if (threadIdx.x == 0) check_index("cross_entropy: the label of row", row, label, classes, "ignore_index", ignore);
  x += row * cols;
  S top = Max::nothing<S>(), sum = 0;
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) top = Max()(top, load(x + c));
  top = block_reduce<Max>(top);
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) sum += std::exp(load(x + c) - top);
  sum = block_reduce<Sum>(sum);
  if (threadIdx.x > 0) return;
  S row_lse = top + std::log(sum);
  if (lse) store(lse + row, row_lse, accumulate);
  losses[row] = label == ignore ? 0 : double(row_lse) - double(load(x + label));
}

struct RowLoss {
  const double* losses;
  __device__ void operator()(int64_t, int64_t row, int64_t, double* sums) const { sums[0] += losses[row]; }
};

void cross_entropy(const Launch& how, OutView loss, OutView lse, View logits, View labels, CrossEntropyArgs args) {
  int64_t cols = logits.shape[-1], classes = args.classes_of(cols), rows = labels.numel();
  dispatch_floats(logits.dtype, [&]<class T>() {
    using S = Compute<T>;
    Scratch losses(how, size_t(rows) * sizeof(double));
    if (rows > 0)
      launch<cross_entropy_kernel<T>>(how, {blocks_for(rows, 1), threads_for(classes)}, losses.as<double>(),
                                      lse.as<S>(), lse.beta != 0, logits.as<T>(), labels.as<int64_t>(), cols, classes,
                                      args.ignore_index);
    sum_rows<double, 1>(how, RowLoss{losses.as<double>()}, Write<S>{loss.as<S>(), loss.beta != 0, args.scale}, 1, rows);
  });
}

template <class T, class S = Compute<T>>
__global__ void cross_entropy_backward_kernel(T* dx, const S* dloss, const T* x, const S* lse, const int64_t* labels,
                                              int64_t n, int64_t cols, int64_t classes, double scale, int64_t ignore,
                                              bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  int64_t row = i / cols, c = i % cols, label = labels[row];
  if (c == 0) check_index("cross_entropy: the label of row", row, label, classes, "ignore_index", ignore);
  S slope = std::exp(load(x + i) - load(lse + row)) - S(label == c);
  store(dx + i, label == ignore || c >= classes ? S(0) : S(scale * double(*dloss)) * slope, accumulate);
}

void cross_entropy_backward(const Launch& how, OutView dx, View dloss, View logits, View lse, View labels,
                            CrossEntropyArgs args) {
  if (logits.numel() == 0) return;
  int64_t cols = logits.shape[-1];
  dispatch_floats(logits.dtype, [&]<class T>() {
    using S = Compute<T>;
    launch<cross_entropy_backward_kernel<T>>(how, {blocks_for(logits.numel()), kBlock}, dx.as<T>(), dloss.as<S>(),
                                             logits.as<T>(), lse.as<S>(), labels.as<int64_t>(), logits.numel(), cols,
                                             args.classes_of(cols), args.scale, args.ignore_index, dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<mse>(kernels::mse, kFloats),
    add_kernel<mse_backward>(kernels::mse_backward, kFloats),
    add_kernel<cross_entropy>(kernels::cross_entropy, kFloats),
    add_kernel<cross_entropy_backward>(kernels::cross_entropy_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
