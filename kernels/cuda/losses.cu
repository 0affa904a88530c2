// mse, huber and cross_entropy, forward and backward. Losses are f32 (f64 for f64) and accumulate in f64.
//
// - square_sums reads x once, two operations per element.
// - mse and huber_loss read x and target once, 3 and 8 operations per element; their backwards write dx, too.
// - cross_entropy: one block per row; reads the logits once, an exponential per element, and one for each pack.
// - cross_entropy_backward: one block per row; reads the logits once and writes dx, which may lie over them, an
//   exponential per element: no softmax is stored.
//
// Of `cols` columns the first `classes` are there; the others count for nothing and have gradient 0.

#include <shardgrad/kernels/cuda/rows.h>
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

template <class T> struct Square {
  const T* x;
  int64_t cols;
  __device__ void operator()(int64_t row, int64_t i, int64_t, double* sums) const {
    double value = double(load(x + row * cols + i));
    sums[0] += value * value;
  }
};

void square_sums(const Launch& how, OutView y, View x) {
  if (y.numel() == 0) return;
  int64_t cols = x.numel() / y.numel();
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    sum_rows<double, 1>(how, Square<T>{x.as<T>(), cols}, Write<S>{y.as<S>(), y.beta != 0}, y.numel(), cols);
  });
}

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

template <class T> struct HuberOfDifference {
  const T *x, *target;
  double delta;
  __device__ void operator()(int64_t, int64_t i, int64_t, double* sums) const {
    double size = std::abs(double(load(x + i)) - double(load(target + i))), near = delta < size ? delta : size;
    sums[0] += near * (size - 0.5 * near);
  }
};

void huber_loss(const Launch& how, OutView loss, View x, View target, double scale, double delta) {
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    sum_rows<double, 1>(how, HuberOfDifference<T>{x.as<T>(), target.as<T>(), delta},
                        Write<S>{loss.as<S>(), loss.beta != 0, scale}, 1, x.numel());
  });
}

template <class S> struct HuberSlope {
  const S* dloss;
  double scale, delta;
  template <class C> __device__ C operator()(C x, C target) const {
    C d = x - target, most = C(delta);
    return C(scale * double(*dloss)) * (d > most ? most : d < -most ? -most : d);
  }
};
void huber_loss_backward(const Launch& how, OutView dx, View dloss, View x, View target, double scale, double delta) {
  dispatch_floats(x.dtype, [&]<class T>() {
    using S = Compute<T>;
    map<HuberSlope<S>, T, T, T>(how, {dloss.as<S>(), scale, delta}, dx, x.as<T>(), target.as<T>());
  });
}

/// The largest of some numbers, and Σ exp(number - largest).
template <class S> struct Exponentials {
  S top = Max::nothing<S>(), sum = 0;

  /// What sums under a larger number shrink by; infinity less infinity is none.
  __device__ static S fading(S from, S to) { return from == to ? S(1) : std::exp(from - to); }
  template <class T> __device__ void add(const RowPack<T>& pack) {
    S most = top;
    for (T element : pack.elements().at) most = Max()(most, convert<S>(element));
    sum *= fading(top, most);
    top = most;
    S shift = top == Max::nothing<S>() ? S(0) : top;
    for (T element : pack.elements().at) sum += std::exp(convert<S>(element) - shift);
  }
  /// Of all threads of the block.
  __device__ Exponentials joined() const {
    S most = block_reduce<Max>(top);
    return {most, block_reduce<Sum>(sum * fading(top, most))};
  }
};

