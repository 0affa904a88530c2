#pragma once
// Attention of one place's queries to cached keys and values, in three steps, so that threads may share the blocks of
// keys of a long cache: scores, with the largest of each block; weights under the largest score so far, and their sums;
// the sums of all blocks, in order. Each element is made as attention.cpp makes it, so it has the same bits.

#include <shardgrad/kernels/cpu/isa/attention.h>
#include <shardgrad/kernels/cpu/isa/few_rows.h>

namespace shardgrad::cpu {
namespace {

// Scratch memory. Of scores there is a line for each head; of the rest a row, or a number, for each block and head.
template <class C> struct CachedRoom {
  int64_t heads, blocks, width, line, used = 0;
  C *scores, *sums, *tops, *totals, *fadings;

  CachedRoom(void* base, int64_t heads, int64_t keys, int64_t depth)
      : heads(heads), blocks((keys + kKeys - 1) / kKeys), width(round_up(depth, Pack<C>::width)), line(blocks * kKeys) {
    auto take = [&](int64_t n) {
      C* at = base ? static_cast<C*>(base) + used : nullptr;
      used += round_up(n, 64 / int64_t(sizeof(C)));
      return at;
    };
    scores = take(heads * line);
    sums = take(blocks * heads * width);
    tops = take(blocks * heads);
    totals = take(blocks * heads);
    fadings = take(blocks * heads);
  }
  explicit CachedRoom(const CachedAttention& t) : CachedRoom(t.workspace, t.heads, t.keys, t.depth) {}

  C* scores_of(int64_t head, int64_t block) const { return scores + head * line + block * kKeys; }
  C* sums_of(int64_t head, int64_t block) const { return sums + (block * heads + head) * width; }
};

template <class T> void cached_scores(const CachedAttention& t, int64_t block) {
  using C = ScalarOf<T>;
  CachedRoom<C> room(t);
  int64_t first = block * kKeys, keys = smaller(kKeys, t.keys - first);
  C* q = room.sums_of(0, block);  // until sums come there
  bring(q, room.width, static_cast<const T*>(t.q), t.depth, t.heads, t.depth, t.scale);
  for (int64_t head = 0; head < t.heads; head += kFewRows)
    few_rows<T>({.m = smaller(kFewRows, t.heads - head),
                 .n = keys,
                 .k = t.depth,
                 .a = q + head * room.width,
                 .a_row = room.width,
                 .b = static_cast<const T*>(t.k) + first * t.depth,
                 .c = room.scores_of(head, block),
                 .c_row = room.line},
                t.depth);
  for (int64_t head = 0; head < t.heads; ++head)
    room.tops[block * t.heads + head] = largest_of(room.scores_of(head, block), keys, C(-__builtin_inff()));
}

// Sums of values by the weights of `count` heads at a time, for heads from `head` on; gives the first that is left.
template <class T, int count>
int64_t sum_values(const CachedAttention& t, const CachedRoom<ScalarOf<T>>& room, int64_t block, int64_t head) {
  using V = VectorOf<T>;
  int64_t first = block * kKeys, keys = smaller(kKeys, t.keys - first);
  const T* values = static_cast<const T*>(t.v) + first * t.depth;
  for (; head + count <= t.heads; head += count) {
    const auto* weights = room.scores_of(head, block);
    auto* to = room.sums_of(head, block);
    for_vectors<T>(t.depth, [&](int64_t c, auto read, auto write) {
      V acc[count] = {};
      for (int64_t p = 0; p < keys; ++p) {
        V row = read(values + p * t.depth + c);
#pragma GCC unroll 4
        for (int h = 0; h < count; ++h) acc[h] = fma(splat<V>(weights[h * room.line + p]), row, acc[h]);
      }
#pragma GCC unroll 4
      for (int h = 0; h < count; ++h) write(to + h * room.width + c, acc[h]);
    });
  }
  return head;
}

template <class T> void cached_sums(const CachedAttention& t, int64_t block) {
  using C = ScalarOf<T>;
  CachedRoom<C> room(t);
  int64_t keys = smaller(kKeys, t.keys - block * kKeys);
  for (int64_t head = 0; head < t.heads; ++head) {
    C top = -__builtin_inff(), total = 0;
    for (int64_t before = 0; before < block; ++before) {
      C largest = room.tops[before * t.heads + head];
      top = largest > top ? largest : top;
    }
    room.fadings[block * t.heads + head] = exponentials(room.scores_of(head, block), keys, top, total);
    room.totals[block * t.heads + head] = total;
  }
  sum_values<T, 1>(t, room, block, sum_values<T, 4>(t, room, block, 0));
}

template <class T> void cached_result(const CachedAttention& t, int64_t head) {
  using C = ScalarOf<T>;
  CachedRoom<C> room(t);
  C *sums = room.sums_of(head, 0), total = 0;
  for (int64_t block = 0; block < room.blocks; ++block) {
    C fading = room.fadings[block * t.heads + head];
    total = total * fading + room.totals[block * t.heads + head];
    if (block == 0) continue;
    if (fading != 1) put_row(sums, sums, t.depth, fading, false);
    put_row(sums, room.sums_of(head, block), t.depth, C(1), true);
  }
  put_row(static_cast<T*>(t.y) + head * t.depth, sums, t.depth, C(1) / total, t.accumulate);
}

template <class T> size_t cached_workspace(int64_t heads, int64_t keys, int64_t depth) {
  using C = ScalarOf<T>;
  return size_t(CachedRoom<C>(nullptr, heads, keys, depth).used) * sizeof(C);
}

}  // namespace
}  // namespace shardgrad::cpu
