// Arithmetic of integers: what stays an integer, and what is refused.

#include <cmath>
#include <limits>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

TEST(Integers, StayIntegersAndRefuseFractions) {
  Context context;
  Tensor i = tensor({7, -7, 0});
  EXPECT_EQ(i.dtype(), DType::i64);
  EXPECT_EQ((i * 2 + 1).dtype(), DType::i64);
  EXPECT_EQ(values(i % 3), list({1, 2, 0}));
  EXPECT_EQ(values(tensor({7., -7.}) % 3), list({1, 2}));
  EXPECT_EQ(values(maximum(i, tensor({0, 0, 0}))), list({7, 0, 0}));
  EXPECT_EQ(values(sign(i)), list({1, -1, 0}));
  EXPECT_EQ(values(floor(i)), values(i));
  EXPECT_REFUSED(static_cast<void>(i == 0.5), "eq", "0.5", "no integer");
  EXPECT_REFUSED(remainder(i, 0.5), "remainder", "0.5");
  EXPECT_REFUSED(i % 0, "remainder", "is 0");
  EXPECT_REFUSED(i % tensor({3, 0, 1}), "remainder", "is 0");
  constexpr int64_t large = (int64_t(1) << 60) + 1;
  EXPECT_EQ(values(tensor({large, -large}) % 10), list({double(large % 10), double(10 - large % 10)}));
  EXPECT_EQ(values(tensor({std::numeric_limits<int64_t>::min(), int64_t(7)}) % -1), list({0, 0}));
  EXPECT_EQ(values(tensor({7, 8}, DType::u8) % tensor({5, 4}, DType::u8)), list({2, 0}));
  EXPECT_EQ(values(-7 % tensor({2, -2, 4})), list({1, -1, 1}));
  EXPECT_EQ(values(7 % tensor({2., -2.})), list({1, -1}));
  EXPECT_REFUSED(masked_fill(i, i > 0, 0.5), "masked_fill", "0.5", "no integer");
  EXPECT_REFUSED(index_put(i, {0}, 0.5), "index_put", "0.5", "no integer");
  EXPECT_REFUSED(i / 2, "div", "floating", ".to(dtype)");
  EXPECT_REFUSED(i /= 2, "div");
  EXPECT_REFUSED(sin(i), "sin", "floating", "i64");
}

TEST(Integers, AreDividedRoundingDown) {
  Context context;
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), large = (int64_t(1) << 60) + 1;
  EXPECT_EQ(values(floor_divide(tensor({7, -7, 6, 0}), 3)), list({2, -3, 2, 0}));
  EXPECT_EQ(values(floor_divide(tensor({7, -7}), tensor({-2, -2}))), list({-4, 3}));
  EXPECT_EQ(floor_divide(tensor({large}), 10).to_vector<int64_t>()[0], large / 10);
  EXPECT_EQ(floor_divide(tensor({least}), -1).to_vector<int64_t>()[0], least) << "wraps";
  EXPECT_EQ(values(floor_divide(tensor({200, 7}, DType::u8), tensor({3, 8}, DType::u8))), list({66, 0}));
  EXPECT_EQ(values(floor_divide(tensor({-7}, DType::i32), 2)), list({-4}));
  EXPECT_REFUSED(floor_divide(tensor({1, 2}), tensor({1, 0})), "floor_divide", "is 0");
  EXPECT_REFUSED(floor_divide(tensor({1, 2}), 0.5), "floor_divide", "0.5");
  EXPECT_EQ(values(floor_divide(tensor({7., -1., 1., 6.}), tensor({2., INFINITY, 0., 0.1}))),
            list({3, -1, INFINITY, 59}));
}

// A number that the tensor's dtype does not have would be another one.
TEST(Integers, NumbersBesideThemAreOfTheirDtype) {
  Context context;
  Tensor u = tensor({255, 3}, DType::u8), i = tensor({7}, DType::i32);
  EXPECT_REFUSED(floor_divide(u, 300), "floor_divide", "300", "u8");
  EXPECT_REFUSED(floor_divide(u, -1), "floor_divide", "-1", "u8");
  EXPECT_REFUSED(u % 256, "remainder", "256", "u8");
  EXPECT_REFUSED(static_cast<void>(u == 256), "eq", "256", "u8");
  EXPECT_REFUSED(u.pow(300), "pow", "300", "u8");
  EXPECT_REFUSED(floor_divide(i, 0x1p31), "floor_divide", "i32");
  EXPECT_EQ(values(floor_divide(i, -0x1p31)), list({-1}));
  EXPECT_EQ(values(floor_divide(u, 255)), list({1, 0}));
  EXPECT_EQ(values(floor_divide(-7, tensor({2, -2}))), list({-4, 3}));
  EXPECT_REFUSED(floor_divide(i, 0), "floor_divide", "is 0");
  EXPECT_REFUSED(i % 0, "remainder", "is 0");
  EXPECT_REFUSED(pow(i, tensor({1., -2.})), "pow", "f32");
}

TEST(Integers, HaveWholePowers) {
  Context context;
  Tensor i = tensor({3, -2, 0});
  EXPECT_EQ(i.pow(2).dtype(), DType::i64);
  EXPECT_EQ(values(i.pow(3)), list({27, -8, 0}));
  EXPECT_EQ(values(i.pow(0)), list({1, 1, 1}));
  EXPECT_EQ(values(pow(i, tensor({4, 5, 1}))), list({81, -32, 0}));
  EXPECT_EQ(values(pow(2, tensor({0, 10, 62}))), list({1, 1024, 0x1p62}));
  EXPECT_EQ(values(tensor({3}, DType::u8).pow(6)), list({729 % 256})) << "wraps";
  EXPECT_REFUSED(i.pow(-1), "pow", "-1", ".to(dtype)");
  EXPECT_REFUSED(i.pow(0.5), "pow", "0.5", "no integer");
  EXPECT_REFUSED(pow(i, tensor({1, -1, 2})), "pow", "negative");
}

}  // namespace
}  // namespace shardgrad::test
