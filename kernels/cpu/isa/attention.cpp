// Attention by blocks: kQueries queries meet kKeys keys at a time, so that scores stay in the cache and none is written
// to memory. Softmax goes along: what was summed under a smaller maximum is scaled down (Milakov and Gimelshein, arXiv
// 1805.02867). Backward makes the weights again from lse (Dao et al., arXiv 2205.14135). All of its five products, and
// forward's two, are made of one piece in registers (triangle.h).

#include <shardgrad/kernels/cpu/isa/attention.h>
#include <shardgrad/kernels/cpu/isa/attention_cached.h>
#include <shardgrad/kernels/cpu/isa/tables.h>
#include <shardgrad/kernels/cpu/isa/triangle.h>

namespace shardgrad::cpu {
namespace {

// to (queries, keys) = a · panelsᵀ, panels in which no row of a piece sees a key left out.
template <class C>
void meet_keys(const Room<C>& room, C* to, const C* a, const C* panels, int64_t depth, const Meeting& at) {
  for (int64_t c = 0; c < at.keys; c += kPanel<C>)
    for (int64_t r = 0; r < at.queries; r += kRows) {
      int64_t m = smaller(kRows, at.queries - r);
      if (at.key + c >= at.query + r + m) continue;
      tile<C, kColumnVectors>({.m = m,
                               .k = depth,
                               .a = a + r * room.width,
                               .a_row = room.width,
                               .a_col = 1,
                               .b = panels + (at.key + c) * room.width,
                               .b_row = kPanel<C>,
                               .c = to + r * room.line + c,
                               .c_row = room.line});
    }
}

// sums (queries, width) += weights · rows, each query with the keys that it sees.
template <class C> void sum_over_keys(const Room<C>& room, const C* weights, const Meeting& at) {
  for (int64_t r = 0; r < at.queries; r += kRows) {
    int64_t m = smaller(kRows, at.queries - r);
    across<C>({.m = m,
               .k = at.seen_by(r + m - 1),
               .last = at.query + r + 1 - at.key,
               .a = weights + r * room.line,
               .a_row = room.line,
               .a_col = 1,
               .b = room.rows + at.key * room.width,
               .b_row = room.width,
               .c = room.sums + r * room.width,
               .c_row = room.width,
               .accumulate = at.key > 0},
              room.width);
  }
}

// to (keys, width) += weightsᵀ · rows, each key with the queries that see it.
template <class C>
void sum_over_queries(const Room<C>& room, C* to, const C* weights, const C* rows, const Meeting& at) {
  for (int64_t c = 0; c < at.keys; c += kRows)
    across<C>({.m = smaller(kRows, at.keys - c),
               .k = at.queries,
               .first = at.key + c - at.query,
               .a = weights + c,
               .a_row = 1,
               .a_col = room.line,
               .b = rows,
               .b_row = room.width,
               .c = to + (at.key + c) * room.width,
               .c_row = room.width,
               .accumulate = true},
              room.width);
}

// The random numbers of a query's weights; null without dropout.
template <class C>
SG_INLINE const C* draw(const AttentionTask& t, const Room<C>& room, int64_t head, int64_t query, int64_t key,
                        int64_t count) {
  if (t.dropout == 0) return nullptr;
  RandomRange range = t.mask;
  int64_t begin = range.begin + (head * t.length + query) * t.length + key, before = begin % 4;
  auto first = uint64_t(begin) / 4;
  for (int64_t i = 0; i < before + count; i += 4 * kPhilox, first += kPhilox)
    fill_uniform<kPhilox>(room.uniform + i, range, first);
  return room.uniform + before;
}

template <class C> SG_INLINE void drop(const AttentionTask& t, C* s, const C* uniform, int64_t count) {
  using V = VectorOf<C>;
  V limit = splat<V>(C(t.dropout)), kept = splat<V>(C(t.kept));
  for (int64_t c = 0; c < count; c += Pack<C>::width)
    store(s + c, load(uniform + c) >= limit ? load(s + c) * kept : V{});
}

template <class T>
void forward_rows(const AttentionForward& t, const Room<ScalarOf<T>>& room, int64_t head, int64_t query) {
  using C = ScalarOf<T>;
  int64_t queries = smaller(kQueries, t.rows - query);
  C top[kQueries], total[kQueries];
  for (int64_t r = 0; r < kQueries; ++r) top[r] = -__builtin_inff(), total[r] = 0;
  const T* q = static_cast<const T*>(t.q) + query * t.row + head * t.depth;
  bring(room.q, room.width, q, t.row, queries, t.depth, t.scale);
  for (int64_t key = 0; key < query + queries; key += kKeys) {
    Meeting at{query, queries, key, smaller(kKeys, query + queries - key)};
    meet_keys(room, room.scores, room.q, room.key_panels, t.depth, at);
    for (int64_t r = 0; r < queries; ++r) {
      int64_t count = at.seen_by(r);
      if (count <= 0) continue;
      C *s = room.scores + r * room.line, *sums = room.sums + r * room.width;
      C fading = exponentials(s, count, top[r], total[r]);
      if (key > 0 && fading != 1) put_row(sums, sums, room.width, fading, false);
      if (const C* uniform = draw(t, room, head, query + r, key, count)) drop(t, s, uniform, count);
    }
    sum_over_keys(room, room.scores, at);
  }
  T* y = static_cast<T*>(t.y) + query * t.y_row + head * t.depth;
  for (int64_t r = 0; r < queries; ++r, y += t.y_row) {
    put_row(y, room.sums + r * room.width, t.depth, C(1) / total[r], t.accumulate);
    if (!t.lse) continue;
    C *to = static_cast<C*>(t.lse) + head * t.length + query + r, lse = top[r] + log(splat<VectorOf<T>>(total[r]))[0];
    *to = t.accumulate_lse ? *to + lse : lse;
  }
}

template <class T> void forward(const AttentionForward& t) {
  using C = ScalarOf<T>;
  Room<C> room(static_cast<C*>(t.workspace), t.rows, t.depth, false);
  bring_panels(room.key_panels, room, static_cast<const T*>(t.k), t.row, t.rows, t.depth);
  bring(room.rows, room.width, static_cast<const T*>(t.v), t.row, t.rows, t.depth);
  for (int64_t head = 0; head < t.heads; ++head)
    for (int64_t query = 0; query < t.rows; query += kQueries) forward_rows<T>(t, room, head, query);
}

template <class T> SG_INLINE ScalarOf<T> dot(const T* a, const T* b, int64_t n) {
  VectorOf<T> total{};
  for_vectors<T>(n, [&](int64_t c, auto read, auto) { total = fma(read(a + c), read(b + c), total); });
  return sum(total);
}

// Of a query's scores s and its dy · values g: the weights in s, the gradients of the scores in g.
template <class C>
SG_INLINE void slopes_of(const AttentionTask& t, C* s, C* g, const C* uniform, int64_t count, C lse, C mean) {
  using V = VectorOf<C>;
  V shift = splat<V>(lse), center = splat<V>(mean), limit = splat<V>(C(t.dropout)), kept = splat<V>(C(t.kept));
  for (int64_t c = 0; c < count; c += Pack<C>::width) {
    V p = exp(load(s + c) - shift), weight = p, slope = load(g + c);
    if (uniform) {
      V u = load(uniform + c);
      weight = u >= limit ? p * kept : V{};
      slope = u >= limit ? slope * kept : V{};
    }
    store(s + c, weight);
    store(g + c, p * (slope - center));
  }
}

template <class T>
void backward_rows(const AttentionBackward& t, const Room<ScalarOf<T>>& room, int64_t head, int64_t query) {
  using C = ScalarOf<T>;
  int64_t queries = smaller(kQueries, t.rows - query), q_at = query * t.row + head * t.depth;
  int64_t y_at = query * t.y_row + head * t.depth;
  const T *dy = static_cast<const T*>(t.dy) + y_at, *y = static_cast<const T*>(t.y) + y_at;
  const C* lse = static_cast<const C*>(t.lse) + head * t.length + query;
  bring(room.q, room.width, static_cast<const T*>(t.q) + q_at, t.row, queries, t.depth, t.scale);
  bring(room.dy, room.width, dy, t.y_row, queries, t.depth);
  C means[kQueries] = {};  // of the slopes, by the weights
  for (int64_t r = 0; r < queries; ++r) means[r] = dot(dy + r * t.y_row, y + r * t.y_row, t.depth);
  for (int64_t key = 0; key < query + queries; key += kKeys) {
    Meeting at{query, queries, key, smaller(kKeys, query + queries - key)};
    meet_keys(room, room.scores, room.q, room.key_panels, t.depth, at);
    meet_keys(room, room.slopes, room.dy, room.value_panels, t.depth, at);
    for (int64_t r = 0; r < queries; ++r) {
      int64_t count = at.seen_by(r);
      if (count <= 0) continue;
      const C* uniform = draw(t, room, head, query + r, key, count);
      slopes_of(t, room.scores + r * room.line, room.slopes + r * room.line, uniform, count, lse[r], means[r]);
    }
    sum_over_keys(room, room.slopes, at);
    sum_over_queries(room, room.dv, room.scores, room.dy, at);
    sum_over_queries(room, room.dk, room.slopes, room.q, at);
  }
  T* dq = static_cast<T*>(t.dq) + q_at;
  for (int64_t r = 0; r < queries; ++r)
    put_row(dq + r * t.row, room.sums + r * room.width, t.depth, C(t.scale), t.accumulate);
}

template <class T> void backward(const AttentionBackward& t) {
  using C = ScalarOf<T>;
  Room<C> room(static_cast<C*>(t.workspace), t.rows, t.depth, true);
  bring_panels(room.key_panels, room, static_cast<const T*>(t.k), t.row, t.rows, t.depth);
  bring_panels(room.value_panels, room, static_cast<const T*>(t.v), t.row, t.rows, t.depth);
  bring(room.rows, room.width, static_cast<const T*>(t.k), t.row, t.rows, t.depth);
  memset(room.dk, 0, size_t(t.rows * room.width) * sizeof(C));
  memset(room.dv, 0, size_t(t.rows * room.width) * sizeof(C));
  for (int64_t head = 0; head < t.heads; ++head)
    for (int64_t query = 0; query < t.rows; query += kQueries) backward_rows<T>(t, room, head, query);
  for (int64_t r = 0; r < t.rows; ++r) {
    put_row(static_cast<T*>(t.dk) + r * t.row, room.dk + r * room.width, t.depth, C(1), t.accumulate);
    put_row(static_cast<T*>(t.dv) + r * t.row, room.dv + r * room.width, t.depth, C(1), t.accumulate);
  }
}

template <class T> size_t workspace(int64_t rows, int64_t depth, bool backward) {
  using C = ScalarOf<T>;
  return size_t(Room<C>(nullptr, rows, depth, backward).used) * sizeof(C);
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const AttentionLoops attention_loops = {
    .forward = SG_FLOATS(forward),
    .backward = SG_FLOATS(backward),
    .workspace = SG_FLOATS(workspace),
    .cached_scores = SG_FLOATS(cached_scores),
    .cached_sums = SG_FLOATS(cached_sums),
    .cached_result = SG_FLOATS(cached_result),
    .cached_workspace = SG_FLOATS(cached_workspace),
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
