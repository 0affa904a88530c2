// Arithmetic of integers: what stays an integer, and what is refused.

#include <cmath>
#include <functional>
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
  EXPECT_REFUSED(i /= 2, "operator/=", "floating", ".to(dtype)");
  EXPECT_REFUSED(i /= i, "operator/=", "floating", ".to(dtype)");
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

// A double would make of them the integer next to them.
TEST(Integers, ThatNoDoubleHoldsAreRefusedBesideTensors) {
  Context context;
  constexpr int64_t key = (int64_t(1) << 53) + 1;
  Tensor ids = tensor({key, key - 1});
  const std::function<void()> calls[] = {
      [&] { static_cast<void>(ids == key); },
      [&] { static_cast<void>(uint64_t(key) < ids); },
      [&] { ids - key; },
      [&] { key* ids; },
      [&] { ids % key; },
      [&] { ids += key; },
      [&] { floor_divide(ids, key); },
      [&] { ids.clamp(0, key); },
      [&] { masked_fill(ids, ids > 0, key); },
      [&] { index_put(ids, {0}, key); },
      [&] { full({1}, key, DType::i64); },
      [&] { full_like(ids, key); },
      [&] { fill_(ids, key); },
      [&] { arange(key - 3, key); },
  };
  for (const auto& call : calls)
    EXPECT_REFUSED(call(), "the number 9007199254740993 is beyond ±2^53", "make it a tensor of i64");
  EXPECT_REFUSED(ids + std::numeric_limits<int64_t>::max(), "the number 9223372036854775807");
  EXPECT_REFUSED(static_cast<void>(ids == key), "eq: the number");
  EXPECT_REFUSED(ids - (-key), "the number -9007199254740993");
  EXPECT_EQ(values(ids == tensor({key})), list({1, 0}));
}

TEST(Integers, ThatNoDoubleHoldsAreRoundedBesideFloats) {
  Context context;
  constexpr int64_t key = (int64_t(1) << 53) + 1, largest = std::numeric_limits<int64_t>::max();
  Tensor x = ones({1});
  for (const Tensor& y : {x * key, x + key, full({1}, key), masked_fill(x, x > 0, key), x.clamp(key, largest)})
    EXPECT_EQ(values(y), list({0x1p53}));
  EXPECT_EQ(values(x - key), list({-0x1p53}));
}

TEST(Integers, ABoundAsLargeAsCanBeLeavesItsSideOpen) {
  Context context;
  constexpr int64_t largest = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  Tensor x = tensor({largest, int64_t(-3), least});
  EXPECT_EQ(x.clamp(0, largest).to_vector<int64_t>(), (std::vector<int64_t>{largest, 0, 0}));
  EXPECT_EQ(x.clamp(least, 0).to_vector<int64_t>(), (std::vector<int64_t>{0, -3, least}));
}

TEST(Integers, ThatADoubleHoldsAreExactHoweverLarge) {
  Context context;
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), large = int64_t(1) << 60;
  Tensor x = tensor({least, large});
  EXPECT_EQ(values(x == least), list({1, 0}));
  EXPECT_EQ(values(x == uint64_t(large)), list({0, 1}));
  EXPECT_EQ((x - large).to_vector<int64_t>()[1], 0);
  EXPECT_EQ(full({1}, large + 256, DType::i64).to_vector<int64_t>()[0], large + 256);
  EXPECT_EQ(values(arange(large, large + 1024, 512) - large), list({0, 512}));
  EXPECT_EQ(values(full({1}, true) + 'a'), list({98}));
}

TEST(Integers, NumbersTheirDtypeHasNotFillNoTensor) {
  Context context;
  EXPECT_REFUSED(full({1}, 300, DType::u8), "full: the number 300 does not fit into u8");
  EXPECT_REFUSED(full_like(tensor({1}, DType::u8), -7), "-7", "u8");
  EXPECT_REFUSED(full({1}, NAN, DType::i64), "nan", "i64");
  EXPECT_REFUSED(full({1}, 0x1p63, DType::i64), "i64");
  Tensor x = tensor({5}, DType::i32);
  EXPECT_REFUSED(fill_(x, 1e20), "fill_: the number 1e+20 does not fit into i32");
  EXPECT_REFUSED(fill_(x, INFINITY), "inf");
  EXPECT_EQ(x.version(), 0u) << "and nothing was counted";
  fill_(x, -2.9);
  EXPECT_EQ(values(x), list({-2})) << "without its fraction, as in PyTorch";
  EXPECT_EQ(values(full({1}, 255.5, DType::u8)), list({255}));
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
