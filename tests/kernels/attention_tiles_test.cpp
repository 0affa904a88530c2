// Attention in 16 bits with heads that GPUs take by tiles of 64 queries and keys.

#include <tests/kernels/attention_case.h>
#include <tests/kernels/placed.h>

namespace shardgrad::test {
namespace {

constexpr DType kHalves[] = {DType::bf16, DType::f16};

TEST(AttentionTiles, MatchTheReference) {
  for (DType dtype : kHalves) {
    expect_attention(dtype, {2, 17, 1, 1, 16}, 2);
    expect_attention(dtype, {1, 65, 2, 1, 32}, 2);
    expect_attention(dtype, {1, 64, 1, 1, 64}, 2);
    expect_attention(dtype, {1, 66, 1, 1, 128}, 2);
    expect_attention(dtype, {1, 1, 4, 2, 48}, 2);
  }
}

// Starts of which a last key is the first of another piece, or the last one that a tile of queries does not see.
TEST(AttentionTiles, MatchTheReferenceWithDropoutAndPadding) {
  for (DType dtype : kHalves) {
    expect_attention(dtype, {6, 80, 1, 1, 16, 0, {0, 2, 15, 47, 79, 80}}, 4);
    for (int64_t depth : {64, 80}) {
      expect_attention(dtype, {1, 20, 2, 1, depth, 0.3}, 4);
      expect_attention(dtype, {1, 67, 2, 1, depth, 0.5, {3}}, 4);
    }
    expect_attention(dtype, {1, 20, 1, 1, 16, 0.2}, 4);
  }
}

/// Of every width that there is, and of some that fill it in part. On the simulator its race checker watches.
void expect_attention_at(std::initializer_list<int64_t> all_places, std::initializer_list<int64_t> depths) {
  for (int64_t places : all_places)
    for (int64_t depth : depths) {
      expect_attention(DType::bf16, {1, places, 1, 1, depth}, 3);
      expect_attention(DType::f16, {1, places, 2, 1, depth, 0.1, {double(places / 3)}}, 4);
    }
}

// On both sides of where tiles, the rows of a warp and the keys that are met at a time end.
TEST(AttentionTiles, MatchTheReferenceAtLengthsWithinATile) { expect_attention_at({1, 33, 64}, {16, 64, 80, 128}); }
TEST(AttentionTilesSlow, MatchTheReferenceAtMoreLengthsWithinATile) {
  expect_attention_at({2, 3, 8, 15, 16, 17, 31, 32, 47, 48, 49, 62, 63}, {16, 64, 80, 128});
}
TEST(AttentionTilesSlow, MatchTheReferenceAtLengthsWithinThreeTiles) {
  expect_attention_at({65, 96, 127, 128, 129, 192}, {16, 64, 80, 128});
}
TEST(AttentionTilesSlow, MatchTheReferenceAtLengthsBeyondThreeTiles) {
  expect_attention_at({193, 256, 257}, {16, 64, 80, 128});
}
TEST(AttentionTilesSlow, MatchTheReferenceAtOtherWidths) { expect_attention_at({15, 64, 129, 193}, {32, 48, 96, 112}); }

TEST(AttentionTiles, CachedMatchTheReferenceAndReadNothingBeyond) {
  for (DType dtype : kHalves) {
    expect_cached_attention(dtype, {2, 1, 70, 4, 2, 64}, 2);
    expect_cached_attention(dtype, {1, 66, 3, 2, 1, 32}, 2);
    expect_cached_attention(dtype, {2, 2, 62, 1, 1, 80, {1, 64}}, 2);
  }
}

// Row t of a call on all places and of one on place t alone, from a cache: the bits of both, wherever t lies in its
// tile.
TEST(AttentionTiles, CachedHaveTheBitsOfAttention) {
  Context context;
  for (DType dtype : kHalves)
    for (int64_t depth : {32, 64, 128}) {
      AttentionCase c{2, 140, 2, 1, depth, 0, {0, 37}};
      Buffer qkv = Buffer::random(c.qkv(), dtype, -3, 3), y(c.y(), dtype), starts = Buffer::labels({0, 37});
      kernel_of(kernels::attention, dtype)(1, y.out(), {}, qkv.in(), starts.in(), c.args());
      Buffer keys({2, 1, c.places, depth}, dtype), values = keys;
      for (int64_t i = 0; i < keys.numel(); ++i) {
        int64_t from = (i / depth * 4 + 2) * depth + i % depth;
        keys.set(i, qkv.get(from)), values.set(i, qkv.get(from + depth));
      }
      for (int64_t place : {0, 36, 37, 63, 64, 100, 139}) {
        Buffer row({2, 1, 4 * depth}, dtype), result({2, 1, 2 * depth}, dtype);
        for (int64_t i = 0; i < row.numel(); ++i)
          row.set(i, qkv.get((i / (4 * depth) * c.places + place) * 4 * depth + i % (4 * depth)));
        Buffer seen = Buffer::labels({0, std::min<int64_t>(37, place + 1)});
        kernel_of(kernels::attention_cached, dtype)(2, result.poison().out(), row.in(), keys.in(), values.in(),
                                                    seen.in(), {2, 1, c.args().scale, place});
        for (int64_t i = 0; i < result.numel(); ++i)
          ASSERT_EQ(result.get(i), y.get((i / (2 * depth) * c.places + place) * 2 * depth + i % (2 * depth)))
              << dtype << ", depth " << depth << ", place " << place << ", element " << i;
      }
    }
}

TEST(AttentionTiles, APaddedSampleHasTheBitsOfTheSampleAlone) {
  Context context;
  for (DType dtype : kHalves) {
    AttentionCase padded{1, 100, 2, 1, 64, 0, {27}}, alone{1, 73, 2, 1, 64};
    const int64_t row = 4 * 64;
    Buffer qkv = Buffer::random(padded.qkv(), dtype, -2, 2), dy = Buffer::random(padded.y(), dtype, -1, 1, 3);
    Buffer own(alone.qkv(), dtype), own_dy(alone.y(), dtype), starts = Buffer::labels({27});
    for (int64_t i = 0; i < own.numel(); ++i) own.set(i, qkv.get(27 * row + i));
    for (int64_t i = 0; i < own_dy.numel(); ++i) own_dy.set(i, dy.get(27 * 128 + i));
    auto run = [&](const AttentionCase& c, const Buffer& x, const Buffer& g, View begins) {
      Buffer y(c.y(), dtype), lse(c.lse(), DType::f32), dx(c.qkv(), dtype);
      kernel_of(kernels::attention, dtype)(1, y.poison().out(), lse.poison().out(), x.in(), begins, c.args());
      kernel_of(kernels::attention_backward, dtype)(1, dx.poison().out(), g.in(), x.in(), y.in(), lse.in(), begins,
                                                    c.args());
      std::vector<double> all = y.values(), more = dx.values();
      all.erase(all.begin(), all.end() - 73 * 128), more.erase(more.begin(), more.end() - 73 * row);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    EXPECT_EQ(run(padded, qkv, dy, starts.in()), run(alone, own, own_dy, {})) << dtype;
  }
}

// Rows that are copied 16 bytes at a time, beside those that move element by element.
TEST(AttentionTiles, TheBitsAreThoseOfAnyAddress) {
  Context context;
  for (DType dtype : kHalves)
    for (int64_t depth : {32, dtype == DType::bf16 ? 64 : 80}) {
      AttentionCase c{2, depth == 64 ? 130 : 70, 2, 1, depth, 0, {0, 37}};
      Buffer qkv = Buffer::random(c.qkv(), dtype, -2, 2), dy = Buffer::random(c.y(), dtype, -1, 1, 3);
      Buffer starts = Buffer::labels({0, 37}), keys = Buffer::random({2, 1, 160, depth}, dtype, -1, 1, 4);
      std::vector<std::vector<double>> found[2];
      for (bool at_a_pack : {true, false}) {
        Placed x(qkv, at_a_pack), g(dy, at_a_pack), y(dy, at_a_pack), dqkv(qkv, at_a_pack), k(keys, at_a_pack), z = y;
        Buffer lse(c.lse(), DType::f32);
        kernel_of(kernels::attention, dtype)(1, y.out(1), lse.out(), x.in(), starts.in(), c.args());
        kernel_of(kernels::attention_backward, dtype)(1, dqkv.out(), g.in(), x.in(), y.in(), lse.in(), starts.in(),
                                                      c.args());
        kernel_of(kernels::attention_cached, dtype)(1, z.out(), x.in(), k.in(), k.in(), starts.in(),
                                                    {2, 1, c.args().scale, 10});
        found[at_a_pack] = {y.values(), lse.values(), dqkv.values(), z.values()};
      }
      for (size_t i = 0; i < found[0].size(); ++i) EXPECT_EQ(found[0][i], found[1][i]) << dtype << ", result " << i;
    }
}

enum Part { query, key, value, gradient };

/// Whether a row of y, dq, dk or dv is reached by element 5 of a part of place `spoilt`.
bool is_reached(Part spoilt_part, int64_t spoilt, bool of_y, Part part, int64_t place) {
  bool later = place >= spoilt, earlier = place <= spoilt;
  switch (spoilt_part) {
    case query:  // the scores of this query, and what passes through them
      return of_y || part == query ? place == spoilt : earlier;
    case key:  // the scores of all later queries, which see every key
      return of_y || part == query ? later : true;
    case value:  // later results, and the slopes of those
      return of_y || part == query ? later : part == key;
    default:  // the slopes of this query, and the values that it sees
      return !of_y && (part == query ? place == spoilt : earlier);
  }
}

// By weights that are 0 nothing comes to an earlier query or a later key, and nothing is lost where it is seen.
TEST(AttentionTiles, WhatIsNotFiniteIsInAllThatSeesItAndInNothingElse) {
  Context context;
  const AttentionCase c{1, 80, 1, 1, 64};
  const int64_t spoilt = 41;
  for (DType dtype : kHalves)
    for (Part part : {query, key, value, gradient}) {
      Buffer qkv = Buffer::random(c.qkv(), dtype, -1, 1), dy = Buffer::random(c.y(), dtype, -1, 1, 3);
      Buffer y[2], dqkv[2];
      for (bool bad : {false, true}) {
        if (bad && part == gradient)
          dy.set(spoilt * c.depth + 5, INFINITY);
        else if (bad)
          qkv.set((spoilt * 3 + int(part)) * c.depth + 5, NAN);
        Buffer lse(c.lse(), DType::f32);
        y[bad] = Buffer(c.y(), dtype), dqkv[bad] = Buffer(c.qkv(), dtype);
        kernel_of(kernels::attention, dtype)(1, y[bad].poison().out(), lse.poison().out(), qkv.in(), {}, c.args());
        kernel_of(kernels::attention_backward, dtype)(1, dqkv[bad].poison().out(), dy.in(), qkv.in(), y[bad].in(),
                                                      lse.in(), {}, c.args());
      }
      auto expect = [&](const Buffer(&results)[2], bool of_y) {
        for (int64_t i = 0; i < results[0].numel(); ++i) {
          int64_t row = i / c.depth, place = of_y ? row : row / 3;
          double clean = results[0].get(i), with = results[1].get(i);
          bool reached = is_reached(part, spoilt, of_y, Part(of_y ? 0 : row % 3), place);
          ASSERT_TRUE(!reached ? with == clean : i % c.depth != 5 || !std::isfinite(with))
              << dtype << ", spoilt " << part << ": " << (of_y ? "y" : "dqkv") << " of place " << place << ", part "
              << row % 3 << ", element " << i % c.depth << " is " << with << ", without it " << clean;
        }
      };
      expect(y, true);
      expect(dqkv, false);
    }
}

// A score of -infinity has weight 0, and 0 times the key that made it is no number.
TEST(AttentionTiles, AKeyOfMinusInfinityIsNotLostInTheGradientOfThoseThatSeeIt) {
  Context context;
  const AttentionCase c{1, 80, 1, 1, 64};
  for (DType dtype : kHalves) {
    Buffer qkv = Buffer::random(c.qkv(), dtype, 0.1, 1), dy = Buffer::random(c.y(), dtype, -1, 1, 3), y(c.y(), dtype);
    qkv.set((41 * 3 + 1) * c.depth + 5, -INFINITY);
    Buffer lse(c.lse(), DType::f32), dqkv(c.qkv(), dtype);
    kernel_of(kernels::attention, dtype)(1, y.out(), lse.out(), qkv.in(), {}, c.args());
    kernel_of(kernels::attention_backward, dtype)(1, dqkv.out(), dy.in(), qkv.in(), y.in(), lse.in(), {}, c.args());
    for (int64_t place = 0; place < c.places; ++place) {
      EXPECT_TRUE(std::isfinite(y.get(place * c.depth + 5))) << dtype << ", place " << place;
      EXPECT_EQ(std::isfinite(dqkv.get(place * 3 * c.depth + 5)), place < 41) << dtype << ", place " << place;
    }
  }
}

}  // namespace
}  // namespace shardgrad::test
