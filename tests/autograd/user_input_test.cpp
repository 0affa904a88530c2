// What comes from the author of an operation, or from a user who changes, views or reads tensors around backward: it
// works as in PyTorch, or is refused by name. Never is a gradient wrong in silence.

#include <limits>

#include <shardgrad/autograd/recompute.h>
#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

// An operation whose author hands over whatever gradient he likes.
struct Hands final : Node {
  const char* name() const override { return "hands"; }
  Tensor gradient;
  void backward(std::span<const Tensor>, std::span<GradSlot> dx) override { dx[1].alias(gradient); }
};

std::string handing_over(const Tensor& gradient, const Tensor& x) {
  Tensor y = empty({}), unused;
  record<Hands>(y, unused, x)->gradient = gradient;
  return refusal([&] { y.backward(); });
}

TEST(HandedOverGradient, MustHaveTheInputsShapeDtypeAndDevice) {
  Context context;
  for (bool computed : {false, true}) {
    Tensor x = leaf({1, 2, 3, 4}, {4});
    Tensor input = computed ? affine(x, 2, 0) : x;
    for (const Tensor& wrong : {ones({}), ones({2, 2}), ones({4}, DType::f64), ones({4}, kAcc)}) {
      std::string words = handing_over(wrong, input);
      for (std::string part :
           {std::string("hands"), std::string("input 1"), concat(wrong), std::string("f32[4] on cpu")})
        EXPECT_NE(words.find(part), std::string::npos) << words;
    }
    EXPECT_EQ(handing_over(ones({4}), computed ? affine(x, 2, 0) : x), "");
    EXPECT_EQ(values(x.grad()), std::vector<double>(4, computed ? 2 : 1));
  }
}

struct Writes final : Node {
  const char* name() const override { return "writes"; }
  void backward(std::span<const Tensor>, std::span<GradSlot> dx) override { dx[1].write(); }
};

TEST(HandedOverGradient, ThatNothingWantsIsRefusedAndNoBugOfTheLibrary) {
  Context context;
  Tensor x = leaf({1}, {1}), y = empty({}), z = empty({});
  record<Hands>(y, x, ones({1}))->gradient = ones({1});
  EXPECT_REFUSED(y.backward(), "hands: nothing wants the gradient of input 1; ask dx[1].wanted()");
  record<Writes>(z, x, ones({1}));
  EXPECT_REFUSED(z.backward(), "writes: nothing wants the gradient of input 1; ask dx[1].wanted()");
}

TEST(HandedOverGradient, OfALeafMustBeOnItsDevice) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  EXPECT_REFUSED(x.set_grad(zeros({2}, kAcc)), "set_grad", "f32[2] on acc", "f32[2] on cpu");
  x.set_grad(zeros({2}));
}

// --- views ----------------------------------------------------------------------------------------------------------

TEST(Views, AreRecordedAndShareMemory) {
  Context context;
  Tensor x = leaf({1, 2, 3, 4}, {4}), w = affine(x, 3, 0);
  Tensor y = w.view({2, 2}), row = y.rows(1, 2);
  EXPECT_EQ(row.storage(), w.storage());
  EXPECT_EQ(values(row), (std::vector<double>{9, 12}));
  sum(mul(row, row)).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0, 0, 6 * 9, 6 * 12}));
  NoGrad no_grad;
  EXPECT_FALSE(w.view({2, 2}).requires_grad());
}

TEST(Views, TheLayersBelowAreTrained) {
  Context context;
  Tensor x = ones({2, 3}), below = leaf({1, 2, 3, 4, 5, 6}, {2, 3}), above = leaf({1, 1}, {1, 2});
  sum(linear(linear(x, below, Tensor()).view({2, 2}).rows(0, 1), above, Tensor())).backward();
  EXPECT_EQ(values(below.grad()), std::vector<double>(6, 1));
}

// --- changes in place -----------------------------------------------------------------------------------------------

TEST(ChangesInPlace, OfAComputedTensorAreRefusedWhileItIsRecorded) {
  Context context;
  Tensor a = leaf({1, 2}, {2}), c = mul(a, a);
  EXPECT_REFUSED(copy_into(c, zeros({2})), "copy_into", "computed", "detach()");
  EXPECT_REFUSED(copy_into(a.view({2, 1}), zeros({2, 1})), "copy_into", "computed");
  copy_into(a, zeros({2}));
  NoGrad no_grad;
  copy_into(c, zeros({2}));
}

