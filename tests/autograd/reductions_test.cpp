// Reductions: which element has the gradient where several are extreme, and reductions over several dimensions.

#include <cmath>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

std::vector<double> gradient_of(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  Tensor leaf = x.detach().set_requires_grad();
  f(leaf).sum().backward();
  return values(leaf.grad());
}

TEST(Reductions, EqualExtremesHaveEqualPartsOfTheGradient) {
  Context context;
  Tensor x = tensor({{3., 1., 3.}, {-1., 3., -1.}});
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return max(y) * 6; }), list({2, 0, 2, 0, 2, 0}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return y.min(); }), list({0, 0, 0, 0.5, 0, 0.5}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return amax(y, 1); }), list({0.5, 0, 0.5, 0, 1, 0}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return amin(y, {0, 1}, true); }), list({0, 0, 0, 0.5, 0, 0.5}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return max(y, 1).values; }), list({1, 0, 0, 0, 1, 0}))
      << "to the index that it names";
}

TEST(Reductions, ANormGoesOverTheDimensionsNamedWhateverTheirExtents) {
  Context context;
  for (const Shape& shape : {Shape{2, 1, 3}, Shape{3, 1, 2, 4}, Shape{1, 2, 1, 3}, Shape{2, 3, 1}})
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      Tensor x = normal(shape, "x");
      test::expect_close(values(norm(x, dim)), values(sqrt(sum(x * x, dim))), 1e-6, "norm");
    }
}

TEST(Reductions, AlongADimensionOfATensorThatIsEmptyElsewhereHaveNoElements) {
  Context context;
  EXPECT_EQ(amax(zeros({2, 0}), 0).shape(), Shape{0});
  EXPECT_EQ(max(zeros({2, 0, 3}), 0).index.shape(), (Shape{0, 3}));
  EXPECT_EQ(argmin(zeros({2, 0}), 0, true).shape(), (Shape{1, 0}));
  EXPECT_EQ(logsumexp(zeros({2, 0}), 0).shape(), Shape{0});
  EXPECT_REFUSED(amax(zeros({2, 0}), 1), "amax", "is empty");
}

TEST(Reductions, DimensionsMayBeKept) {
  Context context;
  Dims dims = {0, -1};
  EXPECT_EQ(sum(ones({2, 3, 4}), dims).shape(), Shape{3});
  EXPECT_REFUSED(sum(ones({2}), Dims{0, 1, 2, 3, 4, 5, 6, 7}), "sum");
}

TEST(Reductions, AnExtremeNaNHasTheGradient) {
  Context context;
  Tensor x = tensor({NAN, 2., NAN, 2.});
  EXPECT_TRUE(std::isnan(max(x).item()));
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return max(y); }), list({0.5, 0, 0.5, 0}));
  EXPECT_EQ(gradient_of(x, [](const Tensor& y) { return amin(y, 0); }), list({0.5, 0, 0.5, 0}));
}

TEST(Reductions, ManyEqualExtremesAreCountedIn16BitsToo) {
  Context context;
  for (DType dtype : {DType::bf16, DType::f16}) {
    Tensor x = ones({768}, dtype).set_requires_grad();
    (max(x) * 3).backward();
    EXPECT_EQ(values(x.grad()), std::vector<double>(768, 0x1p-8)) << dtype;
  }
}

TEST(Reductions, AStandardDeviationOf16BitsIsRoundedOnce) {
  Context context;
  EXPECT_EQ(std(tensor({600., -600.}, DType::f16)).item(), 848.5) << "whose square f16 does not hold";
  EXPECT_NEAR(std(tensor({1e-4, 2e-4}, DType::f16)).item(), 7.07507e-5, 1e-10);
  EXPECT_EQ(std(tensor({0.1, 0.3, 2.3}, DType::bf16), 0).item(), 1.2109375);
  std::vector<double> found =
      gradient_of(tensor({600., -600., 1.}, DType::f16), [](const Tensor& y) { return std(y); });
  expect_close(found, list({0.499756, -0.500488, 0.000555992}), 1e-3, "gradient");
  EXPECT_REFUSED(std(arange(3)), "std", "floating");
}

TEST(Reductions, OfTooFewForTheCorrectionTheVarianceIsInfinite) {
  Context context;
  EXPECT_EQ(values(var(tensor({{1., 3.}, {2., 3.}}), 0, 2)).at(0), INFINITY);
  EXPECT_TRUE(std::isnan(values(var(tensor({{1., 3.}, {2., 3.}}), 0, 2)).at(1))) << "of equal ones it is no number";
  EXPECT_EQ(std(tensor({1., 2.}), 3.).item(), INFINITY);
  EXPECT_TRUE(std::isnan(var(tensor({1.})).item()));
}

TEST(Reductions, LogsumexpOfNothingIsMinusInfinity) {
  Context context;
  EXPECT_EQ(values(logsumexp(zeros({0, 3}), 0)), std::vector<double>(3, -INFINITY));
  EXPECT_EQ(logsumexp(zeros({0, 3}), {0, 1}).item(), -INFINITY);
}

