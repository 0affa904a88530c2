#include <shardgrad/kernels/cpu/isa/math.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

// The largest element of a row and Σ exp(x - largest).
template <class T> struct ExpSum { ScalarOf<T> largest, sum; };

// Hands each exponential to keep(place, value, store).
template <class T, class Keep> SG_INLINE ExpSum<T> exp_sum(const T* x, int64_t cols, const Keep& keep) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width;
  int64_t whole = cols / width * width, rest = cols - whole;
  V top = splat<V>(-__builtin_inff());
  for (int64_t c = 0; c < whole; c += width) top = max(top, load(x + c));
  if (rest) top = max(top, keep_first(load_part(x + whole, rest), rest, top));
  ScalarOf<T> high = largest(top);
  V shift = splat<V>(high), total{};
  for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
    V e = exp(load(x + c) - shift);
    keep(c, e, store);
    total += c < whole ? e : keep_first(e, rest, V{});
  });
  return {high, ScalarOf<T>(sum(total))};
}

template <class T> void softmax(void* y_, const void* x_, int64_t rows, int64_t cols, bool log_form, bool accumulate) {
  using V = VectorOf<T>;
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  bool kept = sizeof(T) >= 4 && !log_form && !accumulate;  // the exponentials wait in y, where they lose nothing
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    auto [high, total] = exp_sum(x, cols, [&](int64_t c, V e, auto store) {
      if (kept) store(y + c, e);
    });
    if (kept) {
      V scale = 1.0f / splat<V>(total);
      for_vectors<T>(cols, [&](int64_t c, auto load, auto store) { store(y + c, load(y + c) * scale); });
      continue;
    }
    V shift = splat<V>(high), scale = 1.0f / splat<V>(total), log_total = log(splat<V>(total));
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      V shifted = load(x + c) - shift, result = log_form ? shifted - log_total : exp(shifted) * scale;
      store(y + c, accumulate ? load(y + c) + result : result);
    });
  }
}

template <class T>
void softmax_backward(void* dx_, const void* dy_, const void* y_, int64_t rows, int64_t cols, bool log_form,
                      bool accumulate) {
  using V = VectorOf<T>;
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *y = static_cast<const T*>(y_);
  for (int64_t r = 0; r < rows; ++r, dx += cols, dy += cols, y += cols) {
    V total{};
    for_vectors<T>(cols, [&](int64_t c, auto load, auto) {
      V g = load(dy + c);
      total += log_form ? g : g * load(y + c);
    });
    V dot = splat<V>(ScalarOf<T>(sum(total)));
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      V g = load(dy + c), v = load(y + c), result = log_form ? g - exp(v) * dot : v * (g - dot);
      store(dx + c, accumulate ? load(dx + c) + result : result);
    });
  }
}

// Vectors of columns that are gone through together, and rows that are added up before their sum joins the others': so
// that many rows lose no more than few.
constexpr int64_t kVectors = 4, kRowsTogether = 64;

// Calls body(c, vectors, load, store) for the columns from c on: whole vectors, kVectors of them where there are as
// many, and a part.
template <class T, class Body> SG_INLINE void over_columns(int64_t cols, const Body& body) {
  constexpr int64_t width = Pack<T>::width;
  auto whole = [](const auto* p) { return load(p); };
  auto put = [](auto* p, auto v) { store(p, v); };
  int64_t c = 0;
  for (; c + kVectors * width <= cols; c += kVectors * width) body.template operator()<kVectors>(c, whole, put);
  for (; c + width <= cols; c += width) body.template operator()<1>(c, whole, put);
  if (int64_t rest = cols - c)
    body.template operator()<1>(
        c, [rest](const auto* p) { return load_part(p, rest); }, [rest](auto* p, auto v) { store_part(p, v, rest); });
}

// total[v] = Σ over the rows of term(row, v)
template <int64_t vectors, class V, class Term>
SG_INLINE void sum_of_rows(V (&total)[vectors], int64_t rows, const Term& term) {
  for (V& each : total) each = V{};
  for (int64_t begin = 0; begin < rows; begin += kRowsTogether) {
    int64_t end = begin + kRowsTogether < rows ? begin + kRowsTogether : rows;
    V sum[vectors] = {};
    for (int64_t r = begin; r < end; ++r)
      for (int64_t v = 0; v < vectors; ++v) sum[v] += term(r, v);
    for (int64_t v = 0; v < vectors; ++v) total[v] += sum[v];
  }
}

