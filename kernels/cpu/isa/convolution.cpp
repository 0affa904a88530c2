// Convolutions without an array of windows: an image lies in memory so that element k of the window of place j is
// x[offsets[k] + j] (kernels/cpu/convolution_image.h). So neighbouring places are a vector wherever they begin, and a
// piece of the result stays in registers as in a matrix product (gemm.cpp).

#include <shardgrad/kernels/cpu/isa/pairs.h>
#include <shardgrad/kernels/cpu/isa/tables.h>
#include <shardgrad/kernels/cpu/isa/tile.h>

namespace shardgrad::cpu {
namespace {

constexpr int kFewRows = kRows / 2;
constexpr int64_t kNear = 1 << 17;  // weights that stay in the second cache beside what else is there

// How many of the rows that are left a tile takes, which may be more than there are.
SG_INLINE int64_t tile_rows(int64_t left) { return left > kFewRows ? kRows : left > 1 ? kFewRows : 1; }

SG_INLINE int64_t rows_of_tiles(int64_t m) {
  int64_t row = 0;
  while (row < m) row += tile_rows(m - row);
  return row;
}

// A tile's columns one behind the other. What is not finite makes NaN of `odd`.
//
// Columns of a square are stored as whole vectors, so the last of them writes up to width - rows elements behind
// itself. These are written later, or by nobody, and never are another block's, which another thread may have packed:
// in a whole block, of a multiple of `width` columns, as many columns as a square has follow, and in the last, shorter
// one at least one does. That is enough behind a tile of kRows. One of fewer rows ends the group's last block there,
// and has behind it what rounding up to kRows for each group leaves (PackedWeights), a row of all k columns at least.
template <class T, int rows> T* pack_tile(T* to, const WeightPacking& t, int64_t row, int64_t begin, T (&odd)[kRows]) {
  constexpr int64_t width = Pack<T>::width;
  const T* w = static_cast<const T*>(t.weights) + row * t.step;
  static_assert(kBlockDepth % width == 0 && width - kRows <= kRows);
  int64_t present = smaller(rows, t.m - row), p = begin, end = smaller(begin + kBlockDepth, t.k);
  if (rows <= width && !t.offsets) {
    VectorOf<T> seen = {};
    for (; p + width < end; p += width, to += width * rows) {
      VectorOf<T> v[width] = {};
#pragma GCC unroll 16
      for (int64_t i = 0; i < width; ++i)
        if (i < present) {
          v[i] = load(w + i * t.step + p);
          seen = fma(v[i], VectorOf<T>{}, seen);
        }
      transpose_square(v);
#pragma GCC unroll 16
      for (int64_t j = 0; j < width; ++j) store(to + j * rows, v[j]);
    }
    for (int64_t i = 0; i < width; ++i) odd[0] += seen[i];
  }
  for (; p < end; ++p, to += rows) {
    const T* column = w + (t.offsets ? t.offsets[p] : p);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      to[i] = i < present ? column[i * t.step] : T(0);
      odd[i] += to[i] * T(0);
    }
  }
  return to;
}

// Blocks of kBlockDepth columns, of tiles; missing rows are 0.
template <class T> bool pack_weights(const WeightPacking& t) {
  T *to = static_cast<T*>(t.packed) + t.first * rows_of_tiles(t.m), odd[kRows] = {};
  for (int64_t begin = t.first; begin < t.last; begin += kBlockDepth)
    for (int64_t row = 0, rows = 0; row < t.m; row += rows) {
      rows = tile_rows(t.m - row);
      auto pack = rows == kRows ? pack_tile<T, kRows> : rows == kFewRows ? pack_tile<T, kFewRows> : pack_tile<T, 1>;
      to = pack(to, t, row, begin, odd);
    }
  T sum = 0;
  for (T value : odd) sum += value;
  return sum == 0;
}

// Of a block of the sums: those of its window elements that are wanted, at `vectors` vectors of places from number v
// on, for the results from `row` on.
template <class T, int rows, int vectors, bool some>
SG_INLINE void sums_tile(const WindowSums& t, const T* weights, int64_t row, int64_t begin, int64_t v) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width;
  const T *bias = static_cast<const T*>(t.bias), *x[vectors];
  for (int i = 0; i < vectors; ++i) x[i] = static_cast<const T*>(t.x) + t.places[v + i];
  const int64_t* offsets = t.offsets + (begin - t.first);
  int64_t present = smaller(rows, t.m - row), count = some ? t.count : smaller(kBlockDepth, t.last - begin);
  V acc[rows][vectors] = {};
  for (int64_t p = 0; p < count; ++p) {
    const T* w = weights + (some ? t.elements[p] : p) * rows;
    V column[vectors];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) column[j] = load(x[j] + offsets[p]);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      V value = splat<V>(w[i]);
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) acc[i][j] = fma(value, column[j], acc[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    if (i >= present) continue;
    T* to = static_cast<T*>(t.y) + (row + i) * t.y_row + v * width;
    V first = splat<V>(bias ? bias[row + i] : T(0));
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) store(to + j * width, (begin > 0 ? load(to + j * width) : first) + acc[i][j]);
  }
}

