// Sums of squares; mse, huber and cross_entropy, forward and backward.

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/reduce.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::CrossEntropyArgs;

constexpr int64_t kLossRows = 64;

// Losses and statistics are f32, or f64 for f64.
void put_loss(OutView loss, double value) {
  if (loss.dtype == DType::f64)
    put(*loss.as<double>(), value, loss.beta != 0);
  else
    put(*loss.as<float>(), float(value), loss.beta != 0);
}
double get_loss(View loss) { return loss.dtype == DType::f64 ? *loss.as<double>() : double(*loss.as<float>()); }

void square_sums(const Launch& launch, OutView y, View x) {
  auto loop = loops().reduce.squares[int(x.dtype)];
  int64_t rows = y.numel(), cols = rows ? x.numel() / rows : 0;
  auto sum = [&](int threads, int64_t row) {
    const char* from = x.as<char>() + size_t(row * cols) * size_of(x.dtype);
    double value = sum_chunks(
        threads, cols, [&](int64_t begin, int64_t n) { return loop(from + size_t(begin) * size_of(x.dtype), n); });
    y.dtype == DType::f64 ? put(y.as<double>()[row], value, y.beta != 0)
                          : put(y.as<float>()[row], float(value), y.beta != 0);
  };
  if (rows == 1) return sum(launch.threads, 0);
  parallel_for(launch.threads, rows, grain_for(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) sum(1, row);
  });
}

void mse(const Launch& launch, OutView loss, View x, View target, double scale) {
  auto loop = loops().reduce.squared_difference[int(x.dtype)];
  size_t size = size_of(x.dtype);
  put_loss(loss, scale * sum_chunks(launch.threads, x.numel(), [&](int64_t begin, int64_t n) {
                   return loop(x.as<char>() + begin * size, target.as<char>() + begin * size, n);
                 }));
}

// dx of x and target by a loop of ElementwiseLoops.
template <class Loop>
void slope_of_difference(const Launch& launch, OutView dx, View x, View target, Loop loop, Scalars scalars) {
  size_t size = size_of(x.dtype);
  parallel_elements(launch.threads, x.numel(), [&](int64_t begin, int64_t end) {
    Grid grid{.cols = end - begin, .accumulate = dx.beta != 0};
    loop(dx.as<char>() + begin * size, x.as<char>() + begin * size, target.as<char>() + begin * size, grid, scalars);
  });
}

void mse_backward(const Launch& launch, OutView dx, View dloss, View x, View target, double scale) {
  slope_of_difference(launch, dx, x, target, loops().elementwise.scaled_difference[int(x.dtype)],
                      {2 * scale * get_loss(dloss), 0});
}

void huber_loss(const Launch& launch, OutView loss, View x, View target, double scale, double delta) {
  auto loop = loops().reduce.huber_difference[int(x.dtype)];
  size_t size = size_of(x.dtype);
  put_loss(loss, scale * sum_chunks(launch.threads, x.numel(), [&](int64_t begin, int64_t n) {
                   return loop(x.as<char>() + begin * size, target.as<char>() + begin * size, n, delta);
                 }));
}

void huber_loss_backward(const Launch& launch, OutView dx, View dloss, View x, View target, double scale,
                         double delta) {
  slope_of_difference(launch, dx, x, target, loops().elementwise.scaled_bounded_difference[int(x.dtype)],
                      {scale * get_loss(dloss), delta});
}

void check_labels(View labels, int64_t classes, int64_t ignore) {
  const int64_t* label = labels.as<int64_t>();
  for (int64_t r = 0, rows = labels.numel(); r < rows; ++r)
    SG_CHECK((label[r] >= 0 && label[r] < classes) || label[r] == ignore, "cross_entropy: the label of row ", r, " is ",
             label[r], ", outside [0, ", classes, ") and not ignore_index (", ignore, ")");
}

// Σ (lse - x[label]) over rows [begin, begin + n) that count; writes lse where it is wanted.
template <class T, class S>
double loss_of_rows(const T* x, const int64_t* label, OutView lse, int64_t begin, int64_t n, int64_t cols,
                    CrossEntropyArgs args) {
  S row_lse[2 * kLossRows];
  loops().rows.log_sum_exp[int(dtype_of<T>)](row_lse, x + begin * cols, n, args.classes_of(cols), cols);
  double total = 0;
  for (int64_t r = 0; r < n; ++r) {
    int64_t row = begin + r;
    for (int64_t k : {2 * r, 2 * r + 1})
      if (lse.defined()) put(lse.as<S>()[2 * begin + k], row_lse[k], lse.beta != 0);
    if (label[row] == args.ignore_index) continue;
    total += double(row_lse[2 * r + 1]) + (double(row_lse[2 * r]) - convert<double>(x[row * cols + label[row]]));
  }
  return total;
}

void cross_entropy(const Launch& launch, OutView loss, OutView lse, View logits, View labels, CrossEntropyArgs args) {
  int64_t cols = logits.shape[-1];
  check_labels(labels, args.classes_of(cols), args.ignore_index);
  double sum = dispatch_floats(logits.dtype, [&]<class T>() {
    using S = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return sum_chunks(
        launch.threads, labels.numel(),
        [&](int64_t begin, int64_t n) {
          return loss_of_rows<T, S>(logits.as<T>(), labels.as<int64_t>(), lse, begin, n, cols, args);
        },
        kLossRows, 4 * cols);
  });
  put_loss(loss, args.scale * sum);
}

void cross_entropy_backward(const Launch& launch, OutView dx, View dloss, View logits, View lse, View labels,
                            CrossEntropyArgs args) {
  int64_t cols = logits.shape[-1];
  check_labels(labels, args.classes_of(cols), args.ignore_index);
  double k = args.scale * get_loss(dloss);
  size_t row = size_t(cols) * size_of(logits.dtype);
  auto loop = loops().rows.cross_entropy_backward[int(logits.dtype)];
  parallel_for(launch.threads, labels.numel(), grain_for(4 * cols), [&](int64_t begin, int64_t end) {
    loop(dx.as<char>() + begin * row, logits.as<char>() + begin * row, lse.as<char>() + 2 * begin * size_of(lse.dtype),
         labels.as<int64_t>() + begin, end - begin, cols, args.classes_of(cols), k, args.ignore_index, dx.beta != 0);
  });
}

const Each registered[] = {
    {kernels::square_sums, kFloats, square_sums},
    {kernels::mse, kFloats, mse},
    {kernels::mse_backward, kFloats, mse_backward},
    {kernels::huber_loss, kFloats, huber_loss},
    {kernels::huber_loss_backward, kFloats, huber_loss_backward},
    {kernels::cross_entropy, kFloats, cross_entropy},
    {kernels::cross_entropy_backward, kFloats, cross_entropy_backward},
};

}  // namespace
}  // namespace shardgrad::cpu
