#pragma once
// Attention's scratch memory, and how heads come there and go from there.

#include <shardgrad/kernels/cpu/isa/math.h>
#include <shardgrad/kernels/cpu/isa/tile.h>
#include <shardgrad/kernels/cpu/isa/uniform.h>
#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kQueries = 4 * kRows, kKeys = kKeyBlock;  // that meet at a time; kKeys is a multiple of every panel

// The rows of keys (values) that lie side by side, transposed, where queries meet them.
template <class C> constexpr int64_t kPanel = kColumnVectors* Pack<C>::width;

// A task's scratch memory. Rows of heads are whole vectors, with zeros at the end.
template <class C> struct Room {
  int64_t width, line, used = 0;  // elements from row to row of a head, and of scores; in all
  C *q, *dy = nullptr, *sums;     // of kQueries rows; sums: y or dq
  C *scores, *slopes = nullptr, *uniform, *staging;
  C *key_panels, *value_panels = nullptr, *rows;  // rows: values, in backward keys
  C *dk = nullptr, *dv = nullptr;

  Room(C* base, int64_t places, int64_t depth, bool backward)
      : width(round_up(depth, Pack<C>::width)),
        line(smaller(kKeys, round_up(places, kPanel<C>)) + kPanel<C>) {  // a product reads up to kRows more
    int64_t panels = round_up(places, kPanel<C>) * width;
    auto take = [&](int64_t n) {
      C* at = base ? base + used : nullptr;
      used += round_up(n, 64 / int64_t(sizeof(C)));
      return at;
    };
    q = take(kQueries * width);
    sums = take(kQueries * width);
    scores = take(kQueries * line);
    uniform = take(line + 4 * kPhilox);  // drawn from before the first one on, in blocks
    staging = take(kPanel<C> * width);
    key_panels = take(panels);
    rows = take(panels);
    if (!backward) return;
    dy = take(kQueries * width);
    slopes = take(kQueries * line);
    value_panels = take(panels);
    dk = take(panels);
    dv = take(panels);
  }
};

// Queries that meet keys, counted from the first places that are seen.
struct Meeting {
  int64_t query, queries, key, keys;
  // How many of these keys query `query + row` sees.
  SG_INLINE int64_t seen_by(int64_t row) const { return smaller(keys, query + row + 1 - key); }
};

// to = factor · x, row by row.
template <class T>
SG_INLINE void bring(ScalarOf<T>* to, int64_t width, const T* x, int64_t step, int64_t rows, int64_t depth,
                     double factor = 1) {
  auto times = splat<VectorOf<T>>(ScalarOf<T>(factor));
  for (int64_t r = 0; r < rows; ++r, to += width, x += step)
    for_vectors<T>(depth, [&](int64_t c, auto read, auto) { store(to + c, read(x + c) * times); });
}

template <class T>
void bring_panels(ScalarOf<T>* to, const Room<ScalarOf<T>>& room, const T* x, int64_t step, int64_t rows,
                  int64_t depth) {
  using C = ScalarOf<T>;
  constexpr int64_t panel = kPanel<C>, vector = Pack<C>::width;
  for (int64_t first = 0; first < rows; first += panel, to += panel * room.width) {
    int64_t n = smaller(panel, rows - first);
    bring(room.staging, room.width, x + first * step, step, n, depth);
    memset(room.staging + n * room.width, 0, size_t((panel - n) * room.width) * sizeof(C));
    for (int64_t c = 0; c < panel; c += vector)
      for (int64_t p = 0; p < room.width; p += vector)
        transpose_square(to + p * panel + c, panel, room.staging + c * room.width + p, room.width);
  }
}

// to = factor · from, or to += factor · from.
template <class T>
SG_INLINE void put_row(T* to, const ScalarOf<T>* from, int64_t depth, ScalarOf<T> factor, bool accumulate) {
  auto times = splat<VectorOf<T>>(factor);
  for_vectors<T>(depth, [&](int64_t c, auto read, auto write) {
    auto value = load(from + c) * times;
    write(to + c, accumulate ? read(to + c) + value : value);
  });
}

// The largest of `top` and a row's scores; whole vectors of them are read.
template <class C> SG_INLINE C largest_of(const C* s, int64_t count, C top) {
  constexpr int64_t width = Pack<C>::width;
  int64_t whole = count / width * width, rest = count - whole;
  auto high = splat<VectorOf<C>>(top);
  for (int64_t c = 0; c < whole; c += width) high = max(high, load(s + c));
  if (rest) high = max(high, keep_first(load(s + whole), rest, high));
  return largest(high);
}

// Makes exp(score - top) of a row's scores, with the largest of them and of those before as top; total is their sum.
// Gives the factor by which sums under the old top count less.
template <class C> SG_INLINE C exponentials(C* s, int64_t count, C& top, C& total) {
  using V = VectorOf<C>;
  constexpr int64_t width = Pack<C>::width;
  int64_t whole = count / width * width, rest = count - whole;
  V added{};
  C next = largest_of(s, count, top);
  V shift = splat<V>(next == -__builtin_inff() ? C(0) : next);  // of -inf alone comes 0 here, and NaN of their sum
  for (int64_t c = 0; c < count; c += width) {
    V e = exp(load(s + c) - shift);
    store(s + c, e);
    added += c < whole ? e : keep_first(e, rest, V{});
  }
  C fading = next == top ? C(1) : exp(splat<V>(top - next))[0];
  top = next;
  total = total * fading + sum(added);
  return fading;
}

}  // namespace
}  // namespace shardgrad::cpu