template <class T, int rows, bool some>
void sums_of_vectors(const WindowSums& t, const T* weights, int64_t row, int64_t begin, int64_t v) {
  if (v + 1 < t.vectors)
    sums_tile<T, rows, 2, some>(t, weights, row, begin, v);
  else
    sums_tile<T, rows, 1, some>(t, weights, row, begin, v);
}

// A block of the sums for the places of vector v and the next.
template <class T, bool some>
SG_INLINE void sums_of_block(const WindowSums& t, const T* weights, int64_t begin, int64_t v) {
  int64_t depth = smaller(kBlockDepth, t.last - begin);
  for (int64_t row = 0, rows = 0; row < t.m; row += rows, weights += rows * depth) {
    rows = tile_rows(t.m - row);
    auto sums = rows == kRows      ? sums_of_vectors<T, kRows, some>
                : rows == kFewRows ? sums_of_vectors<T, kFewRows, some>
                                   : sums_of_vectors<T, 1, some>;
    sums(t, weights, row, begin, v);
  }
}

// What two vectors of places see stays in the first cache, and in the second one all weights, or where they are more
// than it holds a block of them.
template <class T, bool some> SG_INLINE void sums_of_blocks(const WindowSums& t) {
  int64_t tiles = rows_of_tiles(t.m), step = tiles * (t.last - t.first) <= kNear ? 2 : t.vectors;
  for (int64_t v = 0; v < t.vectors; v += step) {
    int64_t begin = t.first;
    do {
      const T* weights = static_cast<const T*>(t.weights) + begin * tiles;
      for (int64_t i = v; i < smaller(v + step, t.vectors); i += 2) sums_of_block<T, some>(t, weights, begin, i);
      begin += kBlockDepth;
    } while (begin < t.last);
  }
}

template <class T> void window_sums(const WindowSums& t) {
  t.count == WindowSums::kEach ? sums_of_blocks<T, false>(t) : sums_of_blocks<T, true>(t);
}

// All places that one of the elements sees; the padding, which others see there, is 0.
SG_INLINE Places seen_by_any(const WindowProducts& t, int64_t k) {
  Places all = t.elements[k].seen;
  for (int64_t i = k + 1; i < smaller(k + kRows, t.k); ++i) {
    const Places& each = t.elements[i].seen;
    all = {smaller(all.row, each.row), larger(all.last_row, each.last_row), smaller(all.col, each.col),
           larger(all.last_col, each.last_col)};
  }
  return {all.row, smaller(all.last_row, t.rows), all.col, smaller(all.last_col, t.cols)};
}

