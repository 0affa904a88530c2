// cumsum and sort: what depends on the order of the elements along one dimension.

#include <algorithm>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

/// The type that running sums of T are taken in.
template <class T> using Running = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

constexpr int64_t kScanColumns = 64;

template <class T> void cumsum_line(T* y, const T* x, int64_t n, bool reverse, bool accumulate) {
  Running<T> sum = 0;
  for (int64_t e = 0; e < n; ++e) {
    int64_t at = reverse ? n - 1 - e : e;
    sum += convert<Running<T>>(x[at]);
    put_sum(y[at], Compute<T>(sum), accumulate);
  }
}

// Of `cols` lines side by side, whose elements are `inner` apart.
template <class T>
void cumsum_columns(T* y, const T* x, int64_t n, int64_t cols, int64_t inner, bool reverse, bool accumulate) {
  Running<T> sums[kScanColumns] = {};
  for (int64_t e = 0; e < n; ++e) {
    int64_t row = (reverse ? n - 1 - e : e) * inner;
    for (int64_t c = 0; c < cols; ++c) {
      sums[c] += convert<Running<T>>(x[row + c]);
      put_sum(y[row + c], Compute<T>(sums[c]), accumulate);
    }
  }
}

void cumsum(const Launch& launch, OutView y, View x, int dim, bool reverse) {
  Around from(x.shape, dim);
  int64_t blocks = (from.inner + kScanColumns - 1) / kScanColumns,
          cost = from.extent * std::min(from.inner, kScanColumns);
  dispatch(x.dtype, [&]<class T>() {
    parallel_for(launch.threads, from.outer * blocks, grain_for(cost), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t column = i % blocks * kScanColumns, at = i / blocks * from.extent * from.inner + column;
        int64_t cols = std::min(kScanColumns, from.inner - column);
        T* to = y.as<T>() + at;
        if (from.inner == 1)
          cumsum_line(to, x.as<T>() + at, from.extent, reverse, y.beta != 0);
        else
          cumsum_columns(to, x.as<T>() + at, from.extent, cols, from.inner, reverse, y.beta != 0);
      }
    });
  });
}

constexpr int64_t kSortRoom = 256;

/// An element as it compares, and its place.
template <class T> struct Entry {
  std::conditional_t<std::is_class_v<T>, float, T> key;
  int64_t index;
};

// NaN is the largest; of equal ones the first comes first, whatever the direction.
template <class T> bool comes_before(const Entry<T>& a, const Entry<T>& b, bool descending) {
  if (a.key < b.key) return !descending;
  if (b.key < a.key) return descending;
  bool a_nan = a.key != a.key, b_nan = b.key != b.key;
  return a_nan != b_nan ? a_nan == descending : a.index < b.index;
}

// The first `wanted` of n elements in order, in `entries`, which has room for `room` of them, at least two for each
// wanted one or n. What comes behind `wanted` others is passed over.
template <class T>
void sort_first(Entry<T>* entries, int64_t room, const T* x, int64_t n, int64_t wanted, bool descending) {
  auto before = [=](const Entry<T>& a, const Entry<T>& b) { return comes_before(a, b, descending); };
  if (wanted == 0) return;
  int64_t count = 0;
  Entry<T> last{};  // of those that are wanted so far
  bool full = false;
  for (int64_t e = 0; e < n; ++e) {
    Entry<T> entry{decltype(last.key)(x[e]), e};
    if (full && !before(entry, last)) continue;
    entries[count++] = entry;
    if (count < room || room == n) continue;
    std::nth_element(entries, entries + wanted - 1, entries + count, before);
    last = entries[wanted - 1];
    count = wanted;
    full = true;
  }
  if (wanted < count) std::nth_element(entries, entries + wanted, entries + count, before);
  std::sort(entries, entries + wanted, before);
}

void sort(const Launch& launch, OutView values, OutView index, View x, int dim, bool descending) {
  Around from(x.shape, dim);
  int64_t n = from.extent, wanted = index.shape[dim], inner = from.inner,
          room = std::min(n, std::max(2 * wanted, kSortRoom));
  Workspace lines(kCpu, inner > 1 ? std::max<size_t>(1, x.bytes()) : 1);
  if (inner > 1 && x.numel() > 0) {
    OutView turned{lines.as<char>(), {from.outer, inner, n}, x.dtype, 0, true};
    View whole{x.data, {from.outer, n, inner}, x.dtype, true};
    kernels::permute.find(DeviceKind::cpu, x.dtype)(launch, turned, whole, {0, 2, 1});
    x.data = lines.as<char>();
  }
  dispatch(x.dtype, [&]<class T>() {
    Workspace memory(kCpu, std::max<size_t>(1, size_t(from.outer * inner * room)) * sizeof(Entry<T>));
    parallel_for(launch.threads, from.outer * inner, grain_for(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        Entry<T>* entries = memory.as<Entry<T>>() + r * room;
        const T* line = x.as<T>() + r * n;
        sort_first(entries, room, line, n, wanted, descending);
        for (int64_t e = 0; e < wanted; ++e) {
          int64_t to = (r / inner * wanted + e) * inner + r % inner;
          put(values.as<T>()[to], line[entries[e].index], values.beta != 0);
          put(index.as<int64_t>()[to], entries[e].index, index.beta != 0);
        }
      }
    });
  });
}

constexpr DType kSummed[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64};
const Each registered[] = {{kernels::cumsum, kSummed, cumsum}, {kernels::sort, kAll, sort}};

}  // namespace
}  // namespace shardgrad::cpu
