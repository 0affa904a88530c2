// Products and their gradients against the reference: along each dimension, in more than one chunk, with zeros.

#include <shardgrad/certify/reference/moves.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

using enum DType;

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

// Products of many stay within what f16 can tell apart.
Buffer near_one(const Shape& shape, DType dtype) {
  return Buffer::random(shape, dtype, is_floating(dtype) ? 0.96875 : 1, is_floating(dtype) ? 1.03125 : 2);
}

// In f64 each factor rounds.
Tolerance roundings(DType dtype, int64_t factors) { return {dtype == f64 ? 2 + double(factors) : 2}; }

const Shape kFactors[] = {{1}, {33}, {15}, {257, 3}, {3, 300}, {2, 3, 5}, {2, 1, 4}, {2, 1030}};

TEST(Products, OfEveryDtypeGoAlongAnyDimension) {
  for (DType dtype : kAll)
    for (const Shape& shape : kFactors)
      for (int dim = 0; dim < shape.ndim(); ++dim)
        expect_like_reference(SG_BOTH(prod), dtype, one(shape.with(dim, 1), is_floating(dtype) ? dtype : i64),
                              roundings(dtype, shape[dim]), near_one(shape, dtype), dim);
  expect_like_reference(SG_BOTH(prod), f32, one({1, 3}, f32), {1}, Buffer({0, 3}, f32), 0);
  expect_like_reference(SG_BOTH(prod), f32, one({0, 1}, f32), {1}, Buffer({0, 3}, f32), 1);
}

TEST(Products, OfManyDoNotDependOnThreads) {
  for (DType dtype : kAll) {
    bool floats = is_floating(dtype);  // a product of odd integers never wraps to 0
    Buffer x = Buffer::random({4101}, dtype, floats ? 0.9990234375 : 3, floats ? 1.0009765625 : 3);
    expect_like_reference(SG_BOTH(prod), dtype, one({1}, floats ? dtype : i64), roundings(dtype, 4101), x, 0);
  }
  for (auto [shape, dim] : {std::pair<Shape, int>{{9001}, 0}, {{2, 9001}, 1}, {{9001, 5}, 0}, {{2, 4100, 300}, 1}})
    expect_like_reference(SG_BOTH(prod), f32, one(shape.with(dim, 1), f32), {2}, near_one(shape, f32), dim);
}

TEST(Products, AreOfMoreRangeThanTheirElements) {
  Buffer x = Buffer::of({4}, f32, {1e30, 1e30, 1e-30, 1e-30});
  expect_like_reference(SG_BOTH(prod), f32, one({1}, f32), {1}, x, 0);
  expect_like_reference(SG_BOTH(prod_backward), f32, one({4}, f32), {1}, Buffer::of({1}, f32, {1}), x, 0);
}

TEST(Products, GradientsGoAlongAnyDimension) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kFactors)
      for (int dim = 0; dim < shape.ndim(); ++dim)
        expect_like_reference(SG_BOTH(prod_backward), dtype, one(shape, dtype), roundings(dtype, shape[dim]),
                              Buffer::random(shape.with(dim, 1), dtype), near_one(shape, dtype), dim);
  for (auto [shape, dim] : {std::pair<Shape, int>{{3001}, 0}, {{40, 1201}, 1}, {{301, 130}, 0}})
    expect_like_reference(SG_BOTH(prod_backward), f32, one(shape, f32), {2}, Buffer::random(shape.with(dim, 1), f32),
                          near_one(shape, f32), dim);
}

// With one zero all but its own gradient is 0, with two all are; infinity and NaN reach what they are multiplied with.
TEST(Products, GradientsAreRightBesideZerosInfinityAndNan) {
  for (double odd : {0.0, double(INFINITY), double(NAN), -3.0})
    for (const Shape& shape : {Shape{40, 1}, Shape{40, 2}}) {
      Buffer x = near_one(shape, f32);
      x.set(shape[1] * 17, 0);
      x.set(shape[1] * 31, odd);
      expect_like_reference(SG_BOTH(prod_backward), f32, one(shape, f32), {2}, Buffer::random({1, shape[1]}, f32, 1, 2),
                            x, 0);
      Buffer line = Buffer::of({40}, f32, [&] {
        std::vector<double> column;
        for (int64_t e = 0; e < 40; ++e) column.push_back(x.get(e * shape[1]));
        return column;
      }());
      expect_like_reference(SG_BOTH(prod_backward), f32, one({40}, f32), {2}, Buffer::of({1}, f32, {2}), line, 0);
    }
}

}  // namespace
}  // namespace shardgrad::test
