// MixedRun precision over ranks: f32 parameters and gradients, products in 16 bits, one decision about overflows.

#include <shardgrad/fsdp/grad_scaler.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

struct MixedRun {
  int world = 1;
  std::optional<DType> autocast = {};
  Strategy strategy = Strategy::zero3;
  Device device = kCpu;
  bool recompute = false;
  double init_scale = 0;           ///< 0: no scaler
  std::vector<int> poisoned = {};  ///< steps in which the last sample of the batch is infinite
  int steps = 8;
};

struct Trace {
  std::vector<double> losses, factors;
  std::vector<bool> stepped;
  std::map<std::string, std::vector<double>> weights;
  std::map<std::string, int64_t> counts;  ///< optimizer steps per parameter
  bool operator==(const Trace&) const = default;
};

Trace train_rank(MakeModel make, const MixedRun& setup, dist::ProcessGroup& group) {
  constexpr int64_t kBatch = 12;
  AnyModel model = make();
  if (setup.recompute) nn::recompute_by_type(model.module, {"Linear"});
  int shard_ranks = setup.strategy == Strategy::hybrid ? 2 : 0;
  auto sharded = fully_shard(model.module, group, {.strategy = setup.strategy, .shard_ranks = shard_ranks});
  optim::AdamW optimizer(model.module.named_parameters(), {.lr = 0.01});
  bool scaled = setup.init_scale > 0;
  auto scaler = sharded_grad_scaler(
      *sharded, {.init_scale = scaled ? setup.init_scale : 1, .growth_interval = 3, .enabled = scaled});
  int64_t begin = kBatch * group.rank() / group.size(), end = kBatch * (group.rank() + 1) / group.size();
  Trace trace;
  for (int step = 0; step < setup.steps; ++step) {
    Tensor x = rows_of_batch("x", step, begin, end, 7, DType::f32), loss;
    if (std::ranges::count(setup.poisoned, step) > 0 && end == kBatch)
      fill_(x.rows(x.size(0) - 1, x.size(0)), std::numeric_limits<double>::infinity());
    {
      Autocast precision(setup.autocast);
      loss = mse_loss(model.output(x), rows_of_batch("t", step, begin, end, 5, DType::f32), double(kBatch * 5));
    }
    scaler.scale(loss).backward();
    trace.stepped.push_back(scaler.step(optimizer));
    scaler.update();
    optimizer.zero_grad();
    trace.factors.push_back(scaler.factor());
    Tensor total = loss.detach();
    group.all_reduce(total).host_wait();
    if (trace.stepped.back()) trace.losses.push_back(total.item());
  }
  for (auto& [name, tensor] : full_state_dict(*sharded, false)) {
    EXPECT_EQ(tensor.dtype(), DType::f32);
    trace.weights[name] = values_of(tensor);
  }
  trace.counts = optimizer.steps();
  return trace;
}

Trace train_mixed(MakeModel make, const MixedRun& setup) {
  std::vector<Trace> traces(static_cast<size_t>(setup.world));
  auto body = [&](dist::ProcessGroup& group) { traces[size_t(group.rank())] = train_rank(make, setup, group); };
  dist::run_ranks(setup.world, body, {.device = setup.device, .threads = 1});
  for (const Trace& trace : traces) {
    EXPECT_EQ(trace.factors, traces[0].factors);
    EXPECT_EQ(trace.stepped, traces[0].stepped);
    EXPECT_EQ(trace.losses, traces[0].losses);
    EXPECT_EQ(trace.weights, traces[0].weights);
  }
  return traces[0];
}

using PrecisionModels = ModelList<Chain, Rooted, Twice, Unused, Frozen, Tied>;
class Precision : public ::testing::TestWithParam<MakeModel> {};
INSTANTIATE_TEST_SUITE_P(Models, Precision, PrecisionModels::values(), PrecisionModels::title);

TEST_P(Precision, I12_B08_B19_AutocastGivesTheSameBitsUnderEveryStrategyDeviceAndWithRecompute) {
  for (int world : {1, 2, 3, 4})
    for (DType dtype : {DType::bf16, DType::f16}) {
      MixedRun setup{.world = world, .autocast = dtype, .strategy = Strategy::ddp, .steps = 4};
      auto expected = train_mixed(GetParam(), setup).weights;
      for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3, Strategy::hybrid})
        for (bool recompute : {false, true}) {
          if (strategy == Strategy::hybrid && world != 4) continue;
          setup.strategy = strategy;
          setup.recompute = recompute;
          setup.device = recompute ? kAcc : kCpu;
          EXPECT_TRUE(train_mixed(GetParam(), setup).weights == expected)
              << name_of(strategy) << " W=" << world << " " << dtype << " recompute " << recompute;
        }
    }
}

TEST_P(Precision, SixteenBitsTrainWithinOnePercentOfSingle) {
  for (int world : {1, 2, 4}) {
    MixedRun setup{.world = world};
    Trace single = train_mixed(GetParam(), setup);
    for (DType dtype : {DType::bf16, DType::f16}) {
      setup.autocast = dtype;
      setup.init_scale = dtype == DType::f16 ? 1024 : 0;
      Trace mixed = train_mixed(GetParam(), setup);
      ASSERT_EQ(mixed.losses.size(), single.losses.size());
      for (size_t i = 0; i < single.losses.size(); ++i)
        EXPECT_NEAR(mixed.losses[i], single.losses[i], 1e-2 * single.losses[i]) << dtype << " step " << i;
    }
  }
}

