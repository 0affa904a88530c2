// Results, losses and gradients are those of PyTorch, to 1e-5 of each tensor's largest element in f32 and 1e-12 in f64.
#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

#include "tests/nn/torch_fixture.h"

namespace shardgrad {
namespace {

Tensor numbers(const Shape& shape, DType dtype, const std::function<double(double)>& formula) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(formula(double(i)));
  return from_vector(values, shape).to(dtype);
}

Tensor input(const Shape& shape, DType dtype) {
  return numbers(shape, dtype, [](double i) { return std::cos(0.9 * i); });
}

void set_parameters(nn::Module& model) {
  double k = 0;
  for (const NamedParameter& parameter : model.named_parameters()) {
    copy_into(parameter.tensor, numbers(parameter.tensor.shape(), parameter.tensor.dtype(),
                                        [&](double i) { return 0.5 * std::sin(1.3 * i + k); }));
    ++k;
  }
}

void expect_close(const Tensor& ours, const std::vector<double>& theirs, const std::string& what) {
  double tolerance = ours.dtype() == DType::f64 ? 1e-12 : 1e-5, largest = 0;
  for (double v : theirs) largest = std::max(largest, std::abs(v));
  std::vector<double> values = ours.detach().to(DType::f64).to_vector<double>();
  ASSERT_EQ(values.size(), theirs.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], theirs[i], tolerance * largest) << what << " " << i;
}

void expect_gradients(nn::Module& model, const std::map<std::string, std::vector<double>>& theirs) {
  std::vector<NamedParameter> parameters = model.named_parameters();
  ASSERT_EQ(parameters.size(), theirs.size());
  for (const NamedParameter& each : parameters) expect_close(each.tensor.grad(), theirs.at(each.name), each.name);
}

class TorchParity : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, TorchParity, testing::Values(DType::f32, DType::f64),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(TorchParity, MlpWithBatchNormAndMse) {
  using namespace torch_fixture;
  Context context;
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(5, 7).add<nn::ReLU>().add<nn::BatchNorm1d>(7).add<nn::Linear>(7, 4).add<nn::Tanh>();
  model->add<nn::Linear>(4, 2).add<nn::Sigmoid>();
  model->to(GetParam());
  model->materialize();
  set_parameters(model.module());
  Tensor target = numbers({6, 2}, GetParam(), [](double i) { return std::cos(0.9 * i) > 0; });
  Tensor result = model(input({6, 5}, GetParam()));
  Tensor loss = nn::make<nn::MSELoss>()(result, target);
  loss.backward();
  expect_close(result, mlp_result, "result");
  expect_close(loss, mlp_loss, "loss");
  expect_gradients(model.module(), {{"0.weight", mlp_0_weight},
                                    {"0.bias", mlp_0_bias},
                                    {"2.weight", mlp_2_weight},
                                    {"2.bias", mlp_2_bias},
                                    {"3.weight", mlp_3_weight},
                                    {"3.bias", mlp_3_bias},
                                    {"5.weight", mlp_5_weight},
                                    {"5.bias", mlp_5_bias}});
  nn::StateDict state = model->state_dict();
  expect_close(state.at("2.running_mean"), mlp_running_mean, "running_mean");
  expect_close(state.at("2.running_var"), mlp_running_var, "running_var");
}

TEST_P(TorchParity, LstmOfTwoLayersInBothDirections) {
  using namespace torch_fixture;
  Context context;
  auto lstm = nn::make<nn::LSTM>(3, 2, nn::RecurrentOptions{.layers = 2, .bidirectional = true});
  lstm->to(GetParam());
  lstm->materialize();
  set_parameters(lstm.module());
  auto [y, h, c] = lstm(input({5, 3, 3}, GetParam()));
  Tensor loss = sum(y * y) + sum(h) + sum(c * c);
  loss.backward();
  EXPECT_EQ(y.shape(), (Shape{5, 3, 4}));
  EXPECT_EQ(c.shape(), (Shape{4, 3, 2}));
  expect_close(y, lstm_result, "y");
  expect_close(h, lstm_h, "h");
  expect_close(c, lstm_c, "c");
  expect_close(loss, lstm_loss, "loss");
  expect_gradients(lstm.module(), lstm_gradients);
}

TEST_P(TorchParity, GruOfTwoLayersWithSamplesFirstFromAGivenState) {
  using namespace torch_fixture;
  Context context;
  auto gru = nn::make<nn::GRU>(3, 4, nn::RecurrentOptions{.layers = 2, .batch_first = true});
  gru->to(GetParam());
  gru->materialize();
  set_parameters(gru.module());
  auto [y, h] = gru(input({2, 5, 3}, GetParam()), input({2, 2, 4}, GetParam()));
  Tensor loss = sum(y * y) + sum(h);
  loss.backward();
  expect_close(y, gru_result, "y");
  expect_close(h, gru_h, "h");
  expect_close(loss, gru_loss, "loss");
  expect_gradients(gru.module(), gru_gradients);
}

struct Classifier : nn::Module {
  nn::Child<nn::Embedding> embed = child<nn::Embedding>("embed", 6, 4);
  nn::Child<nn::LayerNorm> norm = child<nn::LayerNorm>("norm", 4);
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 4, 8);
  nn::Child<nn::Linear> down = child<nn::Linear>("down", 8, 3);
  Tensor forward(const Tensor& ids) { return down(gelu(up(norm(embed(ids))))); }
};

TEST_P(TorchParity, EmbeddingLayerNormGeluAndCrossEntropy) {
  using namespace torch_fixture;
  Context context;
  auto model = nn::make<Classifier>();
  model->to(GetParam());
  model->materialize();
  set_parameters(model.module());
  Tensor result = model(from_vector<int64_t>({0, 3, 5, 3, 1}, {5}));
  Tensor loss = nn::make<nn::CrossEntropyLoss>()(result, from_vector<int64_t>({2, 0, -100, 1, 1}, {5}));
  loss.backward();
  expect_close(result, classifier_result, "result");
  expect_close(loss, classifier_loss, "loss");
  expect_gradients(model.module(), {{"embed.weight", classifier_embed_weight},
                                    {"norm.weight", classifier_norm_weight},
                                    {"norm.bias", classifier_norm_bias},
                                    {"up.weight", classifier_up_weight},
                                    {"up.bias", classifier_up_bias},
                                    {"down.weight", classifier_down_weight},
                                    {"down.bias", classifier_down_bias}});
}

}  // namespace
}  // namespace shardgrad
