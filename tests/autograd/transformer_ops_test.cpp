// The operations of transformers' layers: against numbers worked out by hand, and against the same thing composed of
// other operations.

#include <functional>

#include <shardgrad/kernels/ops.h>

#include <tests/autograd/support.h>
#include <tests/numbers.h>

namespace shardgrad::test {
namespace {

using OfTensors = std::function<Tensor(std::span<const Tensor>)>;

/// The result and the gradients of all floating inputs, from fixed upstream gradients.
std::vector<std::vector<double>> result_and_gradients(const OfTensors& call, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.detach());
    if (is_floating(input.dtype())) leaves.back().set_requires_grad();
  }
  Tensor y = call(leaves);
  y.backward(upstream_like(y, 1));
  std::vector<std::vector<double>> all{values(y)};
  for (const Tensor& input : leaves)
    if (is_floating(input.dtype())) all.push_back(values(input.grad()));
  return all;
}

void expect_like_composed(const OfTensors& operation, const OfTensors& composed, const std::vector<Tensor>& inputs,
                          double tolerance = 1e-13) {
  auto actual = result_and_gradients(operation, inputs), expected = result_and_gradients(composed, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    expect_close(actual[i], expected[i], tolerance, i == 0 ? "result" : concat("gradient ", i - 1));
}

Tensor wide_numbers(const Shape& shape, const char* name) { return normal(shape, name, DType::f64); }

TEST(Silu, IsTheInputTimesItsSigmoid) {
  Context context;
  Tensor x = from_vector<double>({1, -2, 0}, {3}).set_requires_grad();
  Tensor y = silu(x);
  sum(y).backward();
  expect_close(values(y), {0.7310585786300049, -0.2384058440442351, 0}, 1e-15, "silu");
  expect_close(values(x.grad()), {0.9276705118714869, -0.0907842487848955, 0.5}, 1e-14, "its slope");
  expect_like_composed([](auto in) { return silu(in[0]); }, [](auto in) { return mul(in[0], sigmoid(in[0])); },
                       {wide_numbers({5, 33}, "x") * 4.0});
}

TEST(Silu, FarOutIsALineOrNothing) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Tensor x = from_vector<double>({1e30, 1000, -1000, -1e30}, {4}).to(dtype).detach().set_requires_grad();
    Tensor y = silu(x);
    sum(y).backward();
    std::vector<double> line = values(x.detach());
    EXPECT_EQ(values(y), (std::vector<double>{line[0], line[1], 0, 0})) << dtype;
    EXPECT_EQ(values(x.grad()), (std::vector<double>{1, 1, 0, 0})) << dtype;
  }
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  Context context;
  Tensor x = from_vector<double>({3, 4, 0, 0}, {2, 2}).set_requires_grad();
  Tensor weight = from_vector<double>({2, 10}, {2}).set_requires_grad();
  Tensor y = rms_norm(x, weight, 12.5);  // 1 / √(12.5 + 12.5) is 1/5
  expect_close(values(y), {1.2, 8, 0, 0}, 1e-15, "rms_norm");
  sum(y).backward();
  // g = (2, 10), x̂ = (3, 4) / 5, mean(g · x̂) = 4.6; of the row of zeros 1 / √12.5 · g.
  double other = 1 / std::sqrt(12.5);
  expect_close(values(x.grad()), {(2 - 0.6 * 4.6) / 5, (10 - 0.8 * 4.6) / 5, 2 * other, 10 * other}, 1e-14, "dx");
  expect_close(values(weight.grad()), {0.6, 0.8}, 1e-15, "dweight");
}

TEST(RmsNorm, IsWhatOtherOperationsCompose) {
  Context context;
  auto composed = [](std::span<const Tensor> in) {
    Tensor square = mean(mul(in[0], in[0]), -1, true);
    return mul(mul(in[0], pow(square + 1e-3, -0.5)), in[1]);
  };
  expect_like_composed([](auto in) { return rms_norm(in[0], in[1], 1e-3); }, composed,
                       {wide_numbers({3, 4, 37}, "x"), wide_numbers({37}, "weight")}, 1e-12);
}

TEST(Swiglu, MultipliesTheSecondHalfByTheSiluOfTheFirst) {
  Context context;
  Tensor x = from_vector<double>({1, 0, 3, 5, -2, 1, 10, 1}, {2, 4}).set_requires_grad();
  Tensor y = swiglu(x);
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  double one = 0.7310585786300049, minus_two = -0.2384058440442351;  // silu
  expect_close(values(y), {3 * one, 0, 10 * minus_two, one}, 1e-15, "swiglu");
  sum(y).backward();
  double slope_one = 0.9276705118714869, slope_minus_two = -0.0907842487848955;
  expect_close(values(x.grad()), {3 * slope_one, 2.5, one, 0, 10 * slope_minus_two, slope_one, minus_two, one}, 1e-14,
               "its gradient");
}

TEST(Swiglu, IsWhatOtherOperationsCompose) {
  Context context;
  auto composed = [](std::span<const Tensor> in) {
    int64_t half = in[0].size(-1) / 2;
    return mul(silu(slice(in[0], -1, 0, half)), slice(in[0], -1, half, 2 * half));
  };
  expect_like_composed([](auto in) { return swiglu(in[0]); }, composed, {wide_numbers({3, 5, 74}, "x")});
}

}  // namespace
}  // namespace shardgrad::test
