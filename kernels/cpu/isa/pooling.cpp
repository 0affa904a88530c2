// Pooling of one image. Elements that neighbouring windows have at one place of theirs lie `stride` apart in a row; so
// a row is kept as `stride` parts, in which they lie side by side, padding included. For stride 2, padding 1, a b c d:
//
//     part 0:  · b d        part 1:  a c ·        a window of 3 at place c sees part 0 [c], part 1 [c], part 0 [c + 1]
//
// A ring keeps as many rows as a window sees.

#include <shardgrad/kernels/cpu/isa/pairs.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class T> struct Ring {
  using S = ScalarOf<T>;
  using V = VectorOf<T>;
  static constexpr int64_t width = Pack<T>::width;

  const PoolTask& task;
  int64_t stride, part, padding;
  int64_t covered, kept;  // elements of a padded row that windows see; of these, those of the image
  int64_t held;           // rows of the image that a window sees at most
  S *line, *rows;

  explicit Ring(const PoolTask& t)
      : task(t),
        stride(t.across.stride),
        part(whole(t.columns + t.across.kernel / stride + width)),
        padding(t.across.padding),
        covered((t.columns - 1) * stride + t.across.kernel),
        kept(smaller(t.width, covered - padding)),
        held(smaller(t.down.kernel, t.height)),
        line(static_cast<S*>(t.workspace)),
        rows(line + line_length()) {}

  static int64_t whole(int64_t n) { return (n + width - 1) / width * width; }
  int64_t line_length() const { return whole(covered) + 2 * width; }
  size_t bytes() const { return size_t(line_length() + held * stride * part) * sizeof(S); }
  S* row(int64_t r) const { return rows + r % held * stride * part; }

  // The rows of the image that the windows of a row of places see: [first, end).
  int64_t first(int64_t place) const { return larger(0, place * task.down.stride - task.down.padding); }
  int64_t end(int64_t place) const {
    return smaller(task.height, place * task.down.stride - task.down.padding + task.down.kernel);
  }

  // Takes a row of x into the ring, `outside` where it is padded.
  void take(const T* x, int64_t r, S outside) {
    S *to = row(r), *at = stride == 1 ? to : line;
    x += r * task.width;
    for (int64_t i = 0; i < padding; ++i) at[i] = outside;
    for_vectors<T>(kept, [&](int64_t c, auto load, auto store) { store(at + padding + c, load(x + c)); });
    for (int64_t i = padding + kept; i < covered; ++i) at[i] = outside;
    if (stride == 2) {
      for (int64_t i = 0; 2 * i < covered; i += width) {
        V a = load(line + 2 * i), b = load(line + 2 * i + width);
        store(to + i, evens(a, b));
        store(to + part + i, odds(a, b));
      }
    } else if (stride > 2) {
      for (int64_t p = 0; p < stride; ++p, to += part)
        for (int64_t i = p, n = 0; i < covered; i += stride) to[n++] = line[i];
    }
  }

  void clear(int64_t r) { memset(row(r), 0, size_t(stride * part) * sizeof(S)); }
  // Writes what was added up in a row to dx.
  void give(T* dx, int64_t r) {
    const S *from = row(r), *at = stride == 1 ? from : line;
    if (stride == 2) {
      for (int64_t i = 0; 2 * i < covered; i += width) {
        V a = load(from + i), b = load(from + part + i);
        store(line + 2 * i, low(a, b));
        store(line + 2 * i + width, high(a, b));
      }
    } else if (stride > 2) {
      for (int64_t p = 0; p < stride; ++p, from += part)
        for (int64_t i = p, n = 0; i < covered; i += stride) line[i] = from[n++];
    }
    dx += r * task.width;
    for_vectors<T>(kept, [&](int64_t c, auto load, auto store) {
      V v = load(at + padding + c);
      store(dx + c, task.accumulate ? load(dx + c) + v : v);
    });
    give_nothing(dx + kept, task.width - kept);
  }
  void give_nothing(T* dx, int64_t n) {
    if (!task.accumulate) memset(dx, 0, size_t(n) * sizeof(T));
  }

  // Goes over the parts in the order of the elements that a window has in a row: (part, place of the first window's).
  template <class Body> SG_INLINE void over_window(const Body& body) const {
    int64_t at = 0;
    for (int64_t j = 0, p = 0; j < task.across.kernel; ++j) {
      body(j, at);
      at += part;
      if (++p == stride) p = 0, at -= stride * part - 1;
    }
  }
};

template <class V> struct IndexOf;
template <> struct IndexOf<F32> {
  using Type = I32;
  using Number = int32_t;
};
template <> struct IndexOf<F64> {
  using Type = I64;
  using Number = int64_t;
};

typedef int32_t I32Few __attribute__((vector_size(kLanes64 * 4)));
SG_INLINE void write_index(int32_t* to, I32 v) { memcpy(to, &v, sizeof(v)); }
SG_INLINE void write_index(int32_t* to, I64 v) {
  I32Few few = __builtin_convertvector(v, I32Few);
  memcpy(to, &few, sizeof(few));
}
template <class I> SG_INLINE void store_index(int32_t* to, I v, int64_t n, bool accumulate) {
  int32_t lanes[kLanes32];
  write_index(lanes, v);
  if (accumulate)
    for (int64_t i = 0; i < n; ++i) to[i] += lanes[i];
  else
    memcpy(to, lanes, size_t(n) * sizeof(int32_t));
}

