// What a PyTorch user writes: operators with numbers on either side, comparisons, x[…], +=, methods, new tensors.

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

TEST(Writing, NumbersStandOnEitherSide) {
  Context context;
  Tensor x = tensor({1., 2., 4.});
  EXPECT_EQ(values(1 - x), list({0, -1, -3}));
  EXPECT_EQ(values(8 / x), list({8, 4, 2}));
  EXPECT_EQ(values(2 * x + 1), list({3, 5, 9}));
  EXPECT_EQ(values(pow(2.0, x)), list({2, 4, 16}));
  EXPECT_EQ(values(x > 1), list({0, 1, 1}));
  EXPECT_EQ(values(2 >= x), list({1, 1, 0}));
  EXPECT_EQ(values((x == 2) | ~(x < 4)), list({0, 1, 1}));
  EXPECT_EQ(values((x != 2) & (x <= 2)), list({1, 0, 0}));
}

// A device that computes by itself counts for itself. Bytes begin again after 255, and 16 bits round.
TEST(Writing, CountingUpGivesTheSameOnEveryDevice) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8})
    for (int64_t count : {0, 1, 700})
      EXPECT_EQ(values(arange(count, {dtype, kAcc})), values(arange(count, {dtype, kCpu}))) << dtype << ' ' << count;
}

TEST(Writing, AComparisonOfSeveralElementsIsNoCondition) {
  Context context;
  Tensor x = tensor({1., 2.});
  EXPECT_TRUE(bool(x.sum() == 3));
  EXPECT_FALSE(bool(x.sum() > 3));
  EXPECT_REFUSED(static_cast<void>(bool(x == x)), "2 answers", "any", "all");
  EXPECT_TRUE(bool((x == x).all()));
  EXPECT_FALSE(bool(isnan(x.sum())) || bool(logical_not(x.sum())) || bool(any(x < 0))) << "not whether it is defined";
}

TEST(Writing, InPlaceIsSeenByAllAndRefusedWhereAGradientWouldBeLost) {
  Context context;
  Tensor x = tensor({1., 2.}), same = x;
  x += 1;
  x *= tensor({2., 10.});
  x -= tensor({1.});
  x /= 2;
  EXPECT_EQ(values(same), list({1.5, 14.5}));
  Tensor w = tensor({1., 1.}).set_requires_grad(), y = w * 2;
  EXPECT_REFUSED(y += 1, "operator+=", "NoGrad");
  EXPECT_REFUSED(x += w, "operator+=", "x = x + y");
  EXPECT_REFUSED(w -= 1, "operator-=", "NoGrad");
  EXPECT_REFUSED(x += tensor({{1., 2.}, {3., 4.}}), "operator+=", "[2, 2]", "[2]");
  EXPECT_EQ(values(x), list({1.5, 14.5}));
  {
    NoGrad scope;
    w -= 0.5 * w;
  }
  EXPECT_EQ(values(w), list({0.5, 0.5}));
}

TEST(Writing, AChangeInPlaceByAPartOfItselfReadsWhatItWas) {
  Context context;
  Tensor x = tensor({{1., 2.}, {3., 4.}, {5., 6.}});
  x -= x[0];
  EXPECT_EQ(values(x), list({0, 0, 2, 2, 4, 4}));
  Tensor y = tensor({1., 2., 3.});
  y *= y[-1].view({1});
  EXPECT_EQ(values(y), list({3, 6, 9}));
  y += y;
  EXPECT_EQ(values(y), list({6, 12, 18}));
}

TEST(Writing, AWriteInPlaceIsCountedSoThatBackwardRefusesWhatItChanged) {
  Context context;
  Tensor w = tensor({3., 4.}).set_requires_grad(), x = tensor({1., 2.});
  Tensor loss = (w * x).sum();
  x += 1;
  EXPECT_REFUSED(loss.backward(), "changed in place");
}

