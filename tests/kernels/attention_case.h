#pragma once
// attention, its backward and attention_cached against their references.

#include <cmath>

#include <shardgrad/certify/reference/attention.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

struct AttentionCase {
  int64_t samples, places, heads, kv_heads, depth;
  double dropout = 0;
  std::vector<double> starts = {};

  Shape qkv() const { return {samples, places, (heads + 2 * kv_heads) * depth}; }
  Shape y() const { return {samples, places, heads * depth}; }
  Shape lse() const { return {samples, heads, places}; }
  kernels::AttentionArgs args() const {
    return {.heads = heads,
            .kv_heads = kv_heads,
            .scale = 1 / std::sqrt(double(depth)),
            .dropout = dropout,
            .seed = 5,
            .stream = 6,
            .first_sample = 3};
  }
};

inline DType lse_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Both operations, within `roundings` for y and twice as many for its backward.
inline void expect_attention(DType dtype, const AttentionCase& c, double roundings = 32) {
  SCOPED_TRACE(concat(c.samples, " samples of ", c.places, ", ", c.heads, " heads (", c.kv_heads, ") of ", c.depth,
                      ", dropout ", c.dropout));
  Buffer qkv = Buffer::random(c.qkv(), dtype, -1, 1), dy = Buffer::random(c.y(), dtype, -1, 1, 3), starts;
  if (!c.starts.empty()) starts = Buffer::of({c.samples}, DType::i64, c.starts);
  Buffer y(c.y(), dtype), lse(c.lse(), lse_dtype(dtype)), none;
  using Two = std::array<Buffer, 2>;
  expect_like_reference(SG_BOTH(attention), dtype, Two{y, lse}, {32}, qkv, starts, c.args());
  expect_like_reference(SG_BOTH(attention), dtype, Two{y, none}, {roundings}, qkv, starts, c.args());
  reference::attention(y.out(), lse.out(), qkv.in(), starts.in(), c.args());
  expect_like_reference(SG_BOTH(attention_backward), dtype, one(c.qkv(), dtype), {2 * roundings}, dy, qkv, y, lse,
                        starts, c.args());
}

struct CachedCase {
  int64_t samples, rows, first, heads, kv_heads, depth;
  std::vector<double> starts = {};
  int64_t spare = 3;  // places of the cache that nobody may read

  kernels::CachedAttentionArgs args() const { return {heads, kv_heads, 1 / std::sqrt(double(depth)), first}; }
};

inline void expect_cached_attention(DType dtype, const CachedCase& c, double roundings = 32) {
  SCOPED_TRACE(concat(c.samples, " samples of ", c.rows, " rows after ", c.first, ", ", c.heads, " heads (", c.kv_heads,
                      ") of ", c.depth));
  int64_t places = c.first + c.rows + c.spare;
  Shape cache{c.samples, c.kv_heads, places, c.depth};
  Buffer qkv = Buffer::random({c.samples, c.rows, (c.heads + 2 * c.kv_heads) * c.depth}, dtype, -1, 1), starts;
  Buffer keys = Buffer::random(cache, dtype, -1, 1, 3), values = Buffer::random(cache, dtype, -1, 1, 4);
  for (int64_t i = 0; i < keys.numel(); ++i)
    if (i / c.depth % places >= c.first + c.rows) keys.set(i, NAN), values.set(i, NAN);
  if (!c.starts.empty()) starts = Buffer::of({c.samples}, DType::i64, c.starts);
  expect_like_reference(SG_BOTH(attention_cached), dtype, one({c.samples, c.rows, c.heads * c.depth}, dtype),
                        {roundings}, qkv, keys, values, starts, c.args());
}

}  // namespace shardgrad::test
