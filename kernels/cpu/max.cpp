// max_dim: the largest, or smallest, element along one dimension and where it is. NaN comes before all; the first one
// wins.

#include <limits>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

/// The type in which elements of type T compare, and one of positions as wide, so that both fill a vector alike.
template <class T>
using Compared = std::conditional_t<std::is_class_v<T>, float, std::conditional_t<sizeof(T) == 1, int32_t, T>>;
template <class T> using PlaceOf = std::conditional_t<sizeof(Compared<T>) == 8, int64_t, int32_t>;

constexpr int64_t kMaxLanes = 16, kMaxRange = 1024, kMaxColumns = 64, kShortLine = 64;

// Whether number a comes before b.
template <bool least, class N> bool before(N a, N b) { return least ? a < b : a > b; }

// The one of n elements that comes before all others, NaN if there is one.
template <bool least, class T> Compared<T> most_of(DType dtype, const T* x, int64_t n) {
  auto& reduce = loops().reduce;
  if constexpr (!std::is_integral_v<T>) {
    return Compared<T>((least ? reduce.smallest : reduce.largest)[int(dtype)](x, n));
  } else {
    auto most = [](Compared<T> a, Compared<T> b) { return least ? std::min(a, b) : std::max(a, b); };
    Compared<T> lanes[kMaxLanes], top = x[0];
    std::fill_n(lanes, kMaxLanes, top);
    int64_t i = 0;
    for (; i + kMaxLanes <= n; i += kMaxLanes)
      for (int64_t l = 0; l < kMaxLanes; ++l) lanes[l] = most(lanes[l], Compared<T>(x[i + l]));
    for (; i < n; ++i) top = most(top, Compared<T>(x[i]));
    for (Compared<T> lane : lanes) top = most(top, lane);
    return top;
  }
}

// The position of the first of n elements in that order. A range is gone through again only if it has one that comes
// before those of the ranges before it.
template <bool least, class T> int64_t position_of(DType dtype, const T* x, int64_t n) {
  int64_t best = 0;
  auto top = Compared<T>(x[0]);
  for (int64_t i = 0; i < n && top == top; i += kMaxRange) {
    Compared<T> value = most_of<least>(dtype, x + i, std::min(kMaxRange, n - i));
    if (value == value && !before<least>(value, top)) continue;
    top = value;
    best = i;
    if (value == value)
      while (Compared<T>(x[best]) != value) ++best;
    else
      while (Compared<T>(x[best]) == Compared<T>(x[best])) ++best;
  }
  return best;
}

// The same of up to kMaxColumns lines that go side by side: columns of rows that are `step` apart, or short lines of n.
// Masks choose, as no branch can be foretold.
template <bool least, bool columns, class T>
void positions_of(PlaceOf<T>* best, const T* x, int64_t n, int64_t cols, int64_t step) {
  const int64_t line_step = columns ? 1 : n;
  using Place = PlaceOf<T>;
  Compared<T> top[kMaxColumns];
  Place place[kMaxColumns] = {};
  for (int64_t c = 0; c < cols; ++c) top[c] = Compared<T>(x[c * line_step]);
  for (int64_t e = 1; e < n; ++e)
    for (int64_t c = 0; c < cols; ++c) {
      auto value = Compared<T>(x[e * step + c * line_step]), old = top[c];
      Place take = -Place(least ? !(value >= old) : !(value <= old)) & -Place(old == old);
      place[c] = (place[c] & ~take) | (Place(e) & take);
      top[c] = take ? value : old;
    }
  std::copy_n(place, cols, best);
}

template <class T, bool least>
void max_typed(const Launch& launch, OutView values, OutView index, View x, const Around& from) {
  // Short lines that are contiguous go side by side, as columns do.
  int64_t n = from.extent, step = from.inner;
  bool columns = step > 1, lines = !columns && n <= kShortLine;
  int64_t across = lines ? from.outer : from.inner, outer = lines ? 1 : from.outer;
  int64_t blocks = (across + kMaxColumns - 1) / kMaxColumns, line_step = columns ? 1 : n;
  auto keep = [&](int64_t i, const T* first, int64_t best) {
    if (values.defined()) put(values.as<T>()[i], first[best * step], values.beta != 0);
    if (index.defined()) put(index.as<int64_t>()[i], best, index.beta != 0);
  };
  auto one = [&](int64_t o, int64_t first) {
    const T* at = x.as<T>() + o * n * step + first * line_step;
    if (!columns && !lines) return keep(o, at, position_of<least>(x.dtype, at, n));
    int64_t count = std::min(kMaxColumns, across - first);
    PlaceOf<T> best[kMaxColumns];
    if (columns)
      positions_of<least, true>(best, at, n, count, step);
    else
      positions_of<least, false>(best, at, n, count, step);
    for (int64_t c = 0; c < count; ++c) keep(o * across + first + c, at + c * line_step, best[c]);
  };
  parallel_for(launch.threads, outer * blocks, grain_for(n * std::min(across, kMaxColumns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) one(i / blocks, i % blocks * kMaxColumns);
               });
}

void max_dim(const Launch& launch, OutView values, OutView index, View x, int dim, bool least) {
  if (values.numel() == 0) return;
  Around from(x.shape, dim);
  SG_CHECK(from.inner == 1 || from.extent <= std::numeric_limits<int32_t>::max(), least ? "min" : "max", ": dimension ",
           dim, " of ", x.shape, " has too many elements; move it to the end");
  SG_ASSERT(from.extent > 0, "max_dim over an empty dimension of ", x.shape);
  dispatch(x.dtype,
           [&]<class T>() { (least ? max_typed<T, true> : max_typed<T, false>)(launch, values, index, x, from); });
}

const Each registered(kernels::max_dim, kAll, max_dim);

}  // namespace
}  // namespace shardgrad::cpu
