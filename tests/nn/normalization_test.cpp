#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

#include "tests/nn/gradcheck_module.h"

namespace shardgrad {
namespace {

using Floats = std::vector<float>;

TEST(LayerNorm, NormalisesRows) {
  Context context;
  auto norm = nn::make<nn::LayerNorm>(4);
  Floats y = norm(from_vector<float>({1, 2, 3, 4, -5, -5, 5, 5}, {2, 4})).to_vector<float>();
  for (int row = 0; row < 2; ++row) {
    double mean = 0, square = 0;
    for (int c = 0; c < 4; ++c)
      mean += y[size_t(row * 4 + c)] / 4, square += y[size_t(row * 4 + c)] * y[size_t(row * 4 + c)] / 4;
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(square, 1, 1e-4);
  }
}

TEST(LayerNorm, GradientAgreesWithDifferences) {
  Context context;
  EXPECT_EQ(gradcheck_module(nn::make<nn::LayerNorm>(6), {4, 6}), 3u);
}

TEST(RMSNorm, DividesRowsByTheirRootMeanSquareAndScales) {
  Context context;
  auto norm = nn::make<nn::RMSNorm>(2);
  norm->load_state_dict({{"weight", from_vector<float>({2, 10}, {2})}});
  Floats y = norm(from_vector<float>({3, 4, -1, 1, 0, 0}, {3, 2})).to_vector<float>();
  Floats expected{2 * 0.84852814f, 10 * 1.1313708f, -2, 10, 0, 0};  // √12.5 and 1
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-5) << i;
}

TEST(RMSNorm, GradientAgreesWithDifferences) {
  Context context;
  EXPECT_EQ(gradcheck_module(nn::make<nn::RMSNorm>(6), {4, 6}), 2u);
  EXPECT_EQ(gradcheck_module(nn::make<nn::RMSNorm>(6, 1e-5, false), {4, 6}), 1u);
}

// In the blocks of the language models a sum and its norm are one operation, but where hooks are to see the norm alone.
template <class Norm> void expect_like_with_hooks() {
  std::vector<Floats> found[2];
  for (int k : {0, 1}) {
    Context context;
    auto norm = nn::make<Norm>(6);
    norm->materialize();
    Floats seen;
    auto look = [&](nn::Module&, std::span<Tensor> in) { seen = in[0].to_vector<float>(); };
    if (k == 1) norm->add_forward_pre_hook(look);
    Tensor x = randn({4, 6}, "x").set_requires_grad(), residual = randn({4, 6}, "residual");
    AddNormResult made = nn::add_and_norm(norm, x, residual);
    (made.sum + tanh(made.y)).backward(randn({4, 6}, "gradient"));
    for (const Tensor& each : {made.sum, made.y, x.grad(), Tensor(norm->weight).grad()})
      found[k].push_back(each.to_vector<float>());
    EXPECT_EQ(seen, k == 1 ? found[k][0] : Floats());
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(AddAndNorm, HasTheSameBitsWithAndWithoutHooks) {
  expect_like_with_hooks<nn::LayerNorm>();
  expect_like_with_hooks<nn::RMSNorm>();
}

// --- batch norm ----------------------------------------------------------------------------------------------------

TEST(BatchNorm1d, RunningStatisticsFollowTheirFormulaAndServeEvaluation) {
  Context context;
  auto norm = nn::make<nn::BatchNorm1d>(2);
  double mean[2] = {0, 0}, variance[2] = {1, 1};
  for (int step = 0; step < 3; ++step) {
    Tensor x = randn({8, 2}, "x" + std::to_string(step)) * 3.0 + 1.0;
    norm(x);
    Floats values = x.to_vector<float>();
    for (size_t c = 0; c < 2; ++c) {
      double m = 0, v = 0;
      for (size_t i = 0; i < 8; ++i) m += values[i * 2 + c] / 8.0;
      for (size_t i = 0; i < 8; ++i) v += (values[i * 2 + c] - m) * (values[i * 2 + c] - m) / 7.0;
      mean[c] = 0.9 * mean[c] + 0.1 * m;
      variance[c] = 0.9 * variance[c] + 0.1 * v;
      EXPECT_NEAR(norm->running_mean.to_vector<float>()[c], mean[c], 1e-5);
      EXPECT_NEAR(norm->running_var.to_vector<float>()[c], variance[c], 1e-5 * variance[c]);
    }
  }
  norm->eval();
  Tensor x = from_vector<float>({1, 2}, {1, 2});
  for (int repeat = 0; repeat < 2; ++repeat) {  // evaluation moves nothing
    Floats y = norm(x).to_vector<float>();
    for (size_t c = 0; c < 2; ++c) EXPECT_NEAR(y[c], (double(c + 1) - mean[c]) / std::sqrt(variance[c] + 1e-5), 1e-5);
  }
}

TEST(BatchNorm1d, GradientFlowsThroughTheBatchsStatisticsInTrainingOnly) {
  Context context;
  auto training = nn::make<nn::BatchNorm1d>(3), evaluating = nn::make<nn::BatchNorm1d>(3);
  evaluating->eval();
  EXPECT_EQ(gradcheck_module(training, {5, 3}), 3u);
  EXPECT_EQ(gradcheck_module(evaluating, {5, 3}), 3u);
}

TEST(BatchNorm1d, StatisticsOfA16BitModelStayInF32) {
  Context context;
  auto norm = nn::make<nn::BatchNorm1d>(3);
  norm->to(DType::bf16);
  EXPECT_EQ(norm->weight.dtype(), DType::bf16);
  EXPECT_EQ(norm->running_mean.dtype(), DType::f32);
}

TEST(BatchNorm1d, NoSamplesMoveNothingAndGiveZeroGradients) {
  Context context;
  auto norm = nn::make<nn::BatchNorm1d>(2);
  norm(from_vector<float>({1, 2, 3, 5}, {2, 2}));
  Floats mean = norm->running_mean.to_vector<float>(), variance = norm->running_var.to_vector<float>();
  Tensor x = zeros({0, 2}).set_requires_grad();
  Tensor y = norm(x);
  EXPECT_EQ(y.shape(), (Shape{0, 2}));
  y.backward(zeros({0, 2}));
  EXPECT_EQ(norm->weight.grad().to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(norm->bias.grad().to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(x.grad().shape(), (Shape{0, 2}));
  EXPECT_EQ(norm->running_mean.to_vector<float>(), mean);
  EXPECT_EQ(norm->running_var.to_vector<float>(), variance);
}

TEST(BatchNorm1d, OneSampleHasNoVariance) {
  Context context;
  auto norm = nn::make<nn::BatchNorm1d>(2);
  EXPECT_THROW(norm(ones({1, 2})), Error);
  norm->eval();
  EXPECT_NO_THROW(norm(ones({1, 2})));
}

}  // namespace
}  // namespace shardgrad