TEST(Writing, IndicesAreThoseOfPython) {
  Context context;
  Tensor x = arange(24, DType::f32).view({2, 3, 4});
  EXPECT_EQ(values(x[1][2]), list({20, 21, 22, 23}));
  EXPECT_EQ(x[-1].data<float>(), x.data<float>() + 12) << "leading numbers share memory";
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(x[i][uint8_t(0)].size(0), 4) << "numbers of any integer type";
  EXPECT_EQ(values(x[{Ellipsis, 0}]), list({0, 4, 8, 12, 16, 20}));
  EXPECT_EQ((x[{Slice(), Slice(1), None, -1}].shape()), (Shape{2, 2, 1}));
  EXPECT_EQ(values(x[{0, 0, Slice({}, {}, 3)}]), list({0, 3}));
  EXPECT_EQ(values(x[{0, 0, Slice(-3, 100)}]), list({1, 2, 3})) << "ends beyond the last element mean it";
  for (int64_t step : {int64_t(4), int64_t(5), std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(values(x[{0, 0, Slice({}, {}, step)}]), list({0})) << step;
    EXPECT_EQ(values(slice(x[{0, 0}], 0, 1, 4, step)), list({1})) << step;
    EXPECT_EQ(slice(x, 2, 3, 3, step).shape(), (Shape{2, 3, 0})) << step;
  }
  EXPECT_EQ((x[{0, 0, Slice(3, 1)}].shape()), (Shape{0}));
  EXPECT_EQ(values(x[{0, 0}][tensor({3, 0, 3})]), list({3, 0, 3}));
  EXPECT_EQ((x[tensor({{0, 1}, {1, 0}})].shape()), (Shape{2, 2, 3, 4}));
  EXPECT_EQ(values(x[{tensor({0, 1}), tensor({2, 0}), 1}]), list({9, 13}));
  EXPECT_EQ((x[{Slice(), tensor({0, 2}), tensor({1, 1})}].shape()), (Shape{2, 2}));
  EXPECT_EQ(values(x[x > 21]), list({22, 23}));
  EXPECT_EQ((x[{Slice(), x[0] > 5}].shape()), (Shape{2, 6}));
}

TEST(Writing, IndicesThatAreNotPossibleAreRefused) {
  Context context;
  Tensor x = arange(12, DType::f32).view({3, 4});
  EXPECT_REFUSED(x[3], "select", "3", "[3, 4]");
  EXPECT_REFUSED((x[{0, 0, 0}]), "index", "3 indices", "[3, 4]");
  EXPECT_REFUSED((x[{Ellipsis, Ellipsis}]), "Ellipsis");
  EXPECT_REFUSED(x[tensor({1.})], "i64", "f32", ".to(dtype)");
  EXPECT_REFUSED(x[tensor({0, 3})], "index", "3", "[0, 3)");
  EXPECT_REFUSED((x[{tensor({0, 1}), tensor({0, 4})}]), "outside [0, 4)");
  EXPECT_REFUSED(x[zeros({4}, DType::u8)], "mask", "[4]");
  EXPECT_REFUSED((x[{Slice({}, {}, -1)}]), "step", "flip");
  EXPECT_REFUSED((x.view({3, 2, 2})[{tensor({0}), Slice(), tensor({0})}]), "between");
  EXPECT_REFUSED(slice(x, 1, 0, 5), "slice", "[0, 5)");
  EXPECT_REFUSED(nonzero(empty({2}, kMeta)), "meta");
}

TEST(Writing, IndexPutGivesACopyAndBothGradients) {
  Context context;
  Tensor x = zeros({3, 4}).set_requires_grad(), v = tensor({1., 2., 3., 4.}).set_requires_grad();
  Tensor y = index_put(x, {1}, v);
  EXPECT_EQ(values(y[1]), list({1, 2, 3, 4}));
  (y * arange(12, DType::f32).view({3, 4})).sum().backward();
  EXPECT_EQ(values(v.grad()), list({4, 5, 6, 7}));
  EXPECT_EQ(values(x.grad()), list({0, 1, 2, 3, 0, 0, 0, 0, 8, 9, 10, 11}));
  EXPECT_EQ(values(index_put(tensor({1., 2., 3.}), {tensor({2, 0})}, 9)), list({9, 2, 9}));
  EXPECT_EQ(values(index_put(tensor({1., 2., 3.}), {tensor({1., 2., 3.}) > 1}, 0)), list({1, 0, 0}));
  EXPECT_REFUSED(index_put(tensor({1., 2.}), {tensor({1, 1})}, tensor({5., 6.})), "named twice");
  EXPECT_REFUSED(index_put(zeros({2, 2}), {0}, zeros({3})), "[3]");
}

TEST(Writing, EqualOnesShareTheGradientOfMaximum) {
  Context context;
  Tensor a = tensor({1., 2., 3.}).set_requires_grad(), b = tensor({1., 5., 0.}).set_requires_grad();
  maximum(a, b).sum().backward();
  EXPECT_EQ(values(a.grad()), list({0.5, 0, 1}));
  EXPECT_EQ(values(b.grad()), list({0.5, 1, 0}));
  float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor odd = from_vector<float>({nan, 1}, {2}), other = from_vector<float>({1, nan}, {2});
  EXPECT_TRUE(std::isnan(values(maximum(odd, other))[0]) && std::isnan(values(maximum(odd, other))[1]));
  EXPECT_TRUE(std::isnan(values(minimum(odd, other))[0]) && std::isnan(values(minimum(odd, other))[1]));
}

TEST(Writing, OrdersPutNanLastAndKeepEqualOnesInPlace) {
  Context context;
  float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor x = from_vector<float>({2, nan, 1, 2, -1}, {5});
  EXPECT_EQ(values(sort(x).index), list({4, 2, 0, 3, 1}));
  EXPECT_EQ(values(sort(x, 0, true).index), list({1, 0, 3, 2, 4}));
  EXPECT_EQ(values(topk(x, 2, 0, false).index), list({4, 2}));
  EXPECT_EQ(values(argsort(tensor({3, 1, 2}), 0)), list({1, 2, 0}));
  EXPECT_EQ(sort(tensor({std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})).values[0].item(),
            -0x1p63);
  EXPECT_REFUSED(topk(x, 6), "topk", "6", "5");
}

TEST(Writing, TheSmallestOfIntegersIsExact) {
  Context context;
  constexpr int64_t least = std::numeric_limits<int64_t>::min();
  Tensor x = tensor({least + 1, least, int64_t(5)});
  EXPECT_EQ(min(x).to_vector<int64_t>()[0], least);
  EXPECT_EQ(argmin(x).item(), 1);
  EXPECT_EQ(min(tensor({3, 200, 7}, DType::u8)).item(), 3);
  EXPECT_EQ(prod(tensor({1000000007, 1000000009})).to_vector<int64_t>()[0], 1000000007ll * 1000000009ll);
}

TEST(Writing, StatisticsOfTooFewAreNanAndOfNothingAreRefused) {
  Context context;
  EXPECT_TRUE(std::isnan(var(tensor({1.})).item()));
  EXPECT_EQ(var(tensor({1., 3.})).item(), 2);
  EXPECT_EQ(var(tensor({1., 3.}), 0.0).item(), 1);
  EXPECT_EQ(any(zeros({0})).item(), 0);
  EXPECT_EQ(all(zeros({0})).item(), 1);
  EXPECT_EQ(prod(zeros({0})).item(), 1);
  EXPECT_REFUSED(max(zeros({0})), "max", "empty");
  EXPECT_REFUSED(sum(zeros({2, 2}), {0, 0}), "sum", "twice");
  EXPECT_REFUSED(mean(zeros({2, 2}), Dims{}), "mean", "no dimension");
  float infinite = INFINITY;
  EXPECT_EQ(logsumexp(from_vector<float>({-infinite, -infinite}, {2}), 0).item(), -INFINITY);
  EXPECT_NEAR(logsumexp(tensor({1000., 1000.}), 0).item(), 1000 + std::log(2), 1e-4);
}

TEST(Writing, NewTensorsOfNumbers) {
  Context context;
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).dtype(), DType::i64);
  EXPECT_EQ(tensor({{1., 2.}, {3., 4.}}).dtype(), DType::f32);
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}, DType::bf16).dtype(), DType::bf16);
  EXPECT_EQ(tensor(5).shape(), Shape());
  EXPECT_EQ((tensor({{{1.}, {2.}}}).shape()), (Shape{1, 2, 1}));
  EXPECT_EQ(tensor({int64_t(1) << 60}).to_vector<int64_t>()[0], int64_t(1) << 60) << "not by way of a double";
  EXPECT_REFUSED(tensor({{1, 2}, {3}}), "tensor", "[2]", "[1]");
  EXPECT_REFUSED(tensor({1.5}, DType::i64), "fractions");
  EXPECT_EQ(values(arange(2, 8, 2)), list({2, 4, 6}));
  EXPECT_EQ(arange(2, 8, 2).dtype(), DType::i64);
  EXPECT_EQ(values(arange(1, 0, -0.25)), list({1, 0.75, 0.5, 0.25}));
  EXPECT_REFUSED(arange(0, 1, 0), "arange");
  EXPECT_REFUSED(arange(0, 1e300, 1), "arange: from 0 to 1e+300 by 1 are more than 2^56 numbers");
  EXPECT_REFUSED(arange(0, 1e19, 1, DType::i64), "2^56");
  EXPECT_EQ(arange(1e300, 0, 1, DType::f32).numel(), 0);
  EXPECT_EQ(values(linspace(0, 1, 5)), list({0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(0, 0.1, 11, DType::f64).to_vector<double>().back(), 0.1) << "the last is exact";
  EXPECT_EQ(values(eye(2, 3)), list({1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values(full_like(tensor({1, 2}), 7)), list({7, 7}));
}

TEST(Writing, ATensorOnBorrowedMemoryReadsItAndSaysWhenItIsDone) {
  Context context;
  std::vector<float> memory{1, 2, 3, 4};
  bool done = false;
  {
    Tensor x = from_blob(memory.data(), {2, 2}, DType::f32, [&] { done = true; });
    memory[3] = 40;
    EXPECT_EQ(values(x.sum(0)), list({4, 42}));
    Tensor row = x[1];
    x = Tensor();
    EXPECT_FALSE(done) << "a view needs it still";
    row += 1;
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(memory[2], 4);
  EXPECT_REFUSED(from_blob(reinterpret_cast<char*>(memory.data()) + 1, {1}), "from_blob", "multiple of 4");
}

// Backward writes over a gradient that nobody else holds, but for one that a hook has from elsewhere.
TEST(Writing, BorrowedMemoryThatAHookGivesIsNotWrittenTo) {
  Context context;
  std::vector<float> memory{1, 2, 3, 4};
  auto lent = [&](const Tensor&) { return from_blob(memory.data(), {2, 2}); };
  Tensor x = tensor({{1., -1.}, {-2., 2.}}).set_requires_grad(), weight = tensor({{1., 0.}, {0., 1.}});
  Tensor y = linear(x, weight, Tensor(), Activation::relu);  // whose backward clears half of it
  y.register_hook(lent);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), list({1, 0, 0, 4}));
  EXPECT_EQ(memory, (std::vector<float>{1, 2, 3, 4}));

  x.zero_grad();
  Tensor h = x * 1, first = h * 3, second = h + tensor({{0., 0.}, {0., 0.}});  // hands it on, for `first` to add to
  second.register_hook(lent);
  (sum(first) + sum(second)).backward();
  EXPECT_EQ(values(x.grad()), list({4, 5, 6, 7}));
  EXPECT_EQ(memory, (std::vector<float>{1, 2, 3, 4}));
}

TEST(Writing, RandomNumbersLieWhereTheyShould) {
  Context context;
  std::vector<double> drawn = values(randint(-2, 3, {5000}, "dice"));
  EXPECT_EQ(std::set<double>(drawn.begin(), drawn.end()), (std::set<double>{-2, -1, 0, 1, 2}));
  std::vector<double> order = values(randperm(1000, "order"));
  EXPECT_FALSE(std::ranges::is_sorted(order));
  std::ranges::sort(order);
  EXPECT_EQ(order, values(arange(1000)));
  EXPECT_NEAR(mean(bernoulli(full({20000}, 0.3), "coin")).item(), 0.3, 0.02);
  EXPECT_EQ(mean(bernoulli(ones({100}), "sure")).item(), 1);
  Tensor p = tensor({{1., 0., 3.}, {0., 2., 0.}});
  Tensor many = multinomial(p, 20000, "many", true);
  EXPECT_EQ(many.shape(), (Shape{2, 20000}));
  EXPECT_EQ(many.dtype(), DType::i64);
  EXPECT_NEAR(mean((many[0] == 2).to(DType::f32)).item(), 0.75, 0.02);
  EXPECT_TRUE(bool(all(many[1] == 1)));
  EXPECT_FALSE(bool(any(many[0] == 1)));
  std::vector<double> two = values(multinomial(p[0], 2, "two"));
  EXPECT_EQ(std::set<double>(two.begin(), two.end()), (std::set<double>{0, 2}));
  EXPECT_REFUSED(multinomial(p, 4, "four"), "without replacement");
  EXPECT_REFUSED(multinomial(p, 2, "few"), "multinomial", "less than 2");
  EXPECT_REFUSED(multinomial(tensor({1., -1.}), 1, "negative", true), "negative or not finite");
  EXPECT_REFUSED(multinomial(tensor({0., 0.}), 1, "nothing", true), "less than 1");
  EXPECT_REFUSED(bernoulli(tensor({0.5, 1.5}), "chance"), "bernoulli", "[0, 1]");
  EXPECT_REFUSED(bernoulli(tensor({0. / 0.}), "nan"), "bernoulli");
  EXPECT_REFUSED(randint(0, 300, {2}, "bytes", DType::u8), "randint", "u8");
  EXPECT_REFUSED(randint(3, 3, {2}, "none"), "randint");
}

// What has no case in certify/, for its shape follows from values, or its values from a stream of random numbers.
TEST(Writing, DrawsAndSelectionsAreTheSameOnEveryDevice) {
  auto found = [](Device device, DType dtype) {
    Context context;
    Tensor p = rand({40, 7}, "weights", dtype).to(device), large = p > 0.5;
    std::vector<std::vector<uint8_t>> all;
    for (const Tensor& each : {bernoulli(p, "coin"), multinomial(p, 5, "with", true), multinomial(p, 5, "without"),
                               nonzero(large), masked_select(p, large)}) {
      EXPECT_EQ(each.device(), device);
      all.push_back(bits(each));
    }
    return all;
  };
  std::vector<Device> devices = kernel_devices();
  devices.push_back(kAcc);
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (Device device : devices) EXPECT_EQ(found(kCpu, dtype), found(device, dtype)) << device << ' ' << dtype;
}

TEST(Writing, WithoutReplacementTheFirstIsDrawnByItsWeight) {
  Context context;
  Tensor p = expand(tensor({1., 3.}), {8000, 2});
  EXPECT_NEAR(mean(multinomial(p, 1, "first").to(DType::f32)).item(), 0.75, 0.02);
}

TEST(Writing, VectorsMultiply) {
  Context context;
  Tensor a = tensor({1., 2.}), m = tensor({{1., 2.}, {3., 4.}});
  EXPECT_EQ(matmul(a, a).item(), 5);
  EXPECT_EQ(values(m.matmul(a)), list({5, 11}));
  EXPECT_EQ(values(a.matmul(m)), list({7, 10}));
  EXPECT_EQ(values(outer(a, a)), list({1, 2, 2, 4}));
  EXPECT_REFUSED(matmul(a, tensor({1., 2., 3.})), "matmul", "differ");
  EXPECT_REFUSED(matmul(tensor(2.), a), "matmul", "scalar");
}

}  // namespace
}  // namespace shardgrad::test
