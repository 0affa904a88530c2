// What single operations promise beyond the registry's checks.

#include <algorithm>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

TEST(Ops, IntegersGoThroughArithmeticWithoutGrad) {
  Context context;
  for (DType dtype : {DType::i32, DType::i64, DType::u8}) {
    SCOPED_TRACE(name_of(dtype));
    Tensor a = from_vector<double>({6, 7, 9}, {3}, DType::f64).to(dtype), b = full({3}, 2, dtype);
    EXPECT_EQ(values(add(a, b)), list({8, 9, 11}));
    EXPECT_EQ(values(sub(a, b)), list({4, 5, 7}));
    EXPECT_EQ(values(mul(a, b)), list({12, 14, 18}));
    EXPECT_REFUSED(div(a, b), "div", "floating", name_of(dtype));
    EXPECT_EQ(values(sum(a)), list({22}));
    EXPECT_EQ(values(max(reshape(a, {1, 3}), 1).values), list({9}));
    EXPECT_EQ(values(eq(a, full({}, 7, dtype))), list({0, 1, 0}));
    EXPECT_EQ(values(slice(a, 0, 1, 3)), list({7, 9}));
    EXPECT_FALSE(add(a, b).requires_grad());
  }
}

TEST(Ops, LinearIsTheMatrixProductWithTheTransposedWeight) {
  Context context;
  Tensor x = from_vector<float>({1, 2, 3, 4}, {2, 2}), w = from_vector<float>({1, 0, 0, -1, 2, 2}, {3, 2});
  Tensor b = from_vector<float>({10, 20, 30}, {3});
  EXPECT_EQ(values(linear(x, w, b)), list({11, 18, 36, 13, 16, 44}));
  EXPECT_EQ(values(linear(x, w, Tensor(), Activation::relu)), list({1, 0, 6, 3, 0, 14}));
}

TEST(Ops, ReshapeAndSliceOfDimensionZeroShareMemory) {
  Context context;
  Tensor x = arange(12, DType::f32);
  Tensor matrix = reshape(x, {3, -1}), rows = slice(matrix, 0, 1, 3);
  EXPECT_EQ(matrix.shape(), (Shape{3, 4}));
  EXPECT_EQ(rows.data<float>(), x.data<float>() + 4);
  const int64_t sizes[] = {1, 2};
  EXPECT_EQ(split(matrix, sizes, 0)[1].data<float>(), x.data<float>() + 4);
  EXPECT_NE(slice(matrix, 1, 0, 1).data<float>(), x.data<float>());
}

TEST(Ops, MaxGivesTheFirstOfEqualElements) {
  Context context;
  Tensor x = from_vector<float>({1, 3, 3, 5, 5, 2}, {2, 3}).set_requires_grad();
  ValuesAndIndex result = max(x, 1);
  EXPECT_EQ(values(result.index), list({1, 0}));
  sum(result.values).backward();
  EXPECT_EQ(values(x.grad()), list({0, 1, 0, 1, 0, 0}));
  EXPECT_FALSE(result.index.requires_grad());
}

TEST(Ops, TheNormOfZeroHasGradientZero) {
  Context context;
  Tensor x = zeros({3}).set_requires_grad();
  norm(x).backward();
  EXPECT_EQ(values(x.grad()), list({0, 0, 0}));
}

TEST(Ops, NormsAlongADimensionAreThoseOfItsLines) {
  Context context;
  Tensor x = tensor({{3., 4.}, {0., 0.}, {5., 12.}}, DType::f64).set_requires_grad();
  EXPECT_EQ(values(norm(x, 1)), list({5, 0, 13}));
  EXPECT_EQ(norm(x, -1, true).shape(), (Shape{3, 1}));
  sum(norm(x, 1) * tensor({1., 2., 2.}, DType::f64)).backward();
  expect_close(values(x.grad()), {0.6, 0.8, 0, 0, 10. / 13, 24. / 13}, 1e-15, "the gradient", 1);
  EXPECT_EQ(values(norm(tensor({{3., 6.}, {4., 8.}}), 0)), list({5, 10}));
  EXPECT_EQ(values(norm(zeros({2, 0}), 1)), list({0, 0}));
  EXPECT_REFUSED(norm(x, 2), "norm", "dimension 2");
  EXPECT_REFUSED(norm(ones({2}, DType::i64), 0), "norm", "i64");
}

