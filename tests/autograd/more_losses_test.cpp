// The losses of autograd/ops/losses.h: PyTorch's numbers, what they divide by.

#include <cmath>
#include <limits>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

class MoreLosses : public testing::Test {
 protected:
  Context context_;
  Tensor x = tensor({{0.5, -1.}, {2., 0.}}, DType::f64), t = tensor({{1., 0.}, {0.5, 1.}}, DType::f64);
  Tensor logits = tensor({{1., 2., 3.}, {0., 0., 5.}, {-1., 0.5, 0.}}, DType::f64), labels = tensor({2, 0, 2});
};

// Of torch 2.x in f64.
TEST_F(MoreLosses, AreThoseOfPyTorch) {
  auto expect = [](const Tensor& loss, double value) { EXPECT_NEAR(loss.item(), value, 1e-12); };
  expect(binary_cross_entropy_with_logits(x, t), 0.6518534658253118);
  expect(binary_cross_entropy_with_logits(x, t, {}, tensor({2., 1.}, DType::f64)), 0.78623871325071);
  expect(l1_loss(x, t), 1.0);
  expect(smooth_l1_loss(x, t), 0.53125);
  expect(smooth_l1_loss(x, t, 2), 0.28125);
  expect(huber_loss(x, t, 0.5), 0.375);
  expect(kl_div(log_softmax(logits), softmax(logits * 2)), 0.022349354892150928);
  EXPECT_TRUE(std::isnan(kl_div(tensor({-1., -1.}), tensor({0.5, NAN})).item())) << "what is not a number stays";
  EXPECT_TRUE(std::isnan(kl_div(tensor({-1., NAN}), tensor({0.5, 0.})).item())) << "also where its share is 0";
  EXPECT_EQ(kl_div(tensor({-1., -3.}), tensor({1., 0.})).item(), 0.5) << "0 log 0 is 0";
  expect(nll_loss(log_softmax(logits), labels), 2.175040823834186);
  expect(cross_entropy(logits, labels, ClassOptions{}), 2.175040823834186);
  expect(cross_entropy(logits, labels, ClassOptions{.label_smoothing = 0.1}), 2.1583741571675192);
  Tensor weight = tensor({1., 2., 0.5}, DType::f64);
  expect(cross_entropy(logits, labels, ClassOptions{.weight = weight}), 2.8846270933060016);
  expect(cross_entropy(logits, labels, ClassOptions{.weight = weight, .label_smoothing = 0.2}), 3.1189659629867665);
  expect(cross_entropy(logits, softmax(logits * 2), ClassOptions{}), 0.4523553693234013);
}

TEST_F(MoreLosses, WithoutOptionsOfTheirOwnTheyAreTheFusedLoss) {
  EXPECT_NEAR(cross_entropy(logits, labels, ClassOptions{}).item(), cross_entropy(logits, labels).item(), 1e-14);
  Tensor ignored = tensor({2, -100, 2});
  EXPECT_NEAR(cross_entropy(logits, ignored, ClassOptions{}).item(), cross_entropy(logits, ignored).item(), 1e-14);
  EXPECT_EQ(cross_entropy(logits, tensor({-100, -100, -100}), ClassOptions{}).item(), 0);
}

TEST_F(MoreLosses, AnIgnoredRowCountsForNothingWhateverItHas) {
  Tensor odd = tensor({{1., 2., 3.}, {-INFINITY, 0., -INFINITY}}, DType::f64).set_requires_grad();
  Tensor one = tensor({2, -100});
  for (double smoothing : {0.0, 0.1}) {
    ClassOptions options{.weight = tensor({1., 2., 0.5}, DType::f64), .label_smoothing = smoothing};
    Tensor loss = cross_entropy(odd, one, options);
    EXPECT_NEAR(loss.item(), cross_entropy(odd.rows(0, 1), one.rows(0, 1), options).item(), 1e-14);
  }
}

TEST_F(MoreLosses, AnIgnoredIndexThatNoDoubleHoldsIsCountedAsItIs) {
  for (int64_t ignored : {(int64_t(1) << 53) + 1, std::numeric_limits<int64_t>::max()}) {
    Tensor one = tensor({int64_t(2), ignored, ignored});
    double loss = cross_entropy(logits.rows(0, 1), one.rows(0, 1)).item();
    EXPECT_EQ(cross_entropy(logits, one, {}, ignored).item(), loss) << ignored;
    EXPECT_NEAR(cross_entropy(logits, one, ClassOptions{.ignore_index = ignored}).item(), loss, 1e-14) << ignored;
  }
}

TEST_F(MoreLosses, OfABatchInWhichNothingCountsAreZeroAndWhatCountsAllTheSameIsInfinite) {
  Context rank({.rank = 1, .world_size = 2});
  Tensor x = zeros({2, 3}).set_requires_grad();
  ClassOptions none{.count = 0, .label_smoothing = 0.1};
  EXPECT_EQ(cross_entropy(x, tensor({-100, -100}), none).item(), 0);
  EXPECT_EQ(cross_entropy(x, tensor({-100, 1}), none).item(), INFINITY);
}

