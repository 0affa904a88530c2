// What PyTorch computed (tests/fixtures, written by scripts/make_fixtures.py), matched to 1e-5 of each tensor's largest
// element: results and gradients of operations, losses and weights of short training runs.

#include <functional>
#include <map>

#include <shardgrad/kernels/ops.h>

#include <tests/autograd/support.h>
#include <tests/fixtures/read.h>

namespace shardgrad::test {
namespace {

using Inputs = std::vector<Tensor>;
constexpr double kTolerance = 1e-5;

// clang-format off
const std::map<std::string, std::function<Tensor(const Inputs&)>> kOperations = {
    {"add_broadcast", [](const Inputs& in) { return add(in[0], in[1]); }},
    {"sub_broadcast", [](const Inputs& in) { return sub(in[0], in[1]); }},
    {"mul_broadcast", [](const Inputs& in) { return mul(in[0], in[1]); }},
    {"div_broadcast", [](const Inputs& in) { return div(in[0], in[1]); }},
    {"where", [](const Inputs& in) { return where(in[0], in[1], in[2]); }},
    {"exp", [](const Inputs& in) { return exp(in[0]); }},
    {"log", [](const Inputs& in) { return log(in[0]); }},
    {"sqrt", [](const Inputs& in) { return sqrt(in[0]); }},
    {"tanh", [](const Inputs& in) { return tanh(in[0]); }},
    {"sigmoid", [](const Inputs& in) { return sigmoid(in[0]); }},
    {"relu", [](const Inputs& in) { return relu(in[0]); }},
    {"gelu_erf", [](const Inputs& in) { return gelu(in[0]); }},
    {"gelu_tanh", [](const Inputs& in) { return gelu(in[0], true); }},
    {"abs", [](const Inputs& in) { return abs(in[0]); }},
    {"pow_3", [](const Inputs& in) { return pow(in[0], 3); }},
    {"pow_1.5", [](const Inputs& in) { return pow(in[0], 1.5); }},
    {"clamp", [](const Inputs& in) { return clamp(in[0], -0.5, 0.8); }},
    {"permute", [](const Inputs& in) { return permute(in[0], {2, 0, 1}); }},
    {"slice", [](const Inputs& in) { return slice(in[0], 1, 1, 3); }},
    {"cat", [](const Inputs& in) { return cat(in, 1); }},
    {"index_select", [](const Inputs& in) { return index_select(in[0], 1, in[1]); }},
    {"gather", [](const Inputs& in) { return gather(in[0], 1, in[1]); }},
    {"scatter_add", [](const Inputs& in) { return scatter_add(in[0], 1, in[1], in[2]); }},
    {"embedding", [](const Inputs& in) { return embedding(in[0], in[1]); }},
    {"sum", [](const Inputs& in) { return sum(in[0]); }},
    {"sum_0", [](const Inputs& in) { return sum(in[0], 0); }},
    {"mean", [](const Inputs& in) { return mean(in[0]); }},
    {"mean_1_kept", [](const Inputs& in) { return mean(in[0], 1, true); }},
    {"max_1", [](const Inputs& in) { return max(in[0], 1).values; }},
    {"norm", [](const Inputs& in) { return norm(in[0]); }},
    {"softmax", [](const Inputs& in) { return softmax(in[0]); }},
    {"log_softmax", [](const Inputs& in) { return log_softmax(in[0]); }},
    {"matmul", [](const Inputs& in) { return matmul(in[0], in[1]); }},
    {"matmul_batch", [](const Inputs& in) { return matmul(in[0], in[1]); }},
    {"matmul_transposed", [](const Inputs& in) { return matmul(in[0], in[1], true, true); }},
    {"linear", [](const Inputs& in) { return linear(in[0], in[1], in[2]); }},
    {"linear_relu", [](const Inputs& in) { return linear(in[0], in[1], in[2], Activation::relu); }},
    {"linear_gelu", [](const Inputs& in) { return linear(in[0], in[1], in[2], Activation::gelu_tanh); }},
    {"layer_norm", [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); }},
    {"batch_norm", [](const Inputs& in) { return batch_norm(in[0], in[1], in[2]).y; }},
    {"mse_loss", [](const Inputs& in) { return mse_loss(in[0], in[1]); }},
    {"cross_entropy", [](const Inputs& in) { return cross_entropy(in[0], in[1]); }},
    {"cross_entropy_ignored", [](const Inputs& in) { return cross_entropy(in[0], in[1], 0, 2); }},
    {"batch_norm_images", [](const Inputs& in) { return batch_norm(in[0], in[1], in[2]).y; }},
    {"max_pool2d", [](const Inputs& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1}); }},
    {"max_pool2d_equal", [](const Inputs& in) { return max_pool2d(in[0], 2, {.stride = 1}); }},
    {"avg_pool2d", [](const Inputs& in) { return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1}); }},
    {"adaptive_avg_pool2d", [](const Inputs& in) { return adaptive_avg_pool2d(in[0], 3); }},
};
// clang-format on

