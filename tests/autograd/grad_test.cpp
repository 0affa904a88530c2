// Gradients beside those of leaves: grad(), hooks on tensors, retain_grad, and who made NaN.

#include <cmath>
#include <thread>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

class GradientsAskedFor : public testing::Test {
 protected:
  Context context_;
  Tensor x = tensor({1., 2.}).set_requires_grad(), w = tensor({3., 5.}).set_requires_grad();
};

TEST_F(GradientsAskedFor, GradGivesThemAndAddsNothingToLeaves) {
  Tensor y = x * w, loss = (y * y).sum();
  std::vector<Tensor> found = grad(loss, {x, y});
  EXPECT_EQ(values(found[0]), list({2 * 1 * 9, 2 * 2 * 25}));
  EXPECT_EQ(values(found[1]), list({6, 20}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST_F(GradientsAskedFor, GradAgreesWithBackwardAndGoesAfterItWhereTheGraphIsKept) {
  auto loss_of = [&] { return (sin(x) * w + exp(x) / w).sum(); };
  Tensor loss = loss_of();
  std::vector<Tensor> found = grad(loss, {w, x}, true);
  loss.backward();
  EXPECT_EQ(bits(found[0]), bits(w.grad()));
  EXPECT_EQ(bits(found[1]), bits(x.grad()));
  EXPECT_REFUSED(grad(loss, {x}), "went through this graph before", "retain_graph");
}

TEST_F(GradientsAskedFor, GradOfWhatNothingDependsOnIsUndefined) {
  Tensor alone = tensor({1.}).set_requires_grad();
  std::vector<Tensor> found = grad((x * w).sum(), {alone, x});
  EXPECT_FALSE(found[0].defined());
  EXPECT_EQ(values(found[1]), list({3, 5}));
  (alone * 2).sum().backward();
  EXPECT_EQ(values(alone.grad()), list({2})) << "and its own passes go on as ever";
}

TEST_F(GradientsAskedFor, GradTakesSeveralOutputsEachWithItsGradient) {
  const Tensor outputs[] = {x * 2, w * x}, inputs[] = {x}, grads[] = {tensor({1., 0.}), tensor({0., 10.})};
  EXPECT_EQ(values(grad(outputs, inputs, grads)[0]), list({2, 50}));
}

// Threads count their operations apart, so a node may have a smaller number than those it was made from.
TEST_F(GradientsAskedFor, GradFindsItsWayThroughOperationsOfAnotherThread) {
  Tensor y = x;
  for (int k = 0; k < 100; ++k) y = y * 1;
  Tensor loss;
  std::thread([&] {
    ContextScope scope(context_);
    loss = (y * w).sum();
  }).join();
  EXPECT_EQ(values(grad(loss, {x})[0]), list({3, 5}));
}

TEST_F(GradientsAskedFor, GradLeavesTheRestOfTheGraphForAnotherPass) {
  Tensor left = exp(x), right = exp(w);
  Tensor loss = left.sum() + right.sum();
  grad(loss, {x}, true);
  Tensor other = right.sum();
  other.backward();
  EXPECT_NEAR(values(w.grad())[0], std::exp(3), 1e-5);
}

TEST_F(GradientsAskedFor, GradGivesAnInputThatIsGivenTwiceItsGradientTwice) {
  Tensor y = x * w;
  std::vector<Tensor> found = grad(y.sum(), {x, y, x, y});
  for (size_t i : {0, 2}) EXPECT_EQ(values(found[i]), list({3, 5}));
  for (size_t i : {1, 3}) EXPECT_EQ(values(found[i]), list({1, 1}));
}

TEST_F(GradientsAskedFor, GradAddsNothingToALeafAmongTheOutputs) {
  w.set_grad(tensor({6., 7.}));
  const Tensor outputs[] = {w, w * 5, x}, inputs[] = {w}, ones_each[] = {ones({2}), ones({2}), ones({2})};
  EXPECT_EQ(values(grad(outputs, inputs, ones_each)[0]), list({6, 6}));
  EXPECT_EQ(values(w.grad()), list({6, 7}));
  EXPECT_FALSE(x.grad().defined()) << "an output that is not asked for";
  Tensor alone = tensor({2.}).set_requires_grad();
  EXPECT_EQ(values(grad(alone, {alone})[0]), list({1}));
  EXPECT_FALSE(alone.grad().defined());
}

// linear hands the backward of the ReLU below to its own product: of a tensor that is asked for it must not.
TEST_F(GradientsAskedFor, GradOfAHiddenTensorBehindReluIsThatOfItsResult) {
  Tensor in = tensor({{1., 2.}}), up = tensor({{1., 1.}, {-1., -1.}}).set_requires_grad(), down = tensor({{10., 20.}});
  Tensor hidden = linear(in, up, Tensor(), Activation::relu);
  std::vector<Tensor> found = grad(linear(hidden, down, Tensor()).sum(), {hidden, up});
  EXPECT_EQ(values(found[0]), list({10, 20}));
  EXPECT_EQ(values(found[1]), list({10, 20, 0, 0}));
}

TEST_F(GradientsAskedFor, GradRefusesWhatHasNone) {
  Tensor loss = (x * w).sum();
  EXPECT_REFUSED(grad(loss, {tensor({1.})}), "grad", "does not require grad");
  EXPECT_REFUSED(grad(loss, {}), "no inputs");
  loss.backward();
  EXPECT_EQ(values(x.grad()), list({3, 5})) << "what was refused changed nothing";
}

TEST_F(GradientsAskedFor, AHookSeesTheWholeGradientOfAComputedTensorAndMayChangeIt) {
  Tensor y = x * 2, seen;
  y.register_hook([&](const Tensor& gradient) {
    seen = gradient;
    return gradient * 10;
  });
  (y * w + y).sum().backward();
  EXPECT_EQ(values(seen), list({4, 6}));
  EXPECT_EQ(values(x.grad()), list({80, 120}));
  EXPECT_EQ(values(w.grad()), list({2, 4}));
}

TEST_F(GradientsAskedFor, AHookOfALeafComesBeforeItsGradientIsAdded) {
  std::vector<double> seen;
  w.register_hook([&](const Tensor& gradient) {
    seen = values(gradient);
    return clamp(gradient, -1.5, 1.5);
  });
  for (int pass = 0; pass < 2; ++pass) (w * x + w).sum().backward();
  EXPECT_EQ(seen, list({2, 3})) << "that of one pass";
  EXPECT_EQ(values(w.grad()), list({3, 3}));
}

TEST_F(GradientsAskedFor, HooksRunInTheirOrderAndOneThatGivesNothingChangesNothing) {
  std::vector<int> order;
  Tensor y = x * 1;
  y.register_hook([&](const Tensor& g) { return order.push_back(1), g + 1; });
  y.register_hook([&](const Tensor&) { return order.push_back(2), Tensor(); });
  y.register_hook([&](const Tensor& g) { return order.push_back(3), g * 2; });
  y.sum().backward();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_EQ(values(x.grad()), list({4, 4}));
  Tensor z = x * 1;
  z.register_hook([](const Tensor&) { return zeros({3}); });
  EXPECT_REFUSED(z.sum().backward(), "affine", "hook", "[3]", "[2]");
  EXPECT_REFUSED(tensor({1.}).register_hook([](const Tensor& g) { return g; }), "does not require grad");
}

// relu hands its backward to the product that follows: with a hook between them it must not.
TEST_F(GradientsAskedFor, AHookBehindReluSeesTheGradientOfItsResult) {
  Tensor a = tensor({{1., -1.}}).set_requires_grad(), b = tensor({{2., 3.}, {4., 5.}}).set_requires_grad(), seen;
  Tensor hidden = relu(a);
  hidden.register_hook([&](const Tensor& gradient) { return seen = gradient, Tensor(); });
  linear(hidden, b, Tensor()).sum().backward();
  EXPECT_EQ(values(seen), list({6, 8}));
  EXPECT_EQ(values(a.grad()), list({6, 0}));
}

TEST_F(GradientsAskedFor, AComputedTensorKeepsItsGradientWhereAsked) {
  Tensor y = x * w;
  EXPECT_REFUSED(y.grad(), "only leaves keep a gradient", "retain_grad");
  y.retain_grad();
  EXPECT_FALSE(y.grad().defined());
  Tensor loss = (y * y).sum();
  loss.backward({}, true);
  EXPECT_EQ(values(y.grad()), list({6, 20}));
  loss.backward();
  EXPECT_EQ(values(y.grad()), list({12, 40})) << "the sum of the passes";
  EXPECT_EQ(values(x.grad()), list({36, 200}));
  EXPECT_REFUSED(tensor({1.}).retain_grad(), "does not require grad");
}

TEST_F(GradientsAskedFor, AKeptGradientIsWithoutPassesThatFail) {
  Tensor y = x * w;
  y.retain_grad();
  bool fails = true;
  x.register_hook([&](const Tensor&) {
    if (fails) fail("this hook fails");
    return Tensor();
  });
  Tensor loss = (y * y).sum();
  EXPECT_REFUSED(loss.backward({}, true), "this hook fails");
  EXPECT_FALSE(y.grad().defined());
  fails = false;
  loss.backward({}, true);
  fails = true;
  EXPECT_REFUSED(loss.backward({}, true), "this hook fails");
  EXPECT_EQ(values(y.grad()), list({6, 20})) << "that of the pass before";
}

TEST_F(GradientsAskedFor, AKeptGradientCanBeForgotten) {
  Tensor y = x * w;
  EXPECT_REFUSED(y.zero_grad(), "only a leaf");
  y.retain_grad();
  Tensor loss = (y * y).sum();
  for (int pass = 0; pass < 2; ++pass) {
    y.zero_grad();
    EXPECT_FALSE(y.grad().defined());
    loss.backward({}, true);
    EXPECT_EQ(values(y.grad()), list({6, 20}));
  }
  EXPECT_REFUSED(y.set_grad(ones({2})), "only a leaf");
}

TEST_F(GradientsAskedFor, AnAnomalyIsOfTheOperationThatWroteItOverWhatItWasGiven) {
  Tensor in = tensor({{1e30, 1.}}), up = tensor({{1e30, 1.}, {-1., -1.}}).set_requires_grad();
  Tensor hidden = linear(in, up, Tensor(), Activation::gelu_tanh);  // of infinity
  DetectAnomaly scope;
  EXPECT_REFUSED((hidden * tensor({{0.5, 0.5}})).sum().backward(), "'linear'", "made NaN", "input 1");
}

TEST_F(GradientsAskedFor, AnAnomalyNamesTheOperationThatMadeNan) {
  Tensor zero = tensor({0., 1.}).set_requires_grad();
  auto loss_of = [&] { return (sqrt(zero) * 0).sum(); };  // 0 · ∞
  {
    DetectAnomaly scope;
    EXPECT_REFUSED(loss_of().backward(), "sqrt", "NaN", "input 0");
    EXPECT_NO_THROW((x * w).sum().backward());
  }
  {
    DetectAnomaly scope;
    Tensor y = x * 2;
    y.register_hook([](const Tensor& g) { return g * NAN; });
    EXPECT_REFUSED(y.sum().backward(), "was given NaN", "hook");
  }
  zero.zero_grad();
  loss_of().backward();
  EXPECT_TRUE(std::isnan(values(zero.grad())[0])) << "outside it is as ever";
}

}  // namespace
}  // namespace shardgrad::test