template <class T, bool wants_index>
SG_INLINE void largest_of_row(T* y, int32_t* index, const Ring<T>& ring, int64_t place) {
  using V = VectorOf<T>;
  using I = typename IndexOf<V>::Type;
  using N = typename IndexOf<V>::Number;
  const PoolTask& task = ring.task;
  int64_t first = ring.first(place), end = ring.end(place);
  I step;
  for (int l = 0; l < Pack<T>::width; ++l) step[l] = l * task.across.stride;
  for_vectors<T>(task.columns, [&](int64_t c, auto load_y, auto store_y) {
    I left = step + N(c * task.across.stride - task.across.padding);
    V top = splat<V>(-ScalarOf<T>(__builtin_inf()));
    I at = (left < 0 ? I{} : left) + N(first * task.width);
    for (int64_t r = first; r < end; ++r) {
      I line = left + N(r * task.width);
      const auto* from = ring.row(r) + c;
      ring.over_window([&](int64_t j, int64_t offset) {
        V v = load(from + offset);
        auto takes = ~(v <= top) & (top == top);  // NaN is above all, and stays
        top = takes ? v : top;
        if constexpr (wants_index) at = takes ? line + N(j) : at;
      });
    }
    store_y(y + c, task.accumulate ? load_y(y + c) + top : top);
    if constexpr (wants_index)
      store_index(index + c, at, smaller(Pack<T>::width, task.columns - c), task.accumulate_index);
  });
}

// Calls body(place) for each row of places, when the ring has what its windows see.
template <class T, class Body> SG_INLINE void over_places(Ring<T>& ring, const T* x, double outside, const Body& body) {
  int64_t taken = 0;
  for (int64_t place = 0; place < ring.task.rows; ++place) {
    for (taken = larger(taken, ring.first(place)); taken < ring.end(place); ++taken)
      ring.take(x, taken, ScalarOf<T>(outside));
    body(place);
  }
}

template <class T> void largest(void* y_, int32_t* index, const void* x, const PoolTask& task) {
  T* y = static_cast<T*>(y_);
  Ring<T> ring(task);
  over_places(ring, static_cast<const T*>(x), -__builtin_inf(), [&](int64_t place) {
    int64_t at = place * task.columns;
    if (index)
      largest_of_row<T, true>(y + at, index + at, ring, place);
    else
      largest_of_row<T, false>(y + at, nullptr, ring, place);
  });
}

template <class T> VectorOf<T> window_size(const PoolTask& task) {
  return splat<VectorOf<T>>(ScalarOf<T>(double(task.down.kernel) * double(task.across.kernel)));
}

template <class T> void mean(void* y_, const void* x, const PoolTask& task) {
  using V = VectorOf<T>;
  T* y = static_cast<T*>(y_);
  Ring<T> ring(task);
  V count = window_size<T>(task);
  over_places(ring, static_cast<const T*>(x), 0, [&](int64_t place) {
    for_vectors<T>(task.columns, [&](int64_t c, auto load_y, auto store_y) {
      V sum{};
      for (int64_t r = ring.first(place); r < ring.end(place); ++r) {
        const auto* from = ring.row(r) + c;
        ring.over_window([&](int64_t, int64_t offset) { sum += load(from + offset); });
      }
      V v = sum / count;
      store_y(y + c, task.accumulate ? load_y(y + c) + v : v);
    });
    y += task.columns;
  });
}

// Adds the shares of a row of places to the rows that their windows see. Of two windows that see an element the first
// one has it further on.
template <class T> SG_INLINE void share(const Ring<T>& ring, const T* dy, int64_t place) {
  const PoolTask& task = ring.task;
  auto count = window_size<T>(task);
  int64_t kernel = task.across.kernel, stride = task.across.stride;
  for_vectors<T>(task.columns, [&](int64_t c, auto load_dy, auto) {
    auto each = load_dy(dy + c) / count;  // lanes past the end have 0
    for (int64_t r = ring.first(place); r < ring.end(place); ++r) {
      auto* to = ring.row(r) + c;
      for (int64_t p = (kernel - 1) % stride, at = p * ring.part + (kernel - 1) / stride, j = 0; j < kernel; ++j) {
        store(to + at, load(to + at) + each);
        at -= ring.part;
        if (p-- == 0) p = stride - 1, at += stride * ring.part - 1;
      }
    }
  });
}

template <class T> void mean_backward(void* dx_, const void* dy_, const PoolTask& task) {
  T* dx = static_cast<T*>(dx_);
  const T* dy = static_cast<const T*>(dy_);
  Ring<T> ring(task);
  int64_t cleared = 0, given = 0;
  auto give_up_to = [&](int64_t end) {
    for (; given < end; ++given)
      if (given < cleared)
        ring.give(dx, given);
      else
        ring.give_nothing(dx + given * task.width, task.width);
  };
  for (int64_t place = 0; place < task.rows; ++place) {
    give_up_to(ring.first(place));
    for (cleared = larger(cleared, ring.first(place)); cleared < ring.end(place); ++cleared) ring.clear(cleared);
    share(ring, dy + place * task.columns, place);
  }
  give_up_to(task.height);
}

template <class T> size_t workspace(const PoolTask& task) { return Ring<T>(task).bytes(); }

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const PoolLoops pool_loops = {
    .largest = SG_FLOATS(largest),
    .mean = SG_FLOATS(mean),
    .mean_backward = SG_FLOATS(mean_backward),
    .workspace = SG_FLOATS(workspace),
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
