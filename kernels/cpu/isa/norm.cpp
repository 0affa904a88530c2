// layer_norm, rms_norm and batch_norm: x̂ = (x - mean) · rstd with one mean and rstd per row, or per column. The mean of
// rms_norm is 0.

#include <shardgrad/kernels/cpu/isa/simd.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

template <class T>
void row_statistics(void* mean_, void* rstd_, const void* x_, int64_t rows, int64_t cols, double eps) {
  using V = VectorOf<T>;
  using S = ScalarOf<T>;
  const T* x = static_cast<const T*>(x_);
  for (int64_t r = 0; r < rows; ++r, x += cols) {
    V total{}, squares{};
    if (mean_) for_vectors<T>(cols, [&](int64_t c, auto load, auto) { total += load(x + c); });
    S mean = S(sum(total)) / S(cols);
    V center = splat<V>(mean);
    int64_t whole = cols / Pack<T>::width * Pack<T>::width;
    for (int64_t c = 0; c < whole; c += Pack<T>::width) {
      V d = load(x + c) - center;
      squares = fma(d, d, squares);
    }
    if (int64_t rest = cols - whole) {
      V d = keep_first(load_part(x + whole, rest) - center, rest, V{});
      squares = fma(d, d, squares);
    }
    if (mean_) static_cast<S*>(mean_)[r] = mean;
    static_cast<S*>(rstd_)[r] = S(1 / __builtin_sqrt(double(sum(squares)) / double(cols) + eps));
  }
}

// Mean and rstd of the elements from column c of row r on, as vectors.
template <class T> struct Statistics {
  using V = VectorOf<T>;
  using S = ScalarOf<T>;
  const S *mean, *rstd;
  bool per_row;
  V row_mean{}, row_rstd{};

  explicit Statistics(const NormStatistics& s)
      : mean(static_cast<const S*>(s.mean)), rstd(static_cast<const S*>(s.rstd)), per_row(s.per_row) {}
  SG_INLINE void enter_row(int64_t r) {
    if (!per_row) return;
    if (mean) row_mean = splat<V>(mean[r]);
    row_rstd = splat<V>(rstd[r]);
  }
  template <class Load> SG_INLINE V center(const Load& load, int64_t c) const {
    return per_row ? row_mean : load(mean + c);
  }
  template <class Load> SG_INLINE V scale(const Load& load, int64_t c) const {
    return per_row ? row_rstd : load(rstd + c);
  }
};

template <class T>
void normalize(void* y_, const void* x_, const NormStatistics& s, const void* weight_, const void* bias_, int64_t rows,
               int64_t cols, bool accumulate) {
  using V = VectorOf<T>;
  T* y = static_cast<T*>(y_);
  const T *x = static_cast<const T*>(x_), *weight = static_cast<const T*>(weight_);
  const T* bias = static_cast<const T*>(bias_);
  Statistics<T> statistics(s);
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    statistics.enter_row(r);
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      V v = (load(x + c) - statistics.center(load, c)) * statistics.scale(load, c);
      if (weight) v *= load(weight + c);
      if (bias) v += load(bias + c);
      store(y + c, accumulate ? load(y + c) + v : v);
    });
  }
}

template <class T> void column_squares(void* acc_, const void* x_, const void* mean_, int64_t rows, int64_t cols) {
  auto* acc = static_cast<ScalarOf<T>*>(acc_);
  auto* mean = static_cast<const ScalarOf<T>*>(mean_);
  const T* x = static_cast<const T*>(x_);
  for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
    auto total = load(acc + c), center = load(mean + c);
    for (int64_t r = 0; r < rows; ++r) {
      auto d = load(x + r * cols + c) - center;
      total = fma(d, d, total);
    }
    store(acc + c, total);
  });
}

template <class T>
void weight_sums(void* dweight_, void* dbias_, const void* dy_, const void* x_, const NormStatistics& s, int64_t rows,
                 int64_t cols) {
  using V = VectorOf<T>;
  auto *dweight = static_cast<ScalarOf<T>*>(dweight_), *dbias = static_cast<ScalarOf<T>*>(dbias_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  Statistics<T> statistics(s);
  for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
    V w = load(dweight + c), b = load(dbias + c);
    for (int64_t r = 0; r < rows; ++r) {
      statistics.enter_row(r);
      V g = load(dy + r * cols + c);
      V normal = (load(x + r * cols + c) - statistics.center(load, c)) * statistics.scale(load, c);
      w = fma(g, normal, w);
      b += g;
    }
    store(dweight + c, w);
    store(dbias + c, b);
  });
}

// dx = rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = dy · weight and means over the row; without mean(g) where rows
// are not centered
template <class T>
void row_backward(void* dx_, const void* dy_, const void* x_, const NormStatistics& s, const void* weight_,
                  int64_t rows, int64_t cols, bool accumulate) {
  using V = VectorOf<T>;
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_), *weight = static_cast<const T*>(weight_);
  Statistics<T> statistics(s);
  V over = splat<V>(ScalarOf<T>(1.0 / double(cols)));
  for (int64_t r = 0; r < rows; ++r, dx += cols, dy += cols, x += cols) {
    statistics.enter_row(r);
    V mean = statistics.row_mean, rstd = statistics.row_rstd, total{}, dot{};
    for_vectors<T>(cols, [&](int64_t c, auto load, auto) {
      V g = load(dy + c);
      if (weight) g *= load(weight + c);
      total += g;
      dot = fma(g, (load(x + c) - mean) * rstd, dot);  // lanes past the end have g = 0
    });
    V mean_g = statistics.mean ? splat<V>(ScalarOf<T>(sum(total))) * over : V{};
    V mean_dot = splat<V>(ScalarOf<T>(sum(dot))) * over;
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      V g = load(dy + c);
      if (weight) g *= load(weight + c);
      V normal = (load(x + c) - mean) * rstd, v = rstd * (g - mean_g - normal * mean_dot);
      store(dx + c, accumulate ? load(dx + c) + v : v);
    });
  }
}

// dx = weight · rstd · (dy - dbias / samples - x̂ · dweight / samples), per column
template <class T>
void column_backward(void* dx_, const void* dy_, const void* x_, const NormStatistics& s, const void* weight_,
                     const void* dweight_, const void* dbias_, int64_t samples, int64_t rows, int64_t cols,
                     bool accumulate) {
  using V = VectorOf<T>;
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_), *weight = static_cast<const T*>(weight_);
  auto *dweight = static_cast<const ScalarOf<T>*>(dweight_), *dbias = static_cast<const ScalarOf<T>*>(dbias_);
  Statistics<T> statistics(s);
  V over = splat<V>(ScalarOf<T>(1.0 / double(samples)));
  for (int64_t r = 0; r < rows; ++r, dx += cols, dy += cols, x += cols)
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      V rstd = statistics.scale(load, c), normal = (load(x + c) - statistics.center(load, c)) * rstd;
      V v = rstd * (load(dy + c) - load(dbias + c) * over - normal * (load(dweight + c) * over));
      if (weight) v *= load(weight + c);
      store(dx + c, accumulate ? load(dx + c) + v : v);
    });
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const NormLoops norm_loops = {
    .row_statistics = SG_FLOATS(row_statistics),
    .normalize = SG_FLOATS(normalize),
    .column_squares = SG_FLOATS(column_squares),
    .weight_sums = SG_FLOATS(weight_sums),
    .row_backward = SG_FLOATS(row_backward),
    .column_backward = SG_FLOATS(column_backward),
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
