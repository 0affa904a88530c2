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

void cumsum(const Launch& launch, OutView y, View x, int dim, bool reverse) {
  Around from(x.shape, dim);
  dispatch(x.dtype, [&]<class T>() {
    parallel_for(launch.threads, from.outer * from.inner, grain_for(from.extent), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t first = i / from.inner * from.extent * from.inner + i % from.inner;
        Running<T> sum = 0;
        for (int64_t e = 0; e < from.extent; ++e) {
          int64_t at = first + (reverse ? from.extent - 1 - e : e) * from.inner;
          sum += convert<Running<T>>(x.as<T>()[at]);
          put_sum(y.as<T>()[at], Compute<T>(sum), y.beta != 0);
        }
      }
    });
  });
}

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

template <class T> void sort_first(Entry<T>* entries, int64_t n, int64_t wanted, bool descending) {
  auto before = [=](const Entry<T>& a, const Entry<T>& b) { return comes_before(a, b, descending); };
  if (wanted < n) std::nth_element(entries, entries + wanted, entries + n, before);
  std::sort(entries, entries + wanted, before);
}

void sort(const Launch& launch, OutView values, OutView index, View x, int dim, bool descending) {
  Around from(x.shape, dim);
  int64_t n = from.extent, wanted = index.shape[dim], inner = from.inner;
  dispatch(x.dtype, [&]<class T>() {
    Workspace memory(kCpu, std::max<size_t>(1, size_t(x.numel())) * sizeof(Entry<T>));
    parallel_for(launch.threads, from.outer * inner, grain_for(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        Entry<T>* entries = memory.as<Entry<T>>() + r * n;
        const T* first = x.as<T>() + r / inner * n * inner + r % inner;
        for (int64_t e = 0; e < n; ++e) entries[e] = {decltype(entries->key)(first[e * inner]), e};
        sort_first(entries, n, wanted, descending);
        for (int64_t e = 0; e < wanted; ++e) {
          int64_t to = (r / inner * wanted + e) * inner + r % inner;
          put(values.as<T>()[to], first[entries[e].index * inner], values.beta != 0);
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