// Window elements from k on, as many as kRows, with `vectors` vectors of results from `column` on.
template <class T, int vectors>
SG_INLINE void products_tile(const WindowProducts& t, const Places& places, int64_t k, int64_t column) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width;
  const T* x[kRows];
  for (int i = 0; i < kRows; ++i) x[i] = static_cast<const T*>(t.x) + t.elements[smaller(k + i, t.k - 1)].offset;
  const T* panel = static_cast<const T*>(t.dy) + column * t.images * t.rows * t.cols;
  V acc[kRows][vectors] = {};
  for (int64_t image = 0; image < t.images; ++image)
    for (int64_t row = places.row; row < places.last_row; ++row) {
      int64_t line = image * t.step + row * t.pitch;
      const T* dy = panel + ((image * t.rows + row) * t.cols + places.col) * vectors * width;
      for (int64_t at = line + places.col; at < line + places.last_col; ++at, dy += vectors * width) {
        V grad[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) grad[v] = load(dy + v * width);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          V value = splat<V>(x[i][at]);
#pragma GCC unroll 2
          for (int v = 0; v < vectors; ++v) acc[i][v] = fma(value, grad[v], acc[i][v]);
        }
      }
    }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    if (k + i >= t.k) continue;
    T* to = static_cast<T*>(t.sums) + t.elements[k + i].element * t.row + column;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store(to + v * width, load(to + v * width) + acc[i][v]);
  }
}

template <class T> SG_INLINE bool all_finite(const T* x, int64_t n) {
  VectorOf<T> seen = {};
  for (int64_t i = 0; i < n; i += Pack<T>::width) seen = fma(load(x + i), VectorOf<T>{}, seen);
  return sum(seen) == 0;
}

// What is not finite makes NaN of the padding, in every place or in none, whatever elements a tile has.
template <class T> void window_products(const WindowProducts& t) {
  constexpr int64_t width = Pack<T>::width;
  bool finite = all_finite(static_cast<const T*>(t.dy), t.images * t.rows * t.cols * t.row);
  for (int64_t k = 0; k < t.k; k += kRows) {
    Places places{0, t.rows, 0, t.cols};
    if (finite) places = seen_by_any(t, k);
    int64_t column = 0;
    for (; column + 2 * width <= t.row; column += 2 * width) products_tile<T, 2>(t, places, k, column);
    if (column < t.row) products_tile<T, 1>(t, places, k, column);
  }
}

template <class T> void transpose_rows(const MatrixCopy& t) {
  transpose(static_cast<T*>(t.to), t.to_row, static_cast<const T*>(t.from), t.rows, t.cols, t.from_row);
}

template <class E> void put_rows(const MatrixCopy& t, bool accumulate) {
  E* to = static_cast<E*>(t.to);
  const auto* from = static_cast<const ScalarOf<E>*>(t.from);
  for (int64_t r = 0; r < t.rows; ++r, to += t.to_row, from += t.from_row)
    for_vectors<E>(t.cols, [&](int64_t i, auto load, auto store) {
      auto value = load(from + i);
      store(to + i, accumulate ? load(to + i) + value : value);
    });
}

template <class T> void every_other(void* y, const void* x, int64_t n) {
  constexpr int64_t width = Pack<T>::width;
  T* to = static_cast<T*>(y);
  const T* from = static_cast<const T*>(x);
  int64_t i = 0;
  for (; i + width < n; i += width) {  // the last one's neighbour may not be there
    VectorOf<T> whole[2] = {load(from + 2 * i), load(from + 2 * i + width)};
    store(to + i, evens(whole[0], whole[1]));
  }
  for (; i < n; ++i) to[i] = from[2 * i];
}

}  // namespace

namespace SG_ISA {
constinit const ConvolutionLoops convolution_loops = {
    .pack = {pack_weights<float>, pack_weights<double>},
    .sums = {window_sums<float>, window_sums<double>},
    .products = {window_products<float>, window_products<double>},
    .transpose = {transpose_rows<float>, transpose_rows<double>},
    .put = {put_rows<float>, put_rows<double>, put_rows<Bf16>, put_rows<F16>},
    .every_other = {every_other<float>, every_other<double>},
    .row_step = kRows,
    .block = kBlockDepth,
    .panel = 2,
    .vector = {Pack<float>::width, Pack<double>::width},
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
