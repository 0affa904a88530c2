// Layers of images, and what prints a model.

#include <cmath>
#include <sstream>

#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/composed.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

std::string text(const auto& printed) {
  std::ostringstream out;
  out << printed;
  return out.str();
}

struct Cnn : nn::Module {
  nn::Child<nn::Conv2d> first = child<nn::Conv2d>("first", 1, 4, 3, ConvOptions{.padding = 1});
  nn::Child<nn::BatchNorm2d> norm = child<nn::BatchNorm2d>("norm", 4);
  nn::Child<nn::MaxPool2d> pool = child<nn::MaxPool2d>("pool", 2);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 4 * 3 * 3, 2);
  Tensor forward(const Tensor& x) { return out(flatten(pool(relu(norm(first(x)))), 1)); }
};

TEST(Images, ASmallCnnLearnsBarsFromOtherBars) {
  Context context;
  auto model = nn::make<Cnn>();
  std::vector<float> pixels;
  std::vector<int64_t> labels;
  for (int64_t k = 0; k < 12; ++k) {  // a row, or a column, of ones
    for (int64_t r = 0; r < 6; ++r)
      for (int64_t c = 0; c < 6; ++c) pixels.push_back((k < 6 ? r : c) == k % 6 ? 1 : 0);
    labels.push_back(k < 6);
  }
  Tensor x = from_vector(pixels, {12, 1, 6, 6}), y = from_vector(labels, {12});
  optim::RMSprop optimizer(model->named_parameters(), {.lr = 0.01});
  double loss = 1;
  for (int step = 0; step < 60; ++step) {
    Tensor now = cross_entropy(model(x), y);
    loss = now.item();
    now.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_LT(loss, 0.05);
  model->eval();
  EXPECT_EQ(values(argmax(model(x), 1)), values(y));
}

TEST(Images, AModelPrintsItsTreeAndHowManyNumbersItTrains) {
  Context context;
  auto model = nn::make<Cnn>();
  EXPECT_EQ(text(model),
            "Cnn(\n  (first): Conv2d(weight [4, 1, 3, 3], bias [4])\n  (norm): BatchNorm2d(weight [4], bias [4])\n"
            "  (pool): MaxPool2d()\n  (out): Linear(weight [2, 36], bias [2])\n) with 122 parameters");
  EXPECT_EQ(text(nn::make<nn::Linear>(1000, 1000, false)), "Linear(weight [1000, 1000]) with 1,000,000 parameters");
}

TEST(Images, PoolingOfALineIsThatOfAnImageOneRowHigh) {
  Context context;
  Tensor x = from_vector<float>({1, 5, 2, 4, 3}, {1, 1, 5}).set_requires_grad();
  EXPECT_EQ(values(nn::make<nn::MaxPool1d>(2)(x)), (std::vector<double>{5, 4}));
  EXPECT_EQ(values(nn::make<nn::MaxPool1d>(3, PoolOptions{.stride = 1, .padding = 1})(x)),
            (std::vector<double>{5, 5, 5, 4, 4}));
  EXPECT_EQ(values(nn::make<nn::MaxPool1d>(2, PoolOptions{.ceil_mode = true})(x)), (std::vector<double>{5, 4, 3}));
  EXPECT_EQ(values(nn::make<nn::AvgPool1d>(2)(x)), (std::vector<double>{3, 3}));
  EXPECT_EQ(values(nn::make<nn::AvgPool1d>(3, PoolOptions{.stride = 3, .padding = 1, .count_include_pad = false})(x)),
            (std::vector<double>{3, 3}));
  EXPECT_EQ(values(nn::make<nn::AdaptiveAvgPool1d>(1)(x)), (std::vector<double>{3}));
  nn::make<nn::MaxPool1d>(2)(x).sum().backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0, 1, 0, 1, 0}));
  EXPECT_REFUSED(nn::make<nn::MaxPool1d>(2)(x.view({1, 1, 1, 5})), "MaxPool1d", "(samples, channels, length)");
}

TEST(Images, GroupNormNormalisesEachPartOfTheChannels) {
  Context context;
  auto norm = nn::make<nn::GroupNorm>(2, 4);
  Tensor x = upstream_like(empty({3, 4, 2, 5}), 1), y = norm(x);
  Tensor parts = y.reshape({6, 20});
  for (double mean : values(parts.mean(1))) EXPECT_NEAR(mean, 0, 1e-6);
  for (double spread : values(var(parts, 1, 0))) EXPECT_NEAR(spread, 1, 1e-3);
  auto whole = nn::make<nn::GroupNorm>(1, 4);
  EXPECT_EQ(bits(whole(x)), bits(layer_norm(x.reshape({3, 40}), Tensor(), Tensor()).view(x.shape())));
  EXPECT_REFUSED(nn::make<nn::GroupNorm>(3, 4), "GroupNorm", "3 groups");
  EXPECT_REFUSED(norm(zeros({2, 3})), "GroupNorm", "(samples, 4");
}

Tensor as_rows_of_channels(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).reshape({x.size(0) * x.size(2) * x.size(3), x.size(1)});
}