TEST(Ops, MeanAndNormOfHalfPrecisionDoNotOverflow) {
  Context context;
  Tensor x = full({100'000}, 300, DType::f16);
  EXPECT_EQ(mean(x).item(), 300);
  EXPECT_EQ(norm(full({4}, 300, DType::f16)).item(), 600);
}

TEST(Ops, CrossEntropyDividesByTheRowsThatCount) {
  for (Device device : {kCpu, kAcc}) {
    Context context({.device = device});
    Tensor logits = zeros({4, 3}).set_requires_grad();
    Tensor labels = from_vector<int64_t>({0, -100, 2, -100}, {4}).to(device);
    Tensor loss = cross_entropy(logits, labels);
    EXPECT_NEAR(loss.item(), std::log(3), 1e-6);
    loss.backward();
    std::vector<double> grad = values(logits.grad());
    EXPECT_NEAR(grad[0], (1.0 / 3 - 1) / 2, 1e-6);
    EXPECT_EQ(grad[3], 0);
    EXPECT_NEAR(cross_entropy(logits, labels, 8).item(), 2 * std::log(3) / 8, 1e-6);
  }
}

TEST(Ops, CrossEntropyOfIgnoredRowsOnlyIsZero) {
  Context context;
  for (int64_t rows : {0, 3}) {
    Tensor logits = zeros({rows, 2}).set_requires_grad();
    Tensor loss = cross_entropy(logits, full({rows}, -100, DType::i64));
    EXPECT_EQ(loss.item(), 0);
    loss.backward();
    EXPECT_EQ(values(logits.grad()), std::vector<double>(size_t(rows) * 2, 0));
  }
}

TEST(Ops, ABatchInWhichNothingCountsOnAnyRankHasLossAndGradientZero) {
  Context context({.rank = 0, .world_size = 2});
  auto expect_zero = [](const Tensor& loss, const Tensor& leaf, const char* what) {
    EXPECT_EQ(loss.item(), 0) << what;
    loss.backward();
    EXPECT_EQ(values(leaf.grad()), std::vector<double>(size_t(leaf.numel()), 0)) << what;
    leaf.zero_grad();
  };
  Tensor logits = randn({3, 2}, "logits").set_requires_grad(), ignored = full({3}, -100, DType::i64);
  Tensor nothing = zeros({0, 2}).set_requires_grad();
  expect_zero(cross_entropy(logits, ignored, 0), logits, "cross_entropy");
  expect_zero(cross_entropy(nothing, zeros({0}, DType::i64), 0), nothing, "cross_entropy of no rows");
  for (int64_t rows : {0, 2})
    expect_zero(linear_cross_entropy(logits, randn({5, 2}, "w"), ignored, {.count = 0, .rows = rows}), logits,
                "linear_cross_entropy");
  expect_zero(mse_loss(nothing, zeros({0, 2}), 0), nothing, "mse_loss");
}

TEST(Ops, ACountOfZeroThatIsNotTrueIsNoQuietLoss) {
  Context context({.rank = 0, .world_size = 2});
  Tensor logits = randn({3, 2}, "logits").set_requires_grad(), labels = full({3}, 1, DType::i64);
  EXPECT_EQ(cross_entropy(logits, labels, 0).item(), INFINITY);
  EXPECT_EQ(linear_cross_entropy(logits, randn({5, 2}, "w"), labels, {.count = 0}).item(), INFINITY);
  EXPECT_REFUSED(mse_loss(logits, zeros({3, 2}), 0), "mse_loss", "count 0", "[3, 2]");
  NoGrad evaluating;
  EXPECT_LT(cross_entropy(logits, labels, 0).item(), 100) << "nothing is added up";
  EXPECT_REFUSED(mse_loss(logits, zeros({3, 2}), 0), "mse_loss", "count 0", "[3, 2]");
}

TEST(Ops, LossesOfPartsAddUpToTheLossOfTheWhole) {
  Context context;
  Tensor x = randn({6, 3}, "x"), target = randn({6, 3}, "target");
  double whole = mse_loss(x, target).item();
  double parts = mse_loss(slice(x, 0, 0, 2), slice(target, 0, 0, 2), 18).item() +
                 mse_loss(slice(x, 0, 2, 6), slice(target, 0, 2, 6), 18).item();
  EXPECT_NEAR(parts, whole, 1e-6 * whole);
  EXPECT_EQ(mse_loss(zeros({0, 3}), zeros({0, 3})).item(), 0);
}

TEST(Ops, LossesOfHalfPrecisionAreF32) {
  Context context;
  Tensor x = zeros({2, 3}, DType::bf16);
  EXPECT_EQ(mse_loss(x, x).dtype(), DType::f32);
  EXPECT_EQ(cross_entropy(x, zeros({2}, DType::i64)).dtype(), DType::f32);
}

TEST(Ops, I42_DropoutIsAFunctionOfTheGlobalSample) {
  Context context;
  Tensor x = ones({8, 5});
  std::vector<double> whole = values(dropout(x, 0.5, 1, 2)), parts;
  for (int64_t begin : {0, 3}) {
    Tensor part = dropout(slice(x, 0, begin, begin ? 8 : 3), 0.5, 1, 2, begin);
    for (double value : values(part)) parts.push_back(value);
  }
  EXPECT_EQ(parts, whole);
  EXPECT_NE(values(dropout(x, 0.5, 1, 3)), whole);
  EXPECT_NE(values(dropout(x, 0.5, 2, 2)), whole);
  std::vector<double> many = values(dropout(ones({10'000}), 0.25, 1, 2));
  double kept = double(std::ranges::count_if(many, [](double v) { return v != 0; }));
  EXPECT_NEAR(kept / 10'000, 0.75, 0.02);
  EXPECT_NEAR(largest(many), 1 / 0.75, 1e-6);
}

TEST(Ops, DropoutMaskIsTheSameInBackward) {
  Context context;
  Tensor x = ones({100}).set_requires_grad();
  Tensor y = dropout(x, 0.5, 1, 2);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), values(y));
}

TEST(Ops, RandomNumbersDependOnSeedAndNameOnly) {
  auto draw = [](uint64_t seed, const char* name) {
    Context context({.seed = seed});
    return values(randn({1000}, name));
  };
  EXPECT_EQ(draw(1, "a"), draw(1, "a"));
  EXPECT_NE(draw(1, "a"), draw(1, "b"));
  EXPECT_NE(draw(1, "a"), draw(2, "a"));
  double total = 0, squares = 0;
  for (double value : draw(1, "a")) total += value, squares += value * value;
  EXPECT_NEAR(total / 1000, 0, 0.1);
  EXPECT_NEAR(squares / 1000, 1, 0.15);
}

TEST(Ops, ConversionsKeepGradientsAndIdentity) {
  Context context;
  Tensor x = from_vector<float>({1.5, -2}, {2}).set_requires_grad();
  EXPECT_TRUE(x.to(DType::f32).same_as(x));
  EXPECT_TRUE(x.to(kCpu).same_as(x));
  Tensor there = x.to(DType::bf16).to(kAcc);
  Tensor back = affine(there, 2, 0).to(kCpu).to(DType::f64);
  sum(back).backward();
  EXPECT_EQ(values(back), list({3, -4}));
  EXPECT_EQ(values(x.grad()), list({2, 2}));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_FALSE(x.to(DType::i32).requires_grad());
}

TEST(Ops, ACopyToAnAsynchronousDeviceOutlivesItsSource) {
  for (uint64_t seed : {1, 2, 3}) {
    Context context({.delay_seed = seed});
    std::vector<Tensor> far;
    for (int i = 0; i < 20; ++i) far.push_back(full({64}, i).to(kAcc));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(values(far[size_t(i)]), std::vector<double>(64, i));
  }
}

TEST(Ops, LinearBackwardWritesOnlyItsDestinations) {
  Context context;
  Tensor x = zeros({64, 128}), w = zeros({256, 128}).set_requires_grad(), b = zeros({256}).set_requires_grad();
  for (Tensor p : {w, b}) p.set_grad(zeros(p.shape()));
  auto extra_bytes = [&](const Tensor& root, const Tensor& grad) {
    context.ledger().reset_peaks();
    root.backward(grad);
    return context.ledger().peak(Category::activation_gradient);
  };
  Tensor y = linear(x, w, b, Activation::relu);
  // The gradient before the activation takes the memory of dy, unless that is the caller's.
  EXPECT_EQ(extra_bytes(y, zeros(y.shape())), int64_t(y.bytes()));
  y = linear(x, w, b, Activation::relu);
  EXPECT_EQ(extra_bytes(sum(y), Tensor()), int64_t(y.bytes()) + 4);
}

TEST(Ops, LinearOverwritesNoGradientThatSomeoneElseHolds) {
  Context context;
  Tensor x = leaf({1, -1, 2, 1}, {2, 2}), q = leaf({1, 2, 3, 4}, {2, 2}), w = from_vector<float>({1, 0, 0, 1}, {2, 2});
  Tensor upstream = from_vector<float>({1, 2, 3, 4}, {2, 2});
  linear(x, w, Tensor(), Activation::relu).backward(upstream);
  EXPECT_EQ(values(upstream), list({1, 2, 3, 4}));
  // add hands its gradient to both sides; q's side reads it after linear.
  Tensor older = affine(q, 2, 0);
  (linear(x, w, Tensor(), Activation::relu) + older).backward(upstream);
  EXPECT_EQ(values(q.grad()), list({2, 4, 6, 8}));
  // The same through a view, whose handle is its own while its memory is shared.
  q.zero_grad();
  older = reshape(affine(q, 2, 0), {4});
  Tensor root = affine(reshape(linear(x, w, Tensor(), Activation::relu), {4}) + older, 2, 0);
  root.backward(reshape(upstream, {4}));
  EXPECT_EQ(values(q.grad()), list({4, 8, 12, 16}));
}

TEST(Ops, SumsOfIntegersAreWide) {
  Context context;
  Tensor right = eq(zeros({10, 100}, DType::i64), zeros({10, 100}, DType::i64));
  EXPECT_EQ(sum(right).item(), 1000);
  EXPECT_EQ(sum(right).dtype(), DType::i64);
  EXPECT_EQ(sum(full({3}, 2e9, DType::i32)).item(), 6e9);
  for (Device device : {kCpu, kAcc}) {
    Tensor x = full({300, 300, 2}, 1, {DType::u8, device});
    EXPECT_EQ(values(sum(x, 0)), std::vector<double>(600, 300));
    EXPECT_EQ(values(sum(x, 1, true)), std::vector<double>(600, 300));
    EXPECT_EQ(values(sum(slice(x, 2, 0, 1), 2)), std::vector<double>(90'000, 1));
  }
  EXPECT_REFUSED(mean(right), "mean", "floating", ".to(dtype)");
}

TEST(Ops, IntegersMeetNumbers) {
  Context context;
  Tensor i = from_vector<int64_t>({-3, 0, 4}, {3}), mask = from_vector<uint8_t>({0, 1, 1}, {3});
  EXPECT_EQ((i + 1).dtype(), DType::i64);
  EXPECT_EQ(values(i + 1), list({-2, 1, 5}));
  EXPECT_EQ(values(2.0 * i - 1), list({-7, -1, 7}));
  EXPECT_EQ(values(-i), list({3, 0, -4}));
  EXPECT_EQ(values(abs(i.to(DType::i32))), list({3, 0, 4}));
  EXPECT_EQ(values(clamp(i, -1, std::numeric_limits<double>::infinity())), list({-1, 0, 4}));
  EXPECT_EQ(values(1.0 - mask), list({1, 0, 0}));
  EXPECT_REFUSED(i * 0.5, "affine", "0.5", "i64[3]", ".to(dtype)");
  EXPECT_REFUSED(i + 1e30, "affine", "1e+30");
  EXPECT_REFUSED(i + 0x1p63, "affine", "9.22337e+18");
  EXPECT_REFUSED(i / 2, "div", "floating");
}

TEST(Ops, DivisionByANumberRoundsOnce) {
  Context context;
  for (double divisor : {49.0, 3.0, 0.1, -7.0}) {
    std::vector<float> numbers, expected;
    for (int n = 1; n < 1000; ++n) numbers.push_back(float(n)), expected.push_back(float(n) / float(divisor));
    Tensor x = from_vector(numbers, {999}).set_requires_grad();
    Tensor y = x / divisor;
    EXPECT_EQ(y.to_vector<float>(), expected) << divisor;
    y.backward(x.detach());
    EXPECT_EQ(x.grad().to_vector<float>(), expected) << divisor;
  }
}

TEST(Ops, ARangeOfMoreThanThereIsMemoryForIsAnErrorOfTheLibrary) {
  Context context;
  EXPECT_THROW(arange(int64_t(1) << 50), Error);
  EXPECT_THROW(arange(int64_t(1) << 60), Error);
  Tensor long_one = arange((1 << 20) + 5, DType::i64);
  EXPECT_EQ(long_one.alias_rows((1 << 20) + 4, (1 << 20) + 5).item(), (1 << 20) + 4);
}

}  // namespace
}  // namespace shardgrad::test
