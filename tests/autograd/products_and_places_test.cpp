// Products beside zeros, orders turned round, and what stands at an index: as PyTorch has them.

#include <limits>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

std::vector<double> slope_of_prod(const std::vector<float>& numbers) {
  Tensor x = leaf(numbers, {int64_t(numbers.size())});
  prod(x).backward();
  return values(x.grad());
}

TEST(Products, HaveTheGradientOfTheOthersBesideZeros) {
  Context context;
  EXPECT_EQ(slope_of_prod({2, 3, 4}), list({12, 8, 6}));
  EXPECT_EQ(slope_of_prod({2, 0, 4}), list({0, 8, 0}));
  EXPECT_EQ(slope_of_prod({2, 0, 4, 0}), list({0, 0, 0, 0}));
  Tensor x = leaf({1, 0, 3, 4, 5, 6}, {2, 3});
  (prod(x, 0) * tensor({1., 10., 100.})).sum().backward();
  EXPECT_EQ(values(x.grad()), list({4, 50, 600, 1, 0, 300}));
  Tensor rows = leaf({1, 0, 3, 4, 5, 6}, {2, 3});
  prod(rows, 1, true).sum().backward();
  EXPECT_EQ(values(rows.grad()), list({0, 3, 0, 30, 24, 20}));
}

TEST(Products, OfTwoBytesAreRoundedOnce) {
  Context context;
  Tensor x = full({9}, 1.5).to(DType::bf16);
  EXPECT_EQ(prod(x).item(), 38.5);  // 1.5^9 = 38.443 between 38.25 and 38.5
  EXPECT_EQ(prod(x).dtype(), DType::bf16);
}

TEST(Flip, TurnsSeveralDimensionsAndTheirGradientBack) {
  Context context;
  Tensor x = arange(6, DType::f32).view({2, 3}).clone().set_requires_grad();
  Tensor y = flip(x, {0, -1});
  EXPECT_EQ(values(y), list({5, 4, 3, 2, 1, 0}));
  (y * arange(6, DType::f32).view({2, 3})).sum().backward();
  EXPECT_EQ(values(x.grad()), list({5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(flip(tensor({1, 2}), {0})), list({2, 1}));
  EXPECT_EQ(flip(full({}, 3), {}).item(), 3);
  EXPECT_REFUSED(flip(x, {1, -1}), "flip", "-1", "given twice");
  EXPECT_REFUSED(flip(x, {2}), "flip", "no dimension 2");
}

TEST(Flip, RollTakesAnyNumberOfPlaces) {
  Context context;
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  Tensor x = arange(5);
  for (int64_t by : {int64_t(2), int64_t(-3), int64_t(7), most, least})  // 2^63 is 3 more than a multiple of 5
    EXPECT_EQ(values(roll(x, by, 0)), list({3, 4, 0, 1, 2})) << by;
}

TEST(Triangles, LeaveOutNanAndTakeDiagonalsBeyondTheMatrix) {
  Context context;
  Tensor x = full({2, 2}, NAN);
  EXPECT_EQ(values(tril(x, -2)), list({0, 0, 0, 0}));
  EXPECT_EQ(values(triu(x, std::numeric_limits<int64_t>::max())), list({0, 0, 0, 0}));
  EXPECT_EQ(values(tril(ones({2, 2}), std::numeric_limits<int64_t>::max())), list({1, 1, 1, 1}));
  EXPECT_REFUSED(tril(zeros({3})), "tril", "two dimensions");
}

TEST(Nonzero, GivesPositionsInOrderOfAnyShape) {
  Context context;
  Tensor x = tensor({0, 3, 0, 0, 5, 6}, DType::i32);
  EXPECT_EQ(values(nonzero(x)), list({1, 4, 5}));
  EXPECT_EQ(values(nonzero(x.view({2, 3}))), list({0, 1, 1, 1, 1, 2}));
  EXPECT_EQ(values(nonzero(x.view({3, 1, 2}))), list({0, 0, 1, 2, 0, 0, 2, 0, 1}));
  EXPECT_EQ(nonzero(zeros({2, 3})).shape(), (Shape{0, 2}));
  EXPECT_EQ(nonzero(zeros({0, 3})).shape(), (Shape{0, 2}));
  EXPECT_EQ(nonzero(ones({})).shape(), (Shape{1, 0}));
  EXPECT_EQ(values(nonzero(tensor({0, 2, 255}, DType::u8))), list({1, 2}));
}

TEST(IndexPut, TakesIndicesOfAnyKind) {
  Context context;
  Tensor x = zeros({2, 3, 2}), v = tensor({1., 2.});
  EXPECT_EQ(values(index_put(x, {1, tensor({2, 0})}, v)), list({0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 2}));
  EXPECT_EQ(values(index_put(x, {EllipsisType{}, tensor({1})}, 3)), list({0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3}));
  EXPECT_EQ(values(index_put(zeros({1, 3}), {EllipsisType{}, tensor({2})}, 3)), list({0, 0, 3}));
  EXPECT_EQ(values(index_put(x, {Slice(), Slice(0, 3, 2), 0}, 4)), list({4, 0, 0, 0, 4, 0, 4, 0, 0, 0, 4, 0}));
  EXPECT_REFUSED(index_put(x, {0, tensor({1, 1})}, v), "named twice");
  EXPECT_REFUSED(index_put(x, {tensor({1, 0, 1}), tensor({2, 2, 2})}, v), "named twice");
  EXPECT_EQ(values(index_put(x, {tensor({1, 0}), tensor({2, 2})}, v)), list({0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2}));
}

TEST(IndexPut, OneValueForAMaskHasTheGradientOfAllItsPlaces) {
  Context context;
  Tensor x = leaf({1, 2, 3, 4}, {4}), v = leaf({NAN}, {1});
  Tensor y = index_put(x, {tensor({0, 1, 1, 0}, DType::u8)}, v);
  (y * tensor({1., 10., 100., 1000.})).sum().backward();
  EXPECT_EQ(values(x.grad()), list({1, 0, 0, 1000}));
  EXPECT_EQ(values(v.grad()), list({110}));
  Tensor w = leaf({7, 8}, {2}), all = index_put(x, {tensor({0, 1, 1, 0}, DType::u8)}, w);
  EXPECT_EQ(values(all), list({1, 7, 8, 4}));
  all.sum().backward();
  EXPECT_EQ(values(w.grad()), list({1, 1}));
}

TEST(AnyAndAll, TakeNanForSetAndSeveralNumbersOfAByte) {
  Context context;
  EXPECT_TRUE(any(full({3}, NAN)));
  EXPECT_TRUE(all(full({3}, NAN)));
  EXPECT_TRUE(all(tensor({2, 255}, DType::u8)));
  EXPECT_FALSE(all(tensor({2, 0}, DType::u8)));
  EXPECT_FALSE(any(tensor({0, 0}, DType::u8)));
  EXPECT_EQ(any(tensor({0, 9}, DType::u8)).item(), 1);
}

}  // namespace
}  // namespace shardgrad::test
