#include <tests/kernels/attention_case.h>

namespace shardgrad::test {
namespace {

TEST(AttentionKernels, MatchTheReference) {
  for (DType dtype : kFloats) {
    expect_attention(dtype, {0, 3, 2, 1, 4});
    expect_attention(dtype, {2, 0, 2, 1, 4});
    expect_attention(dtype, {2, 1, 1, 1, 8});
    expect_attention(dtype, {1, 2, 2, 1, 16});
    expect_attention(dtype, {1, 13, 3, 1, 7});
    expect_attention(dtype, {2, 11, 4, 2, 5, 0.3});
    expect_attention(dtype, {3, 9, 2, 2, 4, 0.5, {0, 4, 9}});
    expect_attention(dtype, {1, 33, 1, 1, 20, 0, {2}});
  }
}

// Forward and backward once, which on the simulator says that they are without races and read nothing beyond.
void expect_attention_once(const AttentionCase& c) {
  SCOPED_TRACE(concat(c.places, " places of depth ", c.depth, ", ", c.heads, " heads"));
  Buffer qkv = Buffer::random(c.qkv(), DType::f32, -1, 1), dy = Buffer::random(c.y(), DType::f32, -1, 1, 3), starts;
  if (!c.starts.empty()) starts = Buffer::of({c.samples}, DType::i64, c.starts);
  Buffer y(c.y(), DType::f32), lse(c.lse(), DType::f32), dqkv(c.qkv(), DType::f32);
  Buffer right_y = y, right_lse = lse, right_dqkv = dqkv;
  reference::attention(right_y.out(), right_lse.out(), qkv.in(), starts.in(), c.args());
  reference::attention_backward(right_dqkv.out(), dy.in(), qkv.in(), right_y.in(), right_lse.in(), starts.in(),
                                c.args());
  Context context;
  kernel_of(kernels::attention, DType::f32)(1, y.poison().out(), lse.poison().out(), qkv.in(), starts.in(), c.args());
  kernel_of(kernels::attention_backward, DType::f32)(1, dqkv.poison().out(), dy.in(), qkv.in(), y.in(), lse.in(),
                                                     starts.in(), c.args());
  expect_close(y, right_y, y, 0, {32}, "y");
  expect_close(lse, right_lse, lse, 0, {32}, "lse");
  expect_close(dqkv, right_dqkv, dqkv, 0, {64}, "dqkv");
}

TEST(AttentionKernels, MatchTheReferenceWithHeadsAsWideAsModelsHaveThem) {
  for (int64_t depth : {16, 64, 80, 128})
    for (int64_t places : {1, 31, 33, 64}) expect_attention_once({1, places, 1, 1, depth});
}

// A warp takes 32 keys at a time: wide heads on both sides of where it ends.
TEST(AttentionKernelsSlow, MatchTheReferenceAtLengthsUpTo257) {
  for (int64_t places = 1; places <= 257; ++places)
    for (int64_t depth : {16, 64, 80, 128}) {
      bool at_an_end = (places + 1) % 32 < 3;
      if (depth == 16 || at_an_end) expect_attention_once({1, places, 1, 1, depth});
    }
}

TEST(AttentionKernelsSlow, MatchTheReferenceWithWideHeadsThatShareKeysBehindPaddingWithDropout) {
  for (int64_t depth : {64, 80, 128})
    for (int64_t places : {33, 65, 257}) expect_attention_once({1, places, 2, 1, depth, 0.1, {double(places / 3)}});
}

// On both sides of where vectors, panels, pieces in registers and blocks of queries end.
TEST(CpuAttention, MatchesTheReferenceAtEverySizeOfItsPieces) {
  for (int64_t places : {4, 5, 6, 7, 12, 15, 16, 17, 24, 25, 31, 32, 33, 47, 48, 49, 65})
    for (int64_t depth : {8, 16, 20}) {
      expect_attention(DType::f32, {1, places, 2, 1, depth, places % 2 ? 0.2 : 0});
      expect_attention(DType::f64, {1, places, 1, 1, depth});
    }
}

// More keys than meet a query at a time, and heads for three threads.
TEST(CpuAttention, MatchesTheReferenceBeyondItsBlocksOfKeys) {
  for (DType dtype : {DType::f32, DType::f64}) {
    expect_attention(dtype, {1, 530, 2, 1, 8});
    expect_attention(dtype, {1, 300, 1, 1, 20, 0.1, {41}});
  }
  expect_attention(DType::f32, {2, 65, 4, 2, 64, 0.1});
  expect_attention(DType::bf16, {1, 257, 3, 3, 16});
}

TEST(CpuAttention, ALargerScoreInALaterBlockTakesOver) {
  AttentionCase c{1, 520, 1, 1, 8};
  Buffer qkv = Buffer::random(c.qkv(), DType::f32, -1, 1);
  for (int64_t place : {100, 300, 519})  // keys of which each is twice as long as the one before
    for (int64_t n = 0; n < 8; ++n) qkv.set((place * 3 + 1) * 8 + n, double(place) / 50);
  std::array<Buffer, 2> results{Buffer(c.y(), DType::f32), Buffer(c.lse(), DType::f32)};
  expect_like_reference(SG_BOTH(attention), DType::f32, results, {200}, qkv, Buffer(), c.args());
}

// What is not a number at later places must not come to earlier ones by way of weights that are 0.
TEST(AttentionKernels, WhatComesLaterIsNotRead) {
  Context context;
  AttentionCase c{1, test_device() == DeviceKind::cpu ? 70 : 20, 2, 1, 8};
  int64_t seen = c.places - 7, row = 4 * c.depth;
  for (DType dtype : kFloats) {
    Buffer qkv = Buffer::random(c.qkv(), dtype, -1, 1), dy = Buffer::random(c.y(), dtype, -1, 1, 3), spoilt = qkv;
    for (int64_t i = seen * row; i < qkv.numel(); ++i) spoilt.set(i, NAN);
    auto forward = kernel_of(kernels::attention, dtype);
    auto backward = kernel_of(kernels::attention_backward, dtype);
    std::vector<double> results[2];
    for (bool bad : {false, true}) {
      const Buffer& in = bad ? spoilt : qkv;
      Buffer y(c.y(), dtype), lse(c.lse(), lse_dtype(dtype)), dqkv(c.qkv(), dtype);
      forward(2, y.poison().out(), lse.poison().out(), in.in(), {}, c.args());
      backward(2, dqkv.poison().out(), dy.in(), in.in(), y.in(), lse.in(), {}, c.args());
      for (int64_t i = 0; i < seen * 2 * c.depth; ++i) results[bad].push_back(y.get(i));
      for (int64_t i = 0; i < seen * row; ++i)  // queries only: later ones see these keys
        if (i % row < 2 * c.depth) results[bad].push_back(dqkv.get(i));
    }
    EXPECT_EQ(results[0], results[1]) << dtype;
  }
}

// Keys get nothing from earlier queries either.
TEST(AttentionKernels, WhatCameEarlierIsNoPartOfALaterKeysGradient) {
  Context context;
  AttentionCase c{1, test_device() == DeviceKind::cpu ? 70 : 20, 1, 1, 8};
  int64_t spoilt = 7, row = 3 * c.depth;
  Buffer qkv = Buffer::random(c.qkv(), DType::f32, -1, 1), dy = Buffer::random(c.y(), DType::f32, -1, 1, 3);
  for (int64_t i = 0; i < spoilt; ++i)
    for (int64_t n = 0; n < c.depth; ++n) qkv.set(i * row + n, INFINITY);  // the queries
  Buffer y(c.y(), DType::f32), lse(c.lse(), DType::f32), dqkv(c.qkv(), DType::f32);
  kernel_of(kernels::attention, DType::f32)(1, y.out(), lse.out(), qkv.in(), {}, c.args());
  kernel_of(kernels::attention_backward, DType::f32)(1, dqkv.out(), dy.in(), qkv.in(), y.in(), lse.in(), {}, c.args());
  for (int64_t i = 0; i < qkv.numel(); ++i)
    EXPECT_EQ(std::isfinite(dqkv.get(i)), i >= spoilt * row) << "place " << i / row << ", element " << i % row;
}

TEST(CachedAttentionKernels, MatchTheReferenceAndReadNothingBeyond) {
  for (DType dtype : kFloats) {
    expect_cached_attention(dtype, {0, 1, 3, 2, 1, 4});
    expect_cached_attention(dtype, {2, 0, 3, 2, 1, 4});
    expect_cached_attention(dtype, {2, 1, 1, 1, 1, 8});
    expect_cached_attention(dtype, {1, 3, 2, 2, 1, 16});
    expect_cached_attention(dtype, {2, 1, 12, 6, 2, 7});
    expect_cached_attention(dtype, {3, 2, 40, 2, 2, 4, {0, 4, 42}});
  }
}

// On both sides of where vectors and blocks of keys end, and with more heads than rows are multiplied at a time.
TEST(CpuCachedAttention, MatchesTheReferenceAtEverySizeOfItsPieces) {
  for (int64_t first : {1, 14, 15, 16, 31, 63, 255, 256, 511, 600})
    for (int64_t depth : {8, 16, 20, 72}) {
      expect_cached_attention(DType::f32, {1, 1, first, 11, 1, depth});
      expect_cached_attention(DType::bf16, {2, 1, first, 2, 2, depth, {1, 0}});
    }
}

// Row t of a call on all places at once and of one on place t alone, from a cache: the bits of both.
TEST(CachedAttentionKernels, HaveTheBitsOfAttention) {
  Context context;
  bool host = test_device() == DeviceKind::cpu;
  AttentionCase c{2, host ? 530 : 40, 4, 2, 16, 0, {0, 5}};
  for (DType dtype : kFloats) {
    Buffer qkv = Buffer::random(c.qkv(), dtype, -3, 3), y(c.y(), dtype), starts = Buffer::labels({0, 5});
    kernel_of(kernels::attention, dtype)(1, y.out(), {}, qkv.in(), starts.in(), c.args());
    Buffer keys({2, 2, c.places, 16}, dtype), values = keys;
    for (int64_t i = 0; i < keys.numel(); ++i) {
      int64_t sample = i / (2 * c.places * 16), head = i / (c.places * 16) % 2, place = i / 16 % c.places;
      int64_t from = ((sample * c.places + place) * 8 + 4 + head) * 16 + i % 16;
      keys.set(i, qkv.get(from)), values.set(i, qkv.get(from + 2 * 16));
    }
    for (int64_t place : std::vector<int64_t>{4, 5, 17, 33, c.places / 2, c.places - 1}) {
      Buffer row({2, 1, 8 * 16}, dtype), result({2, 1, 4 * 16}, dtype);
      for (int64_t i = 0; i < row.numel(); ++i) row.set(i, qkv.get((i / 128 * c.places + place) * 128 + i % 128));
      kernels::CachedAttentionArgs args{4, 2, c.args().scale, place};
      kernel_of(kernels::attention_cached, dtype)(2, result.poison().out(), row.in(), keys.in(), values.in(),
                                                  starts.in(), args);
      for (int64_t i = 0; i < result.numel(); ++i)
        ASSERT_EQ(result.get(i), y.get((i / 64 * c.places + place) * 64 + i % 64)) << dtype << ", place " << place;
    }
  }
}

TEST(Refusals, AStartOutOfRangeIsRefusedNamingSampleAndStart) {
  Context context;
  AttentionCase c{3, 5, 1, 1, 4};
  Buffer qkv = Buffer::random(c.qkv(), DType::f32), y(c.y(), DType::f32), lse(c.lse(), DType::f32);
  auto kernel = kernel_of(kernels::attention, DType::f32);
  for (int64_t start : {-1, 6}) {
    Buffer starts = Buffer::labels({0, start, 5});
    try {
      kernel(1, y.out(), lse.out(), qkv.in(), starts.in(), c.args());
      ADD_FAILURE() << start;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), concat("attention: the start of sample 1 is ", start, ", outside [0, 6)"));
      EXPECT_EQ(error.kind(), ErrorKind::input);
    }
  }
}

}  // namespace
}  // namespace shardgrad::test