TEST(PyTorchFixtures, OperationsAndTheirGradients) {
  Context context;
  Json operations = fixture("operations.json");
  EXPECT_EQ(operations.size(), kOperations.size());
  for (const auto& [name, call] : kOperations) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(operations.contains(name));
    const Json& expected = operations[name];
    Inputs inputs;
    for (size_t i = 0; i < expected["inputs"].size(); ++i) {
      inputs.push_back(tensor_of(expected["inputs"][i]));
      if (!expected["grads"][i].is_null()) inputs.back().set_requires_grad();
    }
    Tensor result = call(inputs), wanted = tensor_of(expected["result"]);
    EXPECT_EQ(result.shape(), wanted.shape());
    expect_close(values(result), values(wanted), kTolerance, "result");
    result.backward(tensor_of(expected["upstream"]));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].requires_grad())
        expect_close(values(inputs[i].grad()), values(tensor_of(expected["grads"][i])), kTolerance,
                     concat("gradient ", i));
  }
}

// One update of every parameter, by the kernels that the optimizers run.
class Updates {
 public:
  Updates(std::string kind, const Inputs& parameters) : kind_(std::move(kind)), parameters_(parameters) {
    for (const Tensor& p : parameters_) {
      first_.push_back(zeros(p.shape()));
      second_.push_back(zeros(p.shape()));
    }
  }
  void step() {
    ++step_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& p = parameters_[i];
      Tensor g = p.grad();
      if (kind_ == "sgd" || kind_ == "nesterov") {
        bool nesterov = kind_ == "nesterov";
        kernels::SgdArgs args{0.1, 0.9, 0, nesterov ? 0 : 0.01, nesterov, step_ == 1};
        launch(kernels::sgd, p, kernels::one_range(p.out(), {first_[i].out(), {}}, {}, g.in(), args), Tensor());
      } else {
        bool decoupled = kind_ == "adamw";
        kernels::AdamArgs args{0.01,
                               0.9,
                               0.999,
                               1e-8,
                               decoupled ? 0.1 : 0.01,
                               decoupled,
                               1 - std::pow(0.9, step_),
                               1 - std::pow(0.999, step_)};
        auto range = kernels::one_range(p.out(), {first_[i].out(), second_[i].out()}, {}, g.in(), args);
        launch(kernels::adam, p, range, Tensor());
      }
      p.zero_grad();
    }
  }

 private:
  std::string kind_;
  Inputs parameters_, first_, second_;
  int step_ = 0;
};

TEST(PyTorchFixtures, TrainingRuns) {
  Context context;
  for (const Json& expected : fixture("training.json")) {
    std::string optimizer = expected["optimizer"], loss_kind = expected["loss"];
    SCOPED_TRACE(optimizer + ", " + loss_kind);
    Inputs parameters;
    for (const Json& start : expected["start"]) parameters.push_back(tensor_of(start).set_requires_grad());
    Tensor x = tensor_of(expected["x"]), labels = tensor_of(expected["labels"]);
    Updates updates(optimizer, parameters);
    for (size_t step = 0; step < expected["losses"].size(); ++step) {
      Tensor h = linear(x, parameters[0], parameters[1], Activation::relu);
      h = linear(h, parameters[2], parameters[3], Activation::relu);
      h = linear(h, parameters[4], parameters[5]);
      Tensor loss = loss_kind == "mse" ? mse_loss(h, one_hot(labels, 3)) : cross_entropy(h, labels);
      double wanted = expected["losses"][step];
      EXPECT_NEAR(loss.item(), wanted, kTolerance * wanted) << "step " << step;
      loss.backward();
      for (size_t i = 0; step == 0 && i < parameters.size(); ++i)
        expect_close(values(parameters[i].grad()), values(tensor_of(expected["first_grads"][i])), kTolerance,
                     concat("gradient of parameter ", i));
      updates.step();
    }
    for (size_t i = 0; i < parameters.size(); ++i)
      expect_close(values(parameters[i]), values(tensor_of(expected["end"][i])), kTolerance, concat("parameter ", i));
  }
}

}  // namespace
}  // namespace shardgrad::test