TEST_F(MoreLosses, AreReducedAsAsked) {
  EXPECT_EQ(l1_loss(x, t, {.reduction = Reduction::sum}).item(), 4);
  EXPECT_EQ(values(l1_loss(x, t, {.reduction = Reduction::none})), (std::vector<double>{0.5, 1, 1.5, 1}));
  EXPECT_EQ(l1_loss(x, t, {.count = 8}).item(), 0.5);
  EXPECT_EQ(huber_loss(x, t, 0.5, {.count = 8}).item(), 0.1875);
  EXPECT_EQ(huber_loss(x, t, 0.5, {.reduction = Reduction::sum}).item(), 1.5);
  EXPECT_EQ(values(huber_loss(x, t, 0.5, {.reduction = Reduction::none})),
            (std::vector<double>{0.125, 0.375, 0.625, 0.375}));
  EXPECT_EQ(values(smooth_l1_loss(x, t, 0.5, {.reduction = Reduction::none})),
            (std::vector<double>{0.25, 0.75, 1.25, 0.75}));
  EXPECT_EQ(smooth_l1_loss(x, t, 0.5, {.reduction = Reduction::sum}).item(), 3);
  EXPECT_EQ(nll_loss(logits, labels, {.reduction = Reduction::none}).shape(), (Shape{3}));
}

TEST_F(MoreLosses, SixteenBitsAreComputedInF32) {
  Tensor low = x.to(DType::bf16), loss = huber_loss(low, t.to(DType::bf16));
  EXPECT_EQ(loss.dtype(), DType::f32);
  EXPECT_NEAR(loss.item(), huber_loss(x, t).item(), 1e-6);
}

TEST_F(MoreLosses, HuberHasAGradientForBothThatIsBoundedByDelta) {
  Tensor a = x.detach().set_requires_grad(), b = t.detach().set_requires_grad();
  (huber_loss(a, b, 0.75, {.reduction = Reduction::sum}) * 2).backward();
  EXPECT_EQ(values(a.grad()), (std::vector<double>{-1, -1.5, 1.5, -1.5}));
  EXPECT_EQ(values(b.grad()), (std::vector<double>{1, 1.5, -1.5, 1.5}));
}

TEST_F(MoreLosses, LargeLogitsDoNotOverflow) {
  Tensor far = tensor({1000., -1000.}), sure = tensor({1., 0.});
  EXPECT_EQ(binary_cross_entropy_with_logits(far, sure).item(), 0);
  EXPECT_EQ(binary_cross_entropy_with_logits(far, 1 - sure).item(), 1000);
}

TEST_F(MoreLosses, OfLogitsThatAreSureLoseNoDigits) {
  auto part = [](double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); };  // softplus
  auto sigma = [](double z) { return 1 / (1 + std::exp(-z)); };
  for (double logit : {10., 12., 15., 30., -10., -30.})
    for (double t : {0., 0.5, 1 - 0x1p-20, 1.})
      for (double positive : {1., 3.}) {
        Tensor at = full({1}, logit).set_requires_grad(), weight = positive == 1 ? Tensor() : full({1}, positive);
        Tensor loss = binary_cross_entropy_with_logits(at, full({1}, t), {}, weight);
        loss.backward();
        double exact = (1 - t) * part(logit) + positive * t * part(-logit);
        double slope = (1 - t) * sigma(logit) - positive * t * sigma(-logit);
        EXPECT_NEAR(loss.item(), exact, 1e-6 * exact) << logit << " " << t << " " << positive;
        EXPECT_NEAR(at.grad().item(), slope, 1e-6 * std::abs(slope)) << logit << " " << t << " " << positive;
      }
}

TEST_F(MoreLosses, WhatDoesNotFitIsRefused) {
  EXPECT_REFUSED(cross_entropy(tensor({1, 2}), labels, ClassOptions{}), "cross_entropy", "floating");
  EXPECT_REFUSED(cross_entropy(tensor({1., 2.}), labels, ClassOptions{}), "cross_entropy", "(N, classes)");
  EXPECT_REFUSED(l1_loss(x, t.reshape({-1})), "l1_loss", "[2, 2]", "[4]");
  EXPECT_REFUSED(huber_loss(x, t, 0), "huber_loss", "delta 0");
  EXPECT_REFUSED(nll_loss(logits, tensor({0., 1., 2.})), "labels must be i64 (3)");
  EXPECT_REFUSED(cross_entropy(logits, tensor({0, 1}), ClassOptions{}), "cross_entropy", "i64 (3)");
  EXPECT_REFUSED(cross_entropy(logits, labels, ClassOptions{.weight = tensor({1., 2.})}), "weights", "(3)");
  EXPECT_REFUSED(cross_entropy(logits, labels, ClassOptions{.label_smoothing = 2}), "label_smoothing 2");
  EXPECT_REFUSED(cross_entropy(logits, tensor({0, 3, 1}), ClassOptions{}), "3");
}

}  // namespace
}  // namespace shardgrad::test