template <class T> void softmax_columns(void* y_, const void* x_, const SoftmaxColumns& m) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width;
  bool kept = sizeof(T) >= 4 && !m.log && !m.accumulate;  // as in softmax
  over_columns<T>(m.cols, [&]<int64_t vectors>(int64_t c, auto load, auto store) {
    T* y = static_cast<T*>(y_) + c;
    const T* x = static_cast<const T*>(x_) + c;
    V top[vectors], total[vectors];
    for (V& each : top) each = splat<V>(-__builtin_inff());
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t v = 0; v < vectors; ++v) top[v] = max(top[v], load(x + r * m.stride + v * width));
    sum_of_rows<vectors>(total, m.rows, [&](int64_t r, int64_t v) {
      int64_t at = r * m.stride + v * width;
      V e = exp(load(x + at) - top[v]);
      if (kept) store(y + at, e);
      return e;
    });
    V scale[vectors], log_total[vectors];
    for (int64_t v = 0; v < vectors; ++v) scale[v] = 1.0f / total[v], log_total[v] = log(total[v]);
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        int64_t at = r * m.stride + v * width;
        if (kept) {
          store(y + at, load(y + at) * scale[v]);
          continue;
        }
        V shifted = load(x + at) - top[v], result = m.log ? shifted - log_total[v] : exp(shifted) * scale[v];
        store(y + at, m.accumulate ? load(y + at) + result : result);
      }
  });
}

template <class T> void softmax_columns_backward(void* dx_, const void* dy_, const void* y_, const SoftmaxColumns& m) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width;
  over_columns<T>(m.cols, [&]<int64_t vectors>(int64_t c, auto load, auto store) {
    T* dx = static_cast<T*>(dx_) + c;
    const T *dy = static_cast<const T*>(dy_) + c, *y = static_cast<const T*>(y_) + c;
    V dot[vectors];
    sum_of_rows<vectors>(dot, m.rows, [&](int64_t r, int64_t v) {
      V g = load(dy + r * m.stride + v * width);
      return m.log ? g : g * load(y + r * m.stride + v * width);
    });
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        int64_t at = r * m.stride + v * width;
        V g = load(dy + at), e = load(y + at), result = m.log ? g - exp(e) * dot[v] : e * (g - dot[v]);
        store(dx + at, m.accumulate ? load(dx + at) + result : result);
      }
  });
}

template <class T> void log_sum_exp(void* lse, const void* x_, int64_t rows, int64_t cols, int64_t stride) {
  using V = VectorOf<T>;
  const T* x = static_cast<const T*>(x_);
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    auto [high, total] = exp_sum(x, cols, [](auto...) {});
    static_cast<ScalarOf<T>*>(lse)[2 * r] = high;
    static_cast<ScalarOf<T>*>(lse)[2 * r + 1] = log(splat<V>(total))[0];
  }
}

template <class T>
void cross_entropy_backward(void* dx_, const void* x_, const void* lse_, const int64_t* labels, int64_t rows,
                            int64_t cols, int64_t classes, double k_, int64_t ignore, bool accumulate) {
  using V = VectorOf<T>;
  T* dx = static_cast<T*>(dx_);
  const T* x = static_cast<const T*>(x_);
  V k = splat<V>(ScalarOf<T>(k_));
  for (int64_t r = 0; r < rows; ++r, dx += cols, x += cols) {
    bool counts = labels[r] != ignore;
    if (!counts && accumulate) continue;
    auto* lse = static_cast<const ScalarOf<T>*>(lse_) + 2 * r;
    auto softmax = [top = splat<V>(lse[0]), log_sum = splat<V>(lse[1])](V x) { return exp(x - top - log_sum); };
    T* label = dx + labels[r];
    V result{};  // at the label; read first, since dx may be x
    if (counts) result = k * (softmax(splat_load(x + labels[r])) - 1.0f);
    if (counts && accumulate) result += splat_load(label);
    for_vectors<T>(classes, [&](int64_t c, auto load, auto store) {
      V other = counts ? k * softmax(load(x + c)) : V{};
      store(dx + c, accumulate ? load(dx + c) + other : other);
    });
    if (counts) store_part(label, result, 1);
    if (accumulate) continue;
    for_vectors<T>(cols - classes, [&](int64_t c, auto, auto store) { store(dx + classes + c, V{}); });
  }
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const RowLoops row_loops = {
    .softmax = SG_FLOATS(softmax),
    .softmax_backward = SG_FLOATS(softmax_backward),
    .softmax_columns = SG_FLOATS(softmax_columns),
    .softmax_columns_backward = SG_FLOATS(softmax_columns_backward),
    .log_sum_exp = SG_FLOATS(log_sum_exp),
    .cross_entropy_backward = SG_FLOATS(cross_entropy_backward),
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