TEST(ShardedGradScaler, I15_B38_OneInfiniteSampleOnOneRankStopsTheStepOnAll) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    for (int world : {1, 2, 3, 4})
      for (Device device : {kCpu, kAcc}) {
        MixedRun setup{.world = world, .autocast = DType::f16, .strategy = strategy, .device = device};
        setup.init_scale = 256;
        setup.poisoned = {1, 4};
        Trace trace = train_mixed(any_model<Rooted>, setup);
        EXPECT_EQ(trace.stepped, (std::vector<bool>{true, false, true, true, false, true, true, true}));
        EXPECT_EQ(trace.factors, (std::vector<double>{256, 128, 128, 128, 64, 64, 64, 128}));
        for (const auto& [name, steps] : trace.counts) EXPECT_TRUE(steps == 6 || steps == 0) << name;
        for (const auto& [name, values] : trace.weights)
          for (double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
      }
}

// A product over a rank's samples overflows where fewer samples would not, so the scale that is found may depend on the
// number of ranks by a factor; that all ranks decide alike is checked by train_mixed.
TEST(ShardedGradScaler, AScaleThatIsTooLargeComesDownOnAllRanksTogether) {
  for (int world : {1, 2, 3, 4})
    for (Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
      MixedRun setup{.world = world, .autocast = DType::f16, .strategy = strategy, .init_scale = 0x1p30, .steps = 30};
      Trace trace = train_mixed(any_model<Chain>, setup);
      size_t bad = size_t(std::ranges::find(trace.stepped, true) - trace.stepped.begin());
      ASSERT_TRUE(bad >= 8 && bad <= 20) << bad;
      for (size_t i = 0; i < bad; ++i) EXPECT_EQ(trace.factors[i], std::ldexp(1.0, 29 - int(i)));
      for (size_t i = bad; i < trace.factors.size(); ++i)
        EXPECT_TRUE(trace.stepped[i] || i < 2 || trace.stepped[i - 1])
            << "after the first good step, one bad at a time";
      for (const auto& [name, values] : trace.weights)
        for (double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
    }
}

TEST(ShardedGradScaler, I15_B11_OneInfiniteElementInOneShardStopsTheStepOnAll) {
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
    for (int bad : {0, 1, 2})
      dist::run_ranks(3, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Chain>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
        optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
        auto scaler = sharded_grad_scaler(*sharded, {.init_scale = 8});
        Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
        scaler.scale(mse_loss(model(x), t, 20)).backward();
        auto before = full_state_dict(*sharded, false);
        const Tensor& grad = sharded->units()[0]->flat_params()[0]->grad();
        if (group.rank() == bad) fill_(grad.rows(1, 2), -std::numeric_limits<double>::infinity());
        EXPECT_FALSE(scaler.step(optimizer));
        scaler.update();
        EXPECT_EQ(scaler.factor(), 4);
        for (auto& [name, tensor] : full_state_dict(*sharded, false))
          EXPECT_EQ(values_of(tensor), values_of(before.at(name))) << name;
      });
}

// Ranks that decide alone would step apart: an overflow is in one rank's part of the gradients only.
TEST(ShardedGradScaler, AScalerThatAsksNoOtherRankIsRefused) {
  struct Halves : nn::Module {
    Tensor p = param("p", {32}, nn::init::ones()), q = param("q", {32}, nn::init::ones());
    Tensor forward(const Tensor& x) { return sum(p * x) + sum(q * x) * 1e36; }
  };
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Halves>();
      auto sharded = fully_shard(*model, group, config);
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.125});
      optim::GradScaler alone;
      auto together = sharded_grad_scaler(*sharded);
      together.scale(model(ones({32}))).backward();
      std::string what = message_of([&] { alone.step(optimizer); });
      EXPECT_TRUE(contains(what, "'p'") && contains(what, "fsdp::sharded_grad_scaler")) << what;
      EXPECT_FALSE(together.step(optimizer));
      for (auto& [name, tensor] : full_state_dict(*sharded, false))
        EXPECT_EQ(values_of(tensor), std::vector<double>(32, 1.0)) << name;
    });
}

TEST(ShardedGradScaler, I15_RanksWhoseShardsAreAllPaddingDecideToo) {
  MixedRun setup{.world = 4, .init_scale = 256, .poisoned = {0}, .steps = 3};
  Trace trace = train_mixed(any_model<Tiny>, setup);
  EXPECT_EQ(trace.stepped, (std::vector<bool>{false, true, true}));
}

// The parameter's copy in 16 bits lives while its operation runs, so a sharded model stays sharded.
TEST(MixedMemory, I28_AutocastKeepsNoCopyOfTheParameters) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    fully_shard(*model, group);
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
    int64_t before = context().ledger().current(Category::activation);
    Autocast precision(DType::bf16);
    Tensor y = model(x);
    // Inputs of the three layers, the outputs of both ReLUs (which are two of these), and the result, in two bytes.
    EXPECT_EQ(context().ledger().current(Category::activation) - before, 2 * 4 * (7 + 13 + 3 + 5));
  });
}

TEST(MixedMemory, AutocastKeepsNoCopyOfAShardedParameterThatIsUsedAgain) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [strategy](dist::ProcessGroup& group) {
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
      Autocast precision(DType::bf16);
      for (int step = 0; step < 2; ++step) {
        for (int i = 0; i < 3; ++i) {
          NoGrad no_grad;
          model(x);
        }
        mse_loss(model(x), t, 40).backward();
        optimizer.step(), optimizer.zero_grad();
      }
      EXPECT_EQ(context().ledger().peak(Category::converted_parameter), 0);
    });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
