// A convolutional network and a recurrent one, with optimizers that are made of operations: the same bits under every
// strategy.

#include <gtest/gtest.h>

#include <shardgrad/shardgrad.h>

namespace shardgrad::test {
namespace {

struct ImageNet : nn::Module {
  static Shape input() { return {8, 1, 8, 8}; }
  nn::Child<nn::Conv2d> first = child<nn::Conv2d>("first", 1, 8, 3, ConvOptions{.padding = 1});
  nn::Child<nn::GroupNorm> norm = child<nn::GroupNorm>("norm", 2, 8);
  nn::Child<nn::Conv2d> second =
      child<nn::Conv2d>("second", 8, 8, 3, ConvOptions{.stride = 2, .padding = 1, .groups = 2});
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 8 * 4 * 4, 3);
  Tensor forward(const Tensor& x) { return out(flatten(silu(second(relu(norm(first(x))))), 1)); }
};

struct SequenceNet : nn::Module {
  static Shape input() { return {8, 5, 3}; }
  nn::Child<nn::LSTM> lstm =
      child<nn::LSTM>("lstm", 3, 6, nn::RecurrentOptions{.layers = 2, .batch_first = true, .dropout = 0.25});
  nn::Child<nn::GRU> gru =
      child<nn::GRU>("gru", 6, 4, nn::RecurrentOptions{.batch_first = true, .bidirectional = true});
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 8, 3);
  Tensor forward(const Tensor& x) { return out(select(gru(lstm(x).y).y, 1, -1)); }
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(std::vector<NamedParameter>)>;

template <class Model>
double loss_after_steps(dist::ProcessGroup& world, fsdp::Strategy strategy, const MakeOptimizer& make) {
  auto model = nn::make<Model>();
  auto sharded = fsdp::fully_shard(*model, world, {.strategy = strategy});
  std::unique_ptr<optim::Optimizer> optimizer = make(model->named_parameters());
  Tensor sum;
  for (int step = 0; step < 5; ++step) {
    Tensor x = randn(Model::input(), concat("x", step)), y = randint(0, 3, {8}, concat("y", step));
    int64_t each = 8 / world.size(), begin = each * world.rank();
    progress() = {uint64_t(step), begin};
    Tensor loss = cross_entropy(model(x.rows(begin, begin + each)), y.rows(begin, begin + each),
                                ClassOptions{.count = 8, .label_smoothing = 0.1});
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    sum = clone(loss.detach().view({1}));
    world.all_reduce(sum).host_wait();
  }
  return sum.item();
}

template <class Model> class MoreModels : public testing::Test {};
using Models = testing::Types<ImageNet, SequenceNet>;
TYPED_TEST_SUITE(MoreModels, Models);

TYPED_TEST(MoreModels, TrainTheSameUnderEveryStrategy) {
  const MakeOptimizer optimizers[] = {
      [](std::vector<NamedParameter> p) {
        return std::make_unique<optim::RMSprop>(std::move(p), optim::RmspropOptions{.momentum = 0.5});
      },
      [](std::vector<NamedParameter> p) {
        return std::make_unique<optim::Adagrad>(std::move(p), optim::AdagradOptions{});
      },
      [](std::vector<NamedParameter> p) {
        return std::make_unique<optim::Lion>(std::move(p), optim::LionOptions{.lr = 0.01, .weight_decay = 0.1});
      }};
  for (const MakeOptimizer& make : optimizers) {
    std::vector<double> losses;
    for (auto strategy : {fsdp::Strategy::ddp, fsdp::Strategy::zero1, fsdp::Strategy::zero2, fsdp::Strategy::zero3})
      dist::run_ranks(2, [&](dist::ProcessGroup& world) {
        double loss = loss_after_steps<TypeParam>(world, strategy, make);
        if (world.rank() == 0) losses.push_back(loss);
      });
    double alone = 0;
    dist::run_ranks(
        1, [&](dist::ProcessGroup& world) { alone = loss_after_steps<TypeParam>(world, fsdp::Strategy::ddp, make); });
    ASSERT_EQ(losses.size(), 4u);
    for (double loss : losses) EXPECT_EQ(loss, losses[0]);
    EXPECT_NEAR(losses[0], alone, 1e-4 * alone);
  }
}

}  // namespace
}  // namespace shardgrad::test
