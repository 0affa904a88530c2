// Running sums and orders against the reference: along each dimension, beyond a warp, a block and a tile of the sort.

#include <shardgrad/certify/reference/moves.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

using enum DType;

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

// With equal elements among them.
Buffer few_numbers(const Shape& shape, DType dtype) {
  return Buffer::random(shape, dtype, is_floating(dtype) ? -2 : 0, 5);
}

const Shape kLines[] = {{1}, {33}, {0}, {0, 3}, {3, 0}, {257, 3}, {3, 300}, {2, 3, 5}, {2, 1030}};

TEST(Order, RunningSumsGoEitherWayAlongAnyDimension) {
  for (DType dtype : {f32, f64, bf16, f16, i64})
    for (const Shape& shape : kLines)
      for (int dim = 0; dim < shape.ndim(); ++dim)
        for (bool reverse : {false, true})
          expect_like_reference(SG_BOTH(cumsum), dtype, std::array{Buffer(shape, dtype)}, {1},
                                few_numbers(shape, dtype), dim, reverse);
}

TEST(Order, SortsAnyDtypeEitherWayAndKeepsEqualOnesInTheirOrder) {
  for (DType dtype : {f32, f64, bf16, f16, i32, i64, u8})
    for (const Shape& shape : kLines)
      for (int dim = 0; dim < shape.ndim(); ++dim)
        for (bool descending : {false, true})
          expect_like_reference(SG_BOTH(sort), dtype, std::array{Buffer(shape, dtype), Buffer(shape, i64)}, {0},
                                few_numbers(shape, dtype), dim, descending);
}

TEST(Order, GivesTheFirstOnesAloneAndPutsNanLast) {
  Buffer x = Buffer::of({1, 6}, f32, {2, NAN, -1, 2, -INFINITY, -0.0});
  for (bool descending : {false, true})
    for (int64_t wanted : {0, 1, 4, 6})
      expect_like_reference(SG_BOTH(sort), f32, std::array{Buffer({1, wanted}, f32), Buffer({1, wanted}, i64)}, {0}, x,
                            1, descending);
}

void expect_first(const Buffer& x, int64_t wanted, int dim, bool descending) {
  Shape shape = x.shape().with(dim, wanted);
  expect_like_reference(SG_BOTH(sort), x.dtype(), std::array{Buffer(shape, x.dtype()), Buffer(shape, i64)}, {0}, x, dim,
                        descending);
}

// Few of many: what comes too late is passed over, also beside equal ones and NaN.
TEST(Order, GivesTheFirstOfManyEitherWayAlongAnyDimension) {
  for (bool descending : {false, true}) {
    for (int64_t wanted : {1, 3, 40, 700, 2499}) {
      expect_first(Buffer::random({3, 2500}, f32), wanted, 1, descending);
      expect_first(few_numbers({2500, 3}, f32), wanted, 0, descending);
    }
    Buffer x = few_numbers({1, 2500}, f32);
    for (int64_t i = 300; i < 2500; i += 300) x.set(0 + i, NAN);
    expect_first(x, 20, 1, descending);
    expect_first(few_numbers({2, 600, 2}, u8), 5, 1, descending);
  }
}

// On GPUs at most 32, and at most a quarter of a line, are found without a sort: by one warp, by a block of several,
// and by blocks that have 8192 elements each, the last of them fewer than are wanted.
TEST(Order, FindsFewInLinesOfAnyLengthAndDtype) {
  struct Case {
    int64_t extent, wanted;
  };
  const Case cases[] = {{1, 1},   {4, 1},     {5, 1},     {31, 7},    {127, 32}, {128, 32},  {128, 128}, {129, 32},
                        {257, 1}, {1000, 33}, {2049, 32}, {4097, 10}, {8192, 5}, {8193, 32}, {16390, 32}};
  for (DType dtype : kAll)
    for (auto [extent, wanted] : cases)
      for (bool descending : {false, true}) expect_first(few_numbers({2, extent}, dtype), wanted, 1, descending);
  for (bool descending : {false, true}) {
    expect_first(few_numbers({2, 300, 3}, f32), 7, 1, descending);
    expect_first(few_numbers({8200, 2}, bf16), 32, 0, descending);
  }
}

TEST(Order, FindsFewInLinesOfAHundredThousand) {
  for (int64_t wanted : {1, 10, 32}) expect_first(Buffer::random({1, 100000}, f32), wanted, 1, true);
  expect_first(few_numbers({2, 100000}, bf16), 32, 1, false);
  expect_first(Buffer::random({1, 100000}, i64, -1e9, 1e9), 32, 1, true);
}

// Each element comes before those in front of it, none does, and some or all are no numbers.
TEST(Order, FindsFewInWhateverOrderTheyCome) {
  for (DType dtype : {f32, f64})
    for (bool descending : {false, true}) {
      Buffer rising({1, 3000}, dtype), equal({1, 3000}, dtype), nan({1, 300}, dtype);
      for (int64_t i = 0; i < 3000; ++i) rising.set(i, double(i)), equal.set(i, i % 2 ? 0.0 : -0.0);
      for (int64_t i = 0; i < 300; ++i) nan.set(i, NAN);
      for (const Buffer& x : {rising, equal, nan}) expect_first(x, 32, 1, descending);
      for (int64_t i : {0, 1, 255, 256, 2999}) rising.set(i, NAN), equal.set(i, i % 2 ? INFINITY : -INFINITY);
      for (const Buffer& x : {rising, equal}) expect_first(x, 9, 1, descending);
    }
}

}  // namespace
}  // namespace shardgrad::test
