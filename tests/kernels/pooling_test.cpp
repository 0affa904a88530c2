// Pooling of images against the reference: windows that lie side by side, overlap, leave gaps, reach into the padding,
// and images that are no multiple of a vector.

#include <cmath>

#include <shardgrad/certify/reference/images.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

struct PoolCase {
  Shape x;
  Window down, across;
  int64_t more = 0;  // places down, and across, whose windows reach beyond the padding
  bool padding_counts = true;
  Shape y() const { return {x[0], x[1], down.places(x[2]) + more, across.places(x[3]) + more}; }
  kernels::PoolArgs args() const { return {down, across, padding_counts}; }
};

const PoolCase kPoolCases[] = {
    {{2, 3, 6, 10}, {2, 2}, {2, 2}},
    {{2, 2, 5, 67}, {2, 2}, {2, 2}},           // a row and a column that no window sees
    {{1, 2, 9, 70}, {3, 1, 1}, {3, 1, 1}},     // overlapping
    {{2, 1, 17, 41}, {3, 2, 1}, {3, 2, 1}},    // as ResNets begin
    {{1, 2, 8, 9}, {2, 1}, {2, 1}},            // of an even size, and overlapping
    {{1, 2, 11, 50}, {5, 3, 2}, {5, 3, 2}},    // that overlap by two
    {{2, 1, 13, 80}, {2, 5, 1}, {2, 5, 1}},    // with gaps
    {{1, 3, 7, 33}, {7, 7}, {1, 1}},           // one row of places
    {{1, 2, 40, 9}, {3, 2}, {2, 4, 1}},        // no squares
    {{2, 3, 4, 4}, {2, 2}, {2, 2}},            // as wide as the places, from here on
    {{3, 2, 2, 2}, {3, 2, 1}, {3, 2, 1}},      // larger than the image
    {{1, 1, 1, 1}, {1, 1}, {1, 1}},            // one place
    {{1, 2, 3, 5}, {1, 100000}, {1, 100000}},  // a stride longer than the image
    {{2, 2, 9, 7}, {5, 1, 2}, {7, 1, 3}},      // overlapping windows, in the padding on both sides
    {{0, 3, 4, 4}, {2, 2}, {2, 2}},
    {{1, 2, 1, 9}, {1025, 1, 512}, {2, 1}},    // far larger than the image
    {{2, 2, 8, 38}, {3, 2}, {3, 2}, 1},        // with windows that the image ends in
    {{1, 2, 8, 40}, {3, 2, 1}, {3, 2, 1}, 1},  // and the padding before
    {{1, 2, 1, 2}, {4, 3, 1}, {3, 1}, 1},
    {{1, 2, 6, 40}, {2, 2}, {3, 1, 1}, 0, false},
    {{1, 2, 9, 40}, {3, 1, 1}, {2, 1}, 0, false},
    {{1, 2, 9, 70}, {3, 1, 1}, {3, 1, 1}, 0, false},  // whose padding does not count
    {{1, 2, 8, 41}, {3, 2, 1}, {4, 3, 2}, 1, false},
};

Buffer index_of(const PoolCase& each, const Buffer& x) {
  Buffer index(each.y(), DType::i32), y(each.y(), x.dtype());
  reference::max_pool2d(y.out(), index.out(), x.in(), each.args());
  return index;
}

void expect_pooling_like_reference(const PoolCase& each, DType dtype, const Buffer& x) {
  SCOPED_TRACE(concat(each.x, " to ", each.y()));
  Buffer y(each.y(), dtype), index(each.y(), DType::i32), none, dy = Buffer::random(each.y(), dtype, -1, 1, 3);
  using Two = std::array<Buffer, 2>;
  expect_like_reference(SG_BOTH(max_pool2d), dtype, Two{y, index}, {0}, x, each.args());
  expect_like_reference(SG_BOTH(max_pool2d), dtype, Two{y, none}, {0}, x, each.args());
  expect_like_reference(SG_BOTH(max_pool2d_backward), dtype, one(each.x, dtype), {8}, dy, index_of(each, x),
                        each.args());
  expect_like_reference(SG_BOTH(avg_pool2d), dtype, one(each.y(), dtype), {8}, x, each.args());
  expect_like_reference(SG_BOTH(avg_pool2d_backward), dtype, one(each.x, dtype), {8}, dy, each.args());
}

