// flip, triangle and scatter against the reference: every dtype, along each dimension, beyond what one thread takes.

#include <numeric>

#include <shardgrad/certify/reference/moves.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

TEST(Flip, TurnsAnyDimensionsOfEveryDtypeRound) {
  for (DType dtype : kAll)
    for (const Shape& shape :
         {Shape{}, Shape{7}, Shape{0}, Shape{1}, Shape{3, 0}, Shape{5, 33}, Shape{4, 1, 6}, Shape{3, 4, 5}})
      for (unsigned dims = 0; dims < 1u << shape.ndim(); ++dims)
        expect_like_reference(SG_BOTH(flip), dtype, one(shape, dtype), {1}, Buffer::random(shape, dtype, 0, 200), dims);
}

TEST(Flip, CutsLongRowsAndManyShortOnesAmongThreads) {
  for (const Shape& shape : {Shape{70001}, Shape{2, 70001}, Shape{4099, 33}})
    for (unsigned dims = 1; dims < 1u << shape.ndim(); ++dims)
      expect_like_reference(SG_BOTH(flip), DType::f32, one(shape, DType::f32), {1}, Buffer::random(shape, DType::f32),
                            dims);
}

TEST(Triangle, KeepsOneSideOfAnyDiagonalOfEveryMatrix) {
  for (DType dtype : kAll)
    for (const Shape& shape : {Shape{1, 1}, Shape{5, 3}, Shape{3, 5}, Shape{0, 3}, Shape{3, 0}, Shape{2, 4, 4}})
      for (int64_t diagonal = -5; diagonal <= 5; ++diagonal)
        for (bool lower : {false, true})
          expect_like_reference(SG_BOTH(triangle), dtype, one(shape, dtype), {1}, Buffer::random(shape, dtype, 0, 200),
                                diagonal, lower);
  for (bool lower : {false, true})
    expect_like_reference(SG_BOTH(triangle), DType::f32, one({3, 200, 180}, DType::f32), {1},
                          Buffer::random({3, 200, 180}, DType::f32), 7, lower);
}

TEST(Triangle, WhatIsLeftOutIsZeroWhateverItWas) {
  Buffer x = Buffer::of({2, 2}, DType::f32, {1, NAN, INFINITY, 2});
  expect_like_reference(SG_BOTH(triangle), DType::f32, one({2, 2}, DType::f32), {0}, x, 0, true);
  expect_like_reference(SG_BOTH(triangle), DType::f32, one({2, 2}, DType::f32), {0}, x, 0, false);
}

// An index that names nothing twice: along `dim`, the numbers [0, extent) from another one on in each line.
Buffer places(const Shape& shape, int dim, int64_t extent) {
  Buffer index(shape, DType::i64);
  for (int64_t i = 0; i < index.numel(); ++i) {
    auto position = reference::position_of(shape, i);
    int64_t all = std::accumulate(position.begin(), position.end(), int64_t(0));
    index.set(i, double((all + 2 * position[size_t(dim)]) % extent));
  }
  return index;
}

TEST(Scatter, PutsWhereTheIndexSaysAndLeavesTheRest) {
  struct Case {
    Shape y, index;
    int dim;
  };
  const Case cases[] = {{{7}, {4}, 0},
                        {{7}, {0}, 0},
                        {{4, 5}, {4, 2}, 1},
                        {{7, 5}, {3, 5}, 0},
                        {{4, 7}, {2, 7}, 1},
                        {{3, 5, 4}, {2, 5, 3}, 1},
                        {{5, 4, 7}, {5, 4, 6}, 2},
                        {{70001}, {40000}, 0}};
  for (DType dtype : kAll)
    for (const auto& [y, shape, dim] : cases)
      expect_like_reference(SG_BOTH(scatter), dtype, one(y, dtype), {1}, Buffer::random(shape, dtype, 0, 30),
                            places(shape, dim, y[dim]), dim);
}

TEST(Scatter, AnIndexOfRowsPutsWholeRows) {
  for (DType dtype : kAll)
    for (auto [y, rows] : {std::pair(Shape{7, 5}, 4), {Shape{8, 2, 3}, 6}, {Shape{4, 70001}, 2}, {Shape{4, 0}, 2}}) {
      Shape src = y.with(0, rows);
      expect_like_reference(SG_BOTH(scatter), dtype, one(y, dtype), {1}, Buffer::random(src, dtype, 0, 30),
                            places({rows}, 0, y[0]), 0);
    }
}

}  // namespace
}  // namespace shardgrad::test
