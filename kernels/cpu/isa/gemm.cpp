// Matrix product in the manner of Goto and van de Geijn: b is packed in blocks of kc x nc and a in blocks of mc x kc,
// so that the innermost kernel, which keeps an mr x nr piece of c in registers, reads both in order.

#include <shardgrad/kernels/cpu/isa/few_rows.h>
#include <shardgrad/kernels/cpu/isa/tables.h>
#include <shardgrad/kernels/cpu/isa/tile.h>

namespace shardgrad::cpu {
namespace {

template <class T> struct Tile {
  static constexpr int64_t width = Pack<T>::width;
  static constexpr int64_t mr = kRows, nr = kColumnVectors * width;
  static constexpr int64_t mc = 16 * kRows, kc = kBlockDepth, nc = 64 * nr;
};

// Panels of `span` rows (for b: columns): panel[k * span + i] = x[i * row + k * col]; missing rows are 0.
template <class T, int64_t span>
SG_INLINE void pack(T* to, const T* x, int64_t rows, int64_t k, int64_t row, int64_t col) {
  for (int64_t begin = 0; begin < rows; begin += span, to += span * k, x += span * row) {
    int64_t n = smaller(span, rows - begin);
    if (n == span && row == 1) {
      for (int64_t p = 0; p < k; ++p) memcpy(to + p * span, x + p * col, sizeof(T) * span);
    } else if (n == span) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < span; ++i) to[p * span + i] = x[i * row + p * col];
    } else {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < span; ++i) to[p * span + i] = i < n ? x[i * row + p * col] : T(0);
    }
  }
}

// c (m, n) = a · b, or c += a · b, for m <= mr rows of packed a and n <= nr columns of packed b.
template <class T>
void kernel(int64_t k, const T* a, const T* b, T* c, int64_t c_row, int64_t m, int64_t n, bool accumulate) {
  using V = VectorOf<T>;
  constexpr int64_t width = Pack<T>::width;
  V acc[kRows][kColumnVectors] = {};
  for (int64_t p = 0; p < k; ++p, a += kRows, b += kColumnVectors * width) {
    V column[kColumnVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) column[j] = load(b + j * width);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      V value = splat<V>(a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < kColumnVectors; ++j) acc[i][j] = fma(value, column[j], acc[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumnVectors; ++j) {
      if (i >= m || j * width >= n) continue;
      T* to = c + i * c_row + j * width;
      if (n - j * width >= width)
        store(to, accumulate ? load(to) + acc[i][j] : acc[i][j]);
      else {
        int64_t part = n - j * width;
        store_part(to, accumulate ? load_part(to, part) + acc[i][j] : acc[i][j], part);
      }
    }
  }
}

template <class T> void gemm(const GemmTask& t) {
  using Size = Tile<T>;
  const T *a = static_cast<const T*>(t.a), *b = static_cast<const T*>(t.b);
  T *c = static_cast<T*>(t.c), *packed_a = static_cast<T*>(t.workspace);
  T* packed_b = packed_a + round_up(smaller(Size::mc, t.m), Size::mr) * smaller(Size::kc, t.k);
  for (int64_t j = 0; j < t.n; j += Size::nc) {
    int64_t n = smaller(Size::nc, t.n - j);
    for (int64_t p = 0; p < t.k; p += Size::kc) {
      int64_t k = smaller(Size::kc, t.k - p);
      bool accumulate = t.accumulate || p > 0;
      pack<T, Size::nr>(packed_b, b + p * t.b_row + j * t.b_col, n, k, t.b_col, t.b_row);
      for (int64_t i = 0; i < t.m; i += Size::mc) {
        int64_t m = smaller(Size::mc, t.m - i);
        pack<T, Size::mr>(packed_a, a + i * t.a_row + p * t.a_col, m, k, t.a_row, t.a_col);
        for (int64_t jj = 0; jj < n; jj += Size::nr)
          for (int64_t ii = 0; ii < m; ii += Size::mr)
            kernel(k, packed_a + ii * k, packed_b + jj * k, c + (i + ii) * t.c_row + j + jj, t.c_row,
                   smaller(Size::mr, m - ii), smaller(Size::nr, n - jj), accumulate);
      }
    }
  }
}

template <class T> size_t workspace(int64_t m, int64_t n, int64_t k) {
  using Size = Tile<T>;
  int64_t rows = round_up(smaller(Size::mc, m), Size::mr), columns = round_up(smaller(Size::nc, n), Size::nr);
  return size_t((rows + columns) * smaller(Size::kc, k)) * sizeof(T);
}

// m x n pieces of c straight from a and b, whose rows (b_col == 1) are contiguous.
template <class T, int rows> SG_INLINE void small_rows(const GemmTask& t, int64_t i) {
  using V = VectorOf<T>;
  const T* a = static_cast<const T*>(t.a) + i * t.a_row;
  const T* b = static_cast<const T*>(t.b);
  T* c = static_cast<T*>(t.c) + i * t.c_row;
  for_vectors<T>(t.n, [&](int64_t j, auto load, auto store) {
    V acc[rows] = {};
    for (int64_t p = 0; p < t.k; ++p) {
      V row = load(b + p * t.b_row + j);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) acc[r] = fma(splat<V>(a[r * t.a_row + p * t.a_col]), row, acc[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      T* to = c + r * t.c_row + j;
      store(to, t.accumulate ? load(to) + acc[r] : acc[r]);
    }
  });
}

template <class T> void small(const GemmTask& t) {
  T transposed[kSmallTransposed];
  GemmTask task = t;
  if (t.b_col != 1) {  // then b_row is 1
    transpose(transposed, t.n, static_cast<const T*>(t.b), t.n, t.k, t.b_col);
    task.b = transposed;
    task.b_row = t.n;
  }
  int64_t i = 0;
  for (; i + 8 <= t.m; i += 8) small_rows<T, 8>(task, i);
  for (; i + 3 <= t.m; i += 3) small_rows<T, 3>(task, i);
  for (; i < t.m; ++i) small_rows<T, 1>(task, i);
}

template <class T> void few_rows_product(const FewRowsTask& t) { few_rows<T>(t, kBlockDepth); }

}  // namespace

namespace SG_ISA {
constinit const GemmLoops gemm_loops = {
    .gemm = {gemm<float>, gemm<double>},
    .small = {small<float>, small<double>},
    .workspace = {workspace<float>, workspace<double>},
    .row_step = {Tile<float>::mr, Tile<double>::mr},
    .column_step = {Tile<float>::nr, Tile<double>::nr},
    .few_rows = {few_rows_product<float>, few_rows_product<double>, few_rows_product<Bf16>, few_rows_product<F16>},
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