TEST(Reductions, ExtremesOverDimensionsHaveTheirShapesAndRefuseNothingToReduce) {
  Context context;
  Tensor x = arange(24, DType::f32).view({2, 3, 4});
  EXPECT_EQ(values(amax(x, {0, -1})), list({15, 19, 23}));
  EXPECT_EQ(values(x.amin({0, -1}, true)), list({0, 4, 8}));
  EXPECT_EQ(amin(x, {0, -1}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(values(amax(tensor({3, 1}), 0)), list({3})) << "of integers";
  EXPECT_REFUSED(amax(x, Dims{}), "amax", "no dimension");
  EXPECT_REFUSED(amax(x, {0, -3}), "amax", "twice");
  EXPECT_REFUSED(amax(zeros({0, 2}), {0, 1}), "amax", "empty");
  EXPECT_REFUSED(max(zeros({0, 2})), "max", "empty");
}

// What a reduction over dimensions 0 and 2 is, by one over the last of x with these put together.
template <class Some, class Last> void expect_over_two(Some some, Last last) {
  Tensor x = randn({4, 3, 5}, "x", DType::f64).set_requires_grad();
  Tensor together = reshape(permute(x, {1, 0, 2}), {3, 20});
  Tensor y = some(x, false), kept = some(x, true), expected = last(together);
  EXPECT_EQ(y.shape(), (Shape{3}));
  EXPECT_EQ(kept.shape(), (Shape{1, 3, 1}));
  expect_close(values(y), values(expected), 1e-14, "result");
  EXPECT_EQ(values(kept), values(y));
  if (!y.requires_grad()) return;
  Tensor upstream = tensor({1., 2., 4.}, DType::f64);
  y.backward(upstream);
  std::vector<double> found = values(x.grad());
  x.zero_grad();
  expected.backward(upstream);
  expect_close(found, values(x.grad()), 1e-13, "gradient");
}

TEST(Reductions, OverSeveralDimensionsAreThoseOfTheirElementsTogether) {
  Context context;
  using X = const Tensor&;
  auto all = [](auto some, auto last) { expect_over_two(some, last); };
  all([](X x, bool k) { return var(x, {0, 2}, 1, k); }, [](X x) { return var(x, 1); });
  all([](X x, bool k) { return std(x, {2, 0}, 0, k); }, [](X x) { return std(x, 1, 0); });
  all([](X x, bool k) { return norm(x, {0, -1}, k); }, [](X x) { return norm(x, 1); });
  all([](X x, bool k) { return logsumexp(x, {0, 2}, k); }, [](X x) { return logsumexp(x, 1); });
  all([](X x, bool k) { return amax(x, {0, 2}, k); }, [](X x) { return max(x, 1).values; });
  all([](X x, bool k) { return any(x > 0.95, {0, 2}, k); }, [](X x) { return any(x > 0.95, 1); });
  all(
      [](X x, bool k) {
        return shardgrad::all(x > -0.95, {0, 2}, k);
      },
      [](X x) { return shardgrad::all(x > -0.95, 1); });
  EXPECT_REFUSED(var(zeros({2, 2}), {0, 0}), "var", "twice");
  EXPECT_REFUSED(logsumexp(zeros({2, 2}), 2), "logsumexp", "no dimension 2");
}

TEST(Reductions, AreMethodsToo) {
  Context context;
  Tensor x = tensor({{1., 4.}, {2., 0.}});
  EXPECT_EQ(values(x.sum({0, 1})), values(sum(x)));
  EXPECT_EQ(values(x.mean({1}, true)), values(mean(x, 1)));
  EXPECT_EQ(values(x.max(1).index), list({1, 0}));
  EXPECT_EQ(values(x.min(0, true).values), list({1, 0}));
  EXPECT_EQ(x.argmax().item() * 10 + x.argmin().item(), 13);
  EXPECT_EQ(values(x.argmin(1, true)), list({0, 1}));
  EXPECT_EQ(values(x.var(0)), values(var(x, 0)));
  EXPECT_EQ(x.var().item(), var(x).item());
  EXPECT_EQ(values(x.std(1, 0)), values(std(x, 1, 0)));
  EXPECT_EQ(x.std().item(), std(x).item());
  EXPECT_EQ(x.norm().item(), norm(x).item());
  EXPECT_EQ(values(x.amax(1)), values(amax(x, 1)));
  EXPECT_EQ(values(x.amin(1)), values(amin(x, 1)));
  EXPECT_EQ(values(x.prod(0)), list({2, 0}));
  EXPECT_EQ(x.prod().item(), 0);
  EXPECT_EQ(values(x.cumsum(1)), list({1, 5, 2, 2}));
  EXPECT_EQ(values(x.sort(0).values), list({1, 0, 2, 4}));
  EXPECT_EQ(values(x.topk(1).values), list({4, 2}));
  EXPECT_EQ(values(x.log_softmax(1)), values(log_softmax(x, 1)));
}

}  // namespace
}  // namespace shardgrad::test
