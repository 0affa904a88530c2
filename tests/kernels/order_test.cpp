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

// Few of many: what comes too late is passed over, also beside equal ones and NaN.
TEST(Order, GivesTheFirstOfManyEitherWayAlongAnyDimension) {
  auto first = [](const Buffer& x, int64_t wanted, int dim, bool descending) {
    Shape shape = x.shape().with(dim, wanted);
    expect_like_reference(SG_BOTH(sort), x.dtype(), std::array{Buffer(shape, x.dtype()), Buffer(shape, i64)}, {0}, x,
                          dim, descending);
  };
  for (bool descending : {false, true}) {
    for (int64_t wanted : {1, 3, 40, 700, 2499}) {
      first(Buffer::random({3, 2500}, f32), wanted, 1, descending);
      first(few_numbers({2500, 3}, f32), wanted, 0, descending);
    }
    Buffer x = few_numbers({1, 2500}, f32);
    for (int64_t i = 300; i < 2500; i += 300) x.set(0 + i, NAN);
    first(x, 20, 1, descending);
    first(few_numbers({2, 600, 2}, u8), 5, 1, descending);
  }
}

}  // namespace
}  // namespace shardgrad::test