TEST(Pooling, MatchesTheReference) {
  for (DType dtype : kFloats)
    for (const PoolCase& each : kPoolCases) expect_pooling_like_reference(each, dtype, Buffer::random(each.x, dtype));
}

TEST(Pooling, OfPartsThatMayOverlapMatchesTheReference) {
  for (DType dtype : kFloats)
    for (auto [height, width, rows, columns] : {std::array<int64_t, 4>{5, 7, 3, 4}, {3, 2, 7, 5}, {9, 1, 1, 3}}) {
      Shape x{2, 2, height, width}, y{2, 2, rows, columns};
      kernels::PoolArgs args{{2, 1}, {2, 1}, true, true};
      expect_like_reference(SG_BOTH(avg_pool2d), dtype, one(y, dtype), {8}, Buffer::random(x, dtype), args);
      expect_like_reference(SG_BOTH(avg_pool2d_backward), dtype, one(x, dtype), {8}, Buffer::random(y, dtype), args);
    }
}

TEST(Pooling, OfManyImagesHasTheSameBitsForEveryNumberOfThreads) {
  for (const PoolCase& each :
       {PoolCase{{5, 13, 32, 32}, {2, 2}, {2, 2}}, PoolCase{{5, 13, 32, 32}, {3, 2, 1}, {3, 2, 1}}})
    expect_pooling_like_reference(each, DType::f32, Buffer::random(each.x, DType::f32));
}

// Small integers, of which most windows have several of the largest.
TEST(Pooling, OfEqualElementsTheFirstOneIsTaken) {
  for (DType dtype : kFloats)
    for (const PoolCase& each : kPoolCases) {
      Buffer x(each.x, dtype);
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double(i * 7 % 5 / 2));
      expect_pooling_like_reference(each, dtype, x);
    }
}

TEST(Pooling, NaNIsAboveAllAndThePaddingBelowMinusInfinity) {
  for (DType dtype : kFloats)
    for (const PoolCase& each : kPoolCases) {
      Buffer nan = Buffer::random(each.x, dtype), low(each.x, dtype);
      for (int64_t i = 0; i < nan.numel(); i += 5) nan.set(i, i % 3 ? INFINITY : NAN);
      for (int64_t i = 0; i < low.numel(); ++i) low.set(i, -INFINITY);
      Buffer y(each.y(), dtype), index(each.y(), DType::i32);
      for (const Buffer& x : {nan, low})
        expect_like_reference(SG_BOTH(max_pool2d), dtype, std::array<Buffer, 2>{y, index}, {0}, x, each.args());
      expect_like_reference(SG_BOTH(avg_pool2d), dtype, one(each.y(), dtype), {8}, nan, each.args());
    }
}

// 2^24 + 1 + 1 is 2^24 from the left and 2^24 + 2 from the right. Of a narrow image, and of a wide one.
TEST(Pooling, GradientsOfOverlappingWindowsAreAddedInTheirOrder) {
  Context context;
  for (int64_t width : {3, 9}) {
    Shape shape{1, 1, 1, width};
    Buffer dx(shape, DType::f32), dy(shape, DType::f32), index(shape, DType::i32);
    kernels::PoolArgs args{{1, 1}, {3, 1, 1}};
    auto fill = [&](double factor) {
      for (int64_t c = 0; c < width; ++c) dy.set(c, c == 0 ? factor * 0x1p24 : c < 3 ? factor : 0);
    };
    for (int64_t c = 0; c < width; ++c) index.set(c, c < 3 ? 1 : double(c));
    fill(1);
    kernel_of(kernels::max_pool2d_backward, DType::f32)(1, dx.poison().out(), dy.in(), index.in(), args);
    EXPECT_EQ(dx.get(1), 0x1p24) << width;
    fill(3);
    kernel_of(kernels::avg_pool2d_backward, DType::f32)(1, dx.poison().out(), dy.in(), args);
    EXPECT_EQ(dx.get(1), 0x1p24) << width;
  }
}

}  // namespace
}  // namespace shardgrad::test
