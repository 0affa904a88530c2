// The convolutional network of the program.

#include <shardgrad/train/tasks/cnn.h>

#include <gmock/gmock.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

const train::CnnOptions kSmall{.image = {2, 6, 5}, .channels = {3, 4}, .hidden = 7, .classes = 3};

TEST(Cnn, IsItsLayersInTurn) {
  Context context;
  auto model = nn::make<train::Cnn>(kSmall);
  Tensor rows = randn({4, 60}), y = model(rows);
  nn::StateDict w = model->state_dict();
  Tensor pictures = rows.view({4, 2, 6, 5});
  Tensor one = max_pool2d(relu(conv2d(pictures, w.at("conv0.weight"), w.at("conv0.bias"), {.padding = 1})), 2);
  Tensor two = max_pool2d(relu(conv2d(one, w.at("conv1.weight"), w.at("conv1.bias"), {.padding = 1})), 2);
  EXPECT_EQ(two.shape(), (Shape{4, 4, 1, 1}));
  Tensor hidden = linear(flatten(two, 1), w.at("hidden.weight"), w.at("hidden.bias"), Activation::relu);
  EXPECT_EQ(bits(y), bits(linear(hidden, w.at("out.weight"), w.at("out.bias"))));
  EXPECT_EQ(bits(model(pictures)), bits(y));
}

TEST(Cnn, DropsOutInTrainingOnly) {
  Context context;
  train::CnnOptions options = kSmall;
  options.dropout = 0.5;
  auto model = nn::make<train::Cnn>(options);
  Tensor x = randn({4, 60});
  EXPECT_NE(values(model(x)), values(model(x)));
  model->eval();
  EXPECT_EQ(values(model(x)), values(model(x)));
}

TEST(Cnn, RefusesPicturesThatDoNotFit) {
  Context context;
  auto with = [](auto change) {
    train::CnnOptions options = kSmall;
    change(options);
    return refusal([&] { nn::make<train::Cnn>(options); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(with([](auto& o) { o.image = {2, 6, 5, 1}; }), HasSubstr("channels, height and width"));
  EXPECT_THAT(with([](auto& o) { o.kernel = 2; }), HasSubstr("model.kernel = 2 is even"));
  EXPECT_THAT(with([](auto& o) { o.channels = {3, 3, 3}; }), HasSubstr("6 x 5 cannot be halved 3 times"));
  auto model = nn::make<train::Cnn>(kSmall);
  EXPECT_REFUSED(model(zeros({4, 61})), "[4, 61]", "2 x 6 x 5", "model.image");
}

}  // namespace
}  // namespace shardgrad::test
