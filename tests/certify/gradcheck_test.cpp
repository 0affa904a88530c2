#include <shardgrad/certify/gradcheck.h>
#include <shardgrad/kernels/ops.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

// y = x², whose backward is off in one element.
struct WrongSquare final : Node {
  const char* name() const override { return "wrong_square"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor factor = affine(saved(0), 2, 0);
    fill_(slice(factor, 0, 1, 2), 5);
    launch(kernels::mul, dy[0], dx[0].write(), dy[0], factor);
  }
};

Tensor wrong_square(const Tensor& x) {
  Tensor y = mul(x.detach(), x.detach());
  if (auto* node = record<WrongSquare>(y, x)) node->save(x);
  return y;
}

// y = 3x, whose backward is right only for an upstream gradient whose elements are equal.
struct MixedRows final : Node {
  const char* name() const override { return "mixed_rows"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor spread = expand(mean(dy[0]), dy[0].shape());
    launch(kernels::affine, spread, dx[0].write(), spread, 3.0, 0.0);
  }
};

Tensor mixed_rows(const Tensor& x) {
  Tensor y = affine(x.detach(), 3, 0);
  record<MixedRows>(y, x);
  return y;
}

Tensor numbers() { return from_vector<double>({0.5, 1.5, -2}, {3}); }

TEST(Gradcheck, AcceptsARightGradientAndReportsTheWorstElement) {
  Context context;
  GradcheckResult worst = gradcheck([](auto in) { return mul(in[0], in[1]); }, {numbers(), numbers()});
  EXPECT_GE(worst.input, 0);
  EXPECT_LT(worst.error, 1);
  EXPECT_NEAR(worst.analytic, worst.numeric, 1e-6);
}

TEST(Gradcheck, NamesInputElementAndBothValuesOfAWrongGradient) {
  Context context;
  Tensor x = numbers();
  x.set_name("weight");
  auto fn = [](std::span<const Tensor> in) { return wrong_square(in[1]); };
  EXPECT_REFUSED(gradcheck(fn, {numbers(), x}), "input 1 'weight'", "f64[3]", "element 1", "backward gives",
                 "central differences give");
}

TEST(Gradcheck, TriesAnUpstreamGradientThatIsNotUniform) {
  Context context;
  EXPECT_REFUSED(gradcheck([](auto in) { return mixed_rows(in[0]); }, {numbers()}), "input 0");
}

TEST(Gradcheck, FindsAGradientThatIsNotANumber) {
  Context context;
  EXPECT_REFUSED(gradcheck([](auto in) { return sqrt(mul(in[0], in[0])); }, {zeros({1}, DType::f64)}), "element 0");
}

TEST(Gradcheck, RefusesWhatItCannotCheck) {
  Context context;
  EXPECT_REFUSED(gradcheck([](auto in) { return exp(in[0]); }, {zeros({2})}), "f32[2]", "f64");
  EXPECT_REFUSED(gradcheck([](auto in) { return exp(in[0].detach()); }, {numbers()}), "no result depends");
}

TEST(Gradcheck, LeavesInputsAsTheyWere) {
  Context context;
  Tensor x = numbers();
  gradcheck([](auto in) { return exp(in[0]); }, {x});
  EXPECT_EQ(values(x), values(numbers()));
  EXPECT_FALSE(x.requires_grad());
}

TEST(Gradcheck, WorksOnAnAsynchronousDevice) {
  Context context({.device = kAcc});
  gradcheck([](auto in) { return tanh(in[0]); }, {numbers()});
}

}  // namespace
}  // namespace shardgrad::test
