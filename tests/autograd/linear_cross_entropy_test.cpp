// The head and its loss in one are what they are apart, with less memory.

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

struct HeadOf {
  Tensor x, weight, labels;
  HeadOf(int64_t rows, int64_t vocabulary, int64_t classes, DType dtype) {
    x = upstream_like(empty({rows, 6}, dtype), 1).set_requires_grad();
    weight = upstream_like(empty({vocabulary, 6}, dtype), 2).set_requires_grad();
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < rows; ++i) numbers.push_back(i % 4 == 3 ? -100 : i * 5 % classes);
    labels = from_vector(numbers, {rows});
  }
  std::vector<std::vector<double>> gradients() const { return {values(x.grad()), values(weight.grad())}; }
};

TEST(LinearCrossEntropy, IsTheLossOfTheProduct) {
  Context context;
  for (auto [dtype, tolerance] : {std::pair(DType::f32, 1e-6), {DType::f64, 1e-12}})
    for (double count : {0.0, 12.0})
      for (int64_t rows : {0, 1, 4, 9, 20}) {
        HeadOf apart(9, 13, 11, dtype), together(9, 13, 11, dtype);
        Tensor expected = cross_entropy(linear(apart.x, apart.weight.rows(0, 11), Tensor()), apart.labels, count);
        Tensor loss = linear_cross_entropy(together.x, together.weight, together.labels,
                                           {.count = count, .classes = 11, .rows = rows});
        std::string what = concat(dtype, ", ", rows, " rows at a time, count ", count);
        expect_close(values(loss), values(expected), tolerance, what);
        affine(expected, 3, 0).backward();
        affine(loss, 3, 0).backward();
        for (size_t i : {0, 1})
          expect_close(together.gradients()[i], apart.gradients()[i], tolerance, concat(what, ", gradient ", i));
      }
}

TEST(LinearCrossEntropy, PaddedClassesChangeNoBitWhateverTheyAre) {
  Context context;
  HeadOf plain(9, 11, 11, DType::f32);
  for (int64_t rows : {0, 4}) {
    Tensor padding = full({5, 6}, NAN);
    Tensor padded = cat(std::vector{plain.weight.detach(), padding}, 0).set_requires_grad();
    Tensor loss = linear_cross_entropy(plain.x.detach(), padded, plain.labels, {.classes = 11, .rows = rows});
    Tensor expected = linear_cross_entropy(plain.x.detach(), plain.weight, plain.labels, {.rows = rows});
    EXPECT_EQ(bits(loss), bits(expected));
    plain.weight.zero_grad();
    loss.backward();
    expected.backward();
    EXPECT_EQ(bits(padded.grad().rows(0, 11)), bits(plain.weight.grad()));
    EXPECT_EQ(largest(values(padded.grad().rows(11, 16))), 0);
  }
}

TEST(LinearCrossEntropy, LogitsAreInMemoryOnceOrSomeRowsOfThem) {
  Context context;
  HeadOf head(256, 2048, 2048, DType::f32);
  const Ledger& ledger = context.ledger();
  constexpr int64_t kLogits = 256 * 2048 * 4;
  int64_t before = ledger.current(), held = ledger.current(Category::activation);
  Tensor loss = linear_cross_entropy(head.x, head.weight, head.labels, {.count = 192});
  EXPECT_EQ(ledger.current(Category::activation) - held, kLogits + 256 * 8 + 4) << "logits, lse and the loss";
  context.ledger().reset_peaks();
  loss.backward();
  EXPECT_LT(ledger.peak() - before, kLogits + kLogits / 2) << "the gradient of the logits takes their place";
  loss = Tensor();
  before = ledger.current();
  context.ledger().reset_peaks();
  linear_cross_entropy(head.x, head.weight, head.labels, {.count = 192, .rows = 16}).backward();
  EXPECT_LT(ledger.peak() - before, kLogits / 2);
}

TEST(LinearCrossEntropy, AGraphThatIsRetainedKeepsItsLogits) {
  Context context;
  for (int64_t rows : {0, 4}) {
    HeadOf once(9, 11, 11, DType::f64), twice(9, 11, 11, DType::f64);
    linear_cross_entropy(once.x, once.weight, once.labels, {.rows = rows}).backward();
    Tensor loss = linear_cross_entropy(twice.x, twice.weight, twice.labels, {.rows = rows});
    loss.backward(Tensor(), true);
    EXPECT_EQ(twice.gradients(), once.gradients());
    loss.backward();
    for (size_t i : {0, 1}) {
      std::vector<double> expected = once.gradients()[i];
      for (double& value : expected) value *= 2;
      expect_close(twice.gradients()[i], expected, 1e-15, "added to itself");
    }
    EXPECT_REFUSED(loss.backward(), "linear_cross_entropy", "retain_graph");
  }
}

TEST(LinearCrossEntropy, WhatDoesNotFitIsRefused) {
  Context context;
  Tensor x = zeros({4, 3}), weight = zeros({7, 3}), labels = zeros({4}, DType::i64);
  EXPECT_REFUSED(linear_cross_entropy(x, zeros({7, 2}), labels), "linear_cross_entropy", "[4, 3]", "[7, 2]");
  EXPECT_REFUSED(linear_cross_entropy(zeros({2, 2, 3}), weight, labels), "[2, 2, 3]", "(N, in)");
  EXPECT_REFUSED(linear_cross_entropy(x, weight, zeros({5}, DType::i64)), "[5]", "(N)");
  EXPECT_REFUSED(linear_cross_entropy(x, weight, zeros({4})), "i64", "f32", ".to(dtype)");
  EXPECT_REFUSED(linear_cross_entropy(x, weight, labels, {.classes = 8}), "8 classes", "[7, 3]");
  EXPECT_REFUSED(linear_cross_entropy(x, weight, labels, {.rows = -1}), "rows -1");
  EXPECT_REFUSED(linear_cross_entropy(x, weight, labels, {.count = -1}), "count -1");
  EXPECT_REFUSED(linear_cross_entropy(weight, weight, zeros({7}, DType::i64)), "different tensors");
  Tensor high = full({4}, 6, DType::i64);
  EXPECT_REFUSED(linear_cross_entropy(x, weight, high, {.classes = 5}), "label", "is 6", "[0, 5)");
}

TEST(LinearCrossEntropy, RanksGiveTheCountOfTheWholeBatch) {
  Context context({.rank = 0, .world_size = 2});
  HeadOf head(4, 5, 5, DType::f32);
  EXPECT_REFUSED(linear_cross_entropy(head.x, head.weight, head.labels), "linear_cross_entropy", "2 ranks", "count");
}

}  // namespace
}  // namespace shardgrad::test