TEST(ChangesInPlace, TakeValuesOfTheSameShapeNotOnlyAsMany) {
  Context context;
  Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_REFUSED(copy_into(x, zeros({6})), "copy_into", "f32[6]", "does not fit", "f32[2, 3]");
  EXPECT_REFUSED(copy_into(x, zeros({3, 2})), "f32[3, 2]");
  EXPECT_EQ(values(x), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(ChangesInPlace, OfAConvertedParameterCount) {
  Context context;
  Tensor p = leaf({2}, {1}), q = leaf({5}, {1});
  Tensor c = p.to(DType::f64);
  {
    NoGrad no_grad;
    fill_(c, 0);
  }
  mul(c, q.to(DType::f64)).backward();
  EXPECT_EQ(q.grad().item(), 0) << "the gradient of c · q is c, and c was changed";
  EXPECT_EQ(p.grad().item(), 5);
}

TEST(ChangesInPlace, FromATensorWithoutValuesAreRefused) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  NoGrad no_grad;
  EXPECT_REFUSED(copy_into(x, zeros({2}, kMeta)), "copy_into", "f32[2] on meta", "no values");
  EXPECT_EQ(values(x), (std::vector<double>{1, 2}));
  EXPECT_EQ(x.version(), 0u) << "and nothing was counted";
}

TEST(Views, OfNothingMayBeSplitIntoNoParts) {
  Context context;
  Tensor x = zeros({0, 3}).set_requires_grad();
  EXPECT_TRUE(split(x, std::vector<int64_t>{}, 0).empty());
}

TEST(Views, ThereAreNoMoreChunksThanRowsHoweverManyAreAskedFor) {
  Context context;
  EXPECT_EQ(chunk(zeros({5, 3}), std::numeric_limits<int64_t>::max(), 0).size(), 5u);
}

TEST(Views, AnEmptyDimensionHasAsManyEmptyChunksAsAreAskedFor) {
  Context context;
  Tensor x = zeros({0, 3});
  std::vector<Tensor> parts = chunk(x, 3, 0);
  EXPECT_EQ(parts.size(), 3u);
  for (const Tensor& part : parts) EXPECT_EQ(part.shape(), x.shape());
}

// --- gradients as operands ------------------------------------------------------------------------------------------

Tensor wave(int64_t n, double phase) {
  std::vector<float> numbers(size_t(n * n));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(std::sin(double(i) * 0.7 + phase));
  return from_vector(numbers, {n, n});
}

double distance(const Tensor& a, const Tensor& b) {
  NoGrad no_grad;
  return norm(a - b).item() / norm(b).item();
}

TEST(Gradients, MayBeReadByThePassThatAddsToThem) {
  Context context;
  constexpr int64_t n = 160;
  Tensor first = wave(n, 1), v = wave(n, 2);
  auto fresh = [&] {
    Tensor w = wave(n, 3).set_requires_grad();
    w.set_grad(first.detach() * 1.0);
    return w;
  };
  Tensor w = fresh();
  sum(matmul(w, w.grad())).backward();
  EXPECT_LT(distance(w.grad(), first + matmul(ones({n, n}), first, false, true)), 1e-5);
  w = fresh();
  matmul(w, v).backward(w.grad());
  EXPECT_LT(distance(w.grad(), first + matmul(first, v, false, true)), 1e-5);
  w = fresh();
  Tensor product = sum(w * w.grad());
  sum(w * 2.0).backward();
  product.backward();
  EXPECT_LT(distance(w.grad(), first * 2.0 + 2.0), 1e-5) << "the first product keeps the gradient that it was made of";
}

// --- gradients that are not there -----------------------------------------------------------------------------------

TEST(Gradients, OfAComputedTensorAreNotKeptAndItSaysSo) {
  Context context;
  Tensor x = leaf({1, 2}, {2}), y = mul(x, x);
  EXPECT_REFUSED(y.grad(), "grad", "f32[2] on cpu", "computed by mul", "only leaves");
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(y.detach().grad().defined());
}

struct Fails final : Node {
  const char* name() const override { return "fails"; }
  void backward(std::span<const Tensor>, std::span<GradSlot>) override { throw OutOfMemory("no memory left"); }
};

// Two leaves have gradients; a pass adds to that of `early`, and fails before it comes to `late`.
struct HalfAdded {
  Tensor early = leaf({1, 2}, {2}), late = leaf({3, 4}, {2}), fresh = leaf({1, 1}, {2});
  void pass(bool memory_ends) {
    Tensor bad = affine(late, 1, 0), y = empty({2});
    if (memory_ends)
      record<Fails>(y, bad);
    else
      node_of(bad)->add_pre_hook([] { fail("this hook fails"); });
    Tensor last = memory_ends ? y : bad;
    sum(mul(early, fresh) + last).backward();
  }
};

TEST(Gradients, ThatAFailedPassHasAddedToAreRefusedByName) {
  for (bool memory_ends : {false, true}) {
    Context context;
    HalfAdded leaves;
    leaves.early.set_name("up.weight");
    sum(leaves.early).backward();
    sum(leaves.late).backward();
    EXPECT_THROW(leaves.pass(memory_ends), Error);
    EXPECT_REFUSED(leaves.early.grad(), "'up.weight'", "incomplete", "zero_grad()");
    EXPECT_EQ(values(leaves.late.grad()), (std::vector<double>{1, 1})) << "nothing was added to it";
    EXPECT_FALSE(leaves.fresh.grad().defined());
    sum(leaves.early).backward();
    EXPECT_REFUSED(leaves.early.grad(), "'up.weight'", "incomplete");
    leaves.early.zero_grad();
    sum(leaves.early).backward();
    EXPECT_EQ(values(leaves.early.grad()), (std::vector<double>{1, 1}));
  }
}

}  // namespace
}  // namespace shardgrad::test