// Of images and of the rows that their places are, in training, evaluation and with all ranks' statistics.
TEST(Images, BatchNorm2dIsBatchNormOfAllPlaces) {
  Context context;
  for (bool over_ranks : {false, true}) {
    auto images = nn::make<nn::BatchNorm2d>(3);
    auto rows = nn::make<nn::BatchNorm1d>(3);
    for (nn::BatchNorm1d* each : {static_cast<nn::BatchNorm1d*>(&images.module()), &rows.module()})
      if (over_ranks) each->synchronise([](const Tensor&) {});
    Tensor x = upstream_like(empty({2, 3, 4, 5}), 1), flat = as_rows_of_channels(x), dy = upstream_like(x, 2);
    x.set_requires_grad(), flat.set_requires_grad();
    for (bool training : {true, false}) {
      SCOPED_TRACE(concat(over_ranks ? "of all ranks" : "of its own", training ? ", training" : ", evaluation"));
      images->train(training), rows->train(training);
      Tensor y = images(x), expected = rows(flat);
      y.backward(dy), expected.backward(as_rows_of_channels(dy));
      expect_close(values(as_rows_of_channels(y.detach())), values(expected), 1e-6, "y", 1);
      expect_close(values(as_rows_of_channels(x.grad())), values(flat.grad()), 1e-6, "dx", 1);
      expect_close(values(images->weight.grad()), values(rows->weight.grad()), 1e-6, "dweight", 1);
      expect_close(values(images->bias.grad()), values(rows->bias.grad()), 1e-6, "dbias", 1);
      expect_close(values(images->running_mean), values(rows->running_mean), 1e-6, "running mean", 1);
      expect_close(values(images->running_var), values(rows->running_var), 1e-6, "running variance", 1);
    }
    EXPECT_REFUSED(images(flat), "BatchNorm2d", "[40, 3]");
  }
}

TEST(Images, BatchNormOfALineIsThatOfAnImageOneElementHigh) {
  Context context;
  auto line = nn::make<nn::BatchNorm1d>(3);
  auto image = nn::make<nn::BatchNorm2d>(3);
  Tensor x = upstream_like(empty({2, 3, 7}), 1);
  EXPECT_EQ(bits(line(x)), bits(image(x.unsqueeze(2)).squeeze(2)));
  EXPECT_EQ(bits(line->running_var), bits(image->running_var));
  EXPECT_REFUSED(line(x.unsqueeze(2)), "BatchNorm1d", "[2, 3, 1, 7]");
}

TEST(Images, OnePlaceOfOneImageHasNoVarianceAndNoImagesMoveNothing) {
  Context context;
  auto norm = nn::make<nn::BatchNorm2d>(2);
  EXPECT_REFUSED(norm(ones({1, 2, 1, 1})), "BatchNorm2d", "two elements", "[1, 2, 1, 1]");
  EXPECT_EQ(norm(ones({0, 2, 3, 3})).shape(), (Shape{0, 2, 3, 3}));
  EXPECT_EQ(values(norm->running_var), (std::vector<double>{1, 1}));
  EXPECT_EQ(values(norm(ones({1, 2, 1, 2}))), std::vector<double>(4, 0));
}

TEST(Images, AKernelWithoutElementsIsRefusedWhereItIsGiven) {
  Context context;
  EXPECT_REFUSED(nn::make<nn::Conv2d>(2, 3, 0), "Conv2d", "kernel of 0 x 0");
  EXPECT_REFUSED((nn::make<nn::Conv2d>(2, 3, Size2d(3, -1))), "Conv2d", "kernel of 3 x -1");
  EXPECT_REFUSED(nn::make<nn::Conv1d>(2, 3, 0), "Conv1d", "1 x 0");
}

// PyTorch's has a number that ours has no use for.
TEST(Images, BatchNormTakesPyTorchsState) {
  Context context;
  auto net = nn::make<nn::Sequential>();
  net->add<nn::BatchNorm2d>(2).add<nn::ReLU>();
  nn::StateDict state;
  for (auto& [name, tensor] : net->state_dict()) state[name] = full(tensor.shape(), 3);
  state["0.num_batches_tracked"] = full({}, 7, DType::i64);
  net->load_state_dict(state);
  EXPECT_EQ(values(net->state_dict().at("0.running_var")), (std::vector<double>{3, 3}));
  EXPECT_FALSE(net->state_dict().contains("0.num_batches_tracked"));
  state["1.num_batches_tracked"] = full({}, 7, DType::i64);
  EXPECT_REFUSED(net->load_state_dict(state), "unknown: '1.num_batches_tracked'");
}

TEST(Images, AdaptivePoolingMakesOneNumberOfEachChannel) {
  Context context;
  auto pool = nn::make<nn::AdaptiveAvgPool2d>(1);
  Tensor y = pool(arange(24, DType::f32).view({1, 2, 3, 4}));
  EXPECT_EQ(y.shape(), (Shape{1, 2, 1, 1}));
  EXPECT_EQ(values(y), (std::vector<double>{5.5, 17.5}));
}

}  // namespace
}  // namespace shardgrad::test