// losses[row] = lse - x[label], 0 where the label is ignored
template <class T, class S = Compute<T>>
__global__ void cross_entropy_kernel(double* losses, S* lse, bool accumulate, const T* x, const int64_t* labels,
                                     int cols, int classes, int64_t ignore, bool packed) {
  constexpr int together = 4;  // packs on their way before the first is needed
  int64_t row = blockIdx.x, label = labels[row];
  if (threadIdx.x == 0) check_index("cross_entropy: the label of row", row, label, classes, "ignore_index", ignore);
  x += row * cols;
  Exponentials<S> mine;
  T nothing = convert<T>(Max::nothing<S>());
  int step = int(blockDim.x) * kPackOf<T>;
  for (int first = int(threadIdx.x) * kPackOf<T>; first < classes; first += together * step) {
    RowPack<T> packs[together];
    SG_UNROLL
    for (int k = 0; k < together; ++k) packs[k] = load_part(x, first + k * step, classes, packed, nothing);
    SG_UNROLL
    for (int k = 0; k < together; ++k) mine.add(packs[k]);
  }
  auto [top, sum] = mine.joined();
  if (threadIdx.x > 0) return;
  S log_sum = std::log(sum);
  if (lse) store(lse + 2 * row, top, accumulate), store(lse + 2 * row + 1, log_sum, accumulate);
  losses[row] = label == ignore ? 0 : double(log_sum) + (double(top) - double(load(x + label)));
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
      launch<cross_entropy_kernel<T>>(how, {blocks_for(rows, 1), threads_for((classes + kPackOf<T> - 1) / kPackOf<T>)},
                                      losses.as<double>(), lse.as<S>(), lse.beta != 0, logits.as<T>(),
                                      labels.as<int64_t>(), cols, classes, args.ignore_index,
                                      rows_packed(logits.as<T>(), cols));
    sum_rows<double, 1>(how, RowLoss{losses.as<double>()}, Write<S>{loss.as<S>(), loss.beta != 0, args.scale}, 1, rows);
  });
}

template <class T, class S = Compute<T>>
__global__ void cross_entropy_backward_kernel(T* dx, const S* dloss, const T* x, const S* lse, const int64_t* labels,
                                              int cols, int classes, double scale, int64_t ignore, bool packed,
                                              bool accumulate) {
  int64_t row = blockIdx.x, label = labels[row];
  if (threadIdx.x == 0) check_index("cross_entropy: the label of row", row, label, classes, "ignore_index", ignore);
  x += row * cols, dx += row * cols;
  S top = load(lse + 2 * row), log_sum = load(lse + 2 * row + 1),
    factor = label == ignore ? S(0) : S(scale * double(*dloss));
  for (int first = int(threadIdx.x) * kPackOf<T>; first < cols; first += int(blockDim.x) * kPackOf<T>) {
    RowPack<T> pack = load_part(x, first, cols, packed);
    store_part(dx, first, cols, packed, accumulate, [&](int e) {
      int c = first + e;
      S slope = std::exp(convert<S>(pack[e]) - top - log_sum) - S(label == c);
      return label == ignore || c >= classes ? S(0) : factor * slope;
    });
  }
}

void cross_entropy_backward(const Launch& how, OutView dx, View dloss, View logits, View lse, View labels,
                            CrossEntropyArgs args) {
  if (logits.numel() == 0) return;
  int64_t cols = logits.shape[-1];
  dispatch_floats(logits.dtype, [&]<class T>() {
    using S = Compute<T>;
    Config config{blocks_for(labels.numel(), 1), threads_for((cols + kPackOf<T> - 1) / kPackOf<T>)};
    bool packed = rows_packed(logits.as<T>(), cols) && rows_packed(dx.as<T>(), cols);
    launch<cross_entropy_backward_kernel<T>>(how, config, dx.as<T>(), dloss.as<S>(), logits.as<T>(), lse.as<S>(),
                                             labels.as<int64_t>(), cols, args.classes_of(cols), args.scale,
                                             args.ignore_index, packed, dx.beta != 0);
  });
}

const Registered registered[] = {
    add_kernel<square_sums>(kernels::square_sums, kFloats),
    add_kernel<mse>(kernels::mse, kFloats),
    add_kernel<mse_backward>(kernels::mse_backward, kFloats),
    add_kernel<huber_loss>(kernels::huber_loss, kFloats),
    add_kernel<huber_loss_backward>(kernels::huber_loss_backward, kFloats),
    add_kernel<cross_entropy>(kernels::cross_entropy, kFloats),
    add_kernel<cross_entropy_backward>(kernels::cross_entropy_backward, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
