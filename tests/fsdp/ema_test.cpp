// Averages of sharded parameters are those of whole ones, under every strategy, and put into the model and back they
// leave no old copy behind.

#include <gtest/gtest.h>

#include <shardgrad/shardgrad.h>

namespace shardgrad::test {
namespace {

/// Losses without the averages in the model, with them, and without again, three times in a training.
std::vector<double> losses_of(dist::ProcessGroup& world, const fsdp::Config& config) {
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(6, 9).add<nn::Tanh>().add<nn::Linear>(9, 4);
  auto sharded = fsdp::fully_shard(*model, world, config);
  optim::AdamW optimizer(model->named_parameters(), {.lr = 0.05});
  optim::EMA average(model->named_parameters(), 0.8);
  Tensor x = randn({4, 6}, "x"), y = randn({4, 4}, "y");
  std::vector<double> losses;
  auto evaluate = [&] {
    NoGrad no_grad;
    losses.push_back(mse_loss(model(x).to(DType::f32), y).item());
  };
  for (int step = 0; step < 6; ++step) {
    int64_t each = 4 / world.size(), begin = each * world.rank();
    mse_loss(model(x.rows(begin, begin + each)).to(DType::f32), y.rows(begin, begin + each), 16).backward();
    optimizer.step();
    average.update();
    optimizer.zero_grad();
    if (step % 2 == 0) continue;
    evaluate();
    average.swap();
    evaluate();
    average.swap();
    evaluate();
  }
  return losses;
}

TEST(ShardedEma, IsThatOfTheWholeModelUnderEveryStrategy) {
  std::vector<fsdp::Config> configs;
  for (auto strategy : {fsdp::Strategy::ddp, fsdp::Strategy::zero1, fsdp::Strategy::zero2, fsdp::Strategy::zero3})
    for (bool offload : {false, true})
      for (DType dtype : {DType::f32, DType::bf16}) {
        if (offload && (strategy == fsdp::Strategy::ddp || strategy == fsdp::Strategy::zero1)) continue;
        fsdp::Config config{.strategy = strategy};
        if (dtype != DType::f32) config.param_dtype = dtype;
        config.move_params_to_cpu = offload;
        configs.push_back(config);
      }
  std::map<bool, std::vector<double>> first;
  for (const fsdp::Config& config : configs)
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      std::vector<double> losses = losses_of(world, config);
      ASSERT_EQ(losses.size(), 9u);
      for (size_t i = 0; i < 9; i += 3) {
        EXPECT_EQ(losses[i], losses[i + 2]) << "after it was put back";
        EXPECT_NE(losses[i], losses[i + 1]);
      }
      if (world.rank() != 0) return;
      auto [place, is_new] = first.insert({config.param_dtype.has_value(), losses});
      EXPECT_EQ(losses, place->second) << name_of(config.strategy);
    });
}

TEST(ShardedEma, ASwapInAScopeOfSummonFullParamsIsRefusedAndLosesNoAverage) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    auto model = nn::make<nn::Linear>(4, 2);
    auto sharded = fsdp::fully_shard(*model, world);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.5});
    optim::EMA average(model->named_parameters(), 0.5);
    average.update();
    auto bias = [&] { return fsdp::full_state_dict(*sharded, false).at("bias").to_vector<float>(); };
    std::vector<float> first = bias();
    sum(model(ones({3, 4}))).backward();
    optimizer.step();
    std::string what;
    {
      fsdp::SummonFullParams whole(*sharded, true);
      try {
        average.swap();
      } catch (const Error& error) {
        what = error.what();
      }
    }
    EXPECT_NE(what.find("in a scope of SummonFullParams"), std::string::npos) << what;
    EXPECT_FALSE(average.swapped());
    EXPECT_NE(bias(), first);
    average.swap();
    EXPECT_EQ(bias(), first);
  });
}

}  // namespace
}  // namespace shardgrad::test
