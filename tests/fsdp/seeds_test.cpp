// Programs of FairScale's, Tango's and PyTorch's guides, in their words (docs/coming-from.md). From ddp to zero3 each
// changes one word and not one bit.

#include <gmock/gmock.h>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/dist/launch/launch_local.h>
#include <shardgrad/fsdp/fairscale.h>
#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/fsdp/sharded_ddp.h>
#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing::seeds {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Weights = std::map<std::string, std::vector<double>>;
using Program = std::function<Weights(dist::ProcessGroup&, const Config&)>;

constexpr int64_t kRows = 12;  // of a global batch

Tensor rows(const dist::ProcessGroup& world, const char* what, int step, int64_t columns) {
  int64_t from = kRows * world.rank() / world.size(), to = kRows * (world.rank() + 1) / world.size();
  progress() = {uint64_t(step), from};
  return rows_of_batch(what, step, from, to, columns, DType::f32);
}

Weights weights_of(Sharded& sharded) {
  Weights weights;
  for (auto& [name, tensor] : full_state_dict(sharded, false)) weights[name] = values_of(tensor);
  return weights;
}

Weights on_ranks(int ranks, const Program& program, const Config& config) {
  std::vector<Weights> all(static_cast<size_t>(ranks));
  dist::run_ranks(ranks, [&](dist::ProcessGroup& world) { all[size_t(world.rank())] = program(world, config); },
                  {.seed = 1, .threads = 1});
  for (const Weights& one : all) EXPECT_EQ(one, all[0]) << "ranks differ";
  return all[0];
}

// One word, and no bit; and one rank's numbers to rounding.
void expect_same_under_every_strategy(const Program& program, double tolerance) {
  Weights one = on_ranks(1, program, {});
  for (int ranks : {2, 4}) {
    std::optional<Weights> first;
    for (Config config : strategies(ranks)) {
      config.bucket_bytes = {};
      Weights trained = on_ranks(ranks, program, config);
      if (!first) first = trained;
      EXPECT_EQ(trained, *first) << name_of(config.strategy) << " on " << ranks;
    }
    for (const auto& [name, values] : *first)
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], one.at(name)[i], tolerance) << name << ranks;
  }
}

// --- the tutorial's loop ---

struct Net : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 7, 16), down = child<nn::Linear>("down", 16, 3);
  Tensor forward(const Tensor& x) { return down(relu(up(x))); }
};

Weights ddp_and_fsdp(dist::ProcessGroup& world, const Config& config) {
  auto model = nn::make<Net>();
  auto sharded = fully_shard(*model, world, config);
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
  model->train();
  for (int step = 0; step < 5; ++step) {
    model->zero_grad();
    Tensor outputs = model(rows(world, "data", step, 7));
    Tensor loss = mse_loss(outputs, rows(world, "target", step, 3), double(kRows * 3));
    loss.backward();
    optimizer.step();
  }
  return weights_of(*sharded);
}

TEST(Seeds, TheTutorialsLoopUnderDdpAndFsdp) { expect_same_under_every_strategy(ddp_and_fsdp, 1e-6); }

Weights oss_then_sharded_ddp(dist::ProcessGroup& world, const Config&) {
  auto net = nn::make<Net>();
  OSS<optim::SGD> optimizer(net->named_parameters(), {.lr = 0.1});
  ShardedDDP model(net, optimizer, world);
  model->train();
  for (int step = 0; step < 5; ++step) {
    model->zero_grad();
    Tensor outputs = model(rows(world, "data", step, 7));
    Tensor loss = mse_loss(outputs, rows(world, "target", step, 3), double(kRows * 3));
    loss.backward();
    optimizer.step();
  }
  return weights_of(model.sharded());
}

TEST(Seeds, TheTutorialsOssAndShardedDdpInItsOrder) {
  for (int ranks : {1, 2, 3})
    EXPECT_EQ(on_ranks(ranks, oss_then_sharded_ddp, {}), on_ranks(ranks, ddp_and_fsdp, {.strategy = Strategy::ddp}));
}

TEST(Seeds, OssHasStateForThisRanksPartOnly) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& world) {
                    auto net = nn::make<Net>();
                    OSS<optim::AdamW> optimizer(net->named_parameters(), {.lr = 0.1});
                    ShardedDDP model(net, optimizer, world);
                    sum(model(ones({2, 7}))).backward();
                    optimizer.step();
                    int64_t padded = 0;
                    for (FlatParam* flat : model.sharded().flats()) padded += flat->padded();
                    EXPECT_EQ(bytes(Category::optimizer_state), 2 * 4 * padded / 2);
                    optimizer.set_lr(0.5);
                    EXPECT_EQ(optimizer.lr(), 0.5);
                  },
                  {.threads = 1});
}

std::string oss_refusal(const std::function<void(nn::Child<Net>&, dist::ProcessGroup&)>& body) {
  return message_of([&] {
    dist::run_ranks(2,
                    [&](dist::ProcessGroup& world) {
                      auto net = nn::make<Net>();
                      body(net, world);
                    },
                    {.threads = 1});
  });
}

TEST(Seeds, AnOptimizerOverTheWrongParametersIsRefusedWithTheRightCall) {
  EXPECT_THAT(oss_refusal([](auto& net, auto& world) {
                OSS<optim::SGD> other(nn::make<Net>()->named_parameters(), {.lr = 0.1});
                ShardedDDP model(net, other, world);
              }),
              HasSubstr("'up.weight', which is no parameter of this model; make it with model->named_parameters()"));
  EXPECT_THAT(oss_refusal([](auto& net, auto& world) {
                OSS<optim::SGD> part(net->up->named_parameters(), {.lr = 0.1});
                ShardedDDP model(net, part, world);
              }),
              HasSubstr("no optimizer was given 'down.weight'"));
  EXPECT_THAT(oss_refusal([](auto& net, auto& world) {
                OSS<optim::SGD> all(net->named_parameters(), {.lr = 0.1}),
                    again(net->up->named_parameters(), {.lr = 1});
                ShardedDDP model(net, all, world, again);
              }),
              HasSubstr("'up.weight' is in two optimizers"));
  EXPECT_THAT(oss_refusal([](auto& net, auto& world) {
                OSS<optim::SGD> all(net->named_parameters(), {.lr = 0.1});
                ShardedDDP model(net, all, world);
                ShardedDDP again(nn::make<Net>(), all, world);
              }),
              HasSubstr("is another model's already; make an OSS for each model"));
  EXPECT_THAT(oss_refusal([](auto& net, auto&) { OSS<optim::SGD>(net->named_parameters(), {.lr = 0.1}).step(); }),
              HasSubstr("call ShardedDDP(model, optimizer, world) first"));
  EXPECT_THAT(oss_refusal([](auto& net, auto&) { OSS<optim::SGD>(net->named_parameters(), {.lr = -1}); }),
              HasSubstr("lr = -1 is not possible"));
  EXPECT_THAT(oss_refusal([](auto& net, auto& world) {
                optim::SGD before(net->named_parameters(), {.lr = 0.1});
                auto sharded = fully_shard(*net, world);
                sum(net(ones({2, 7}))).backward();
                before.step();
              }),
              HasSubstr("was sharded after this optimizer was made; make the optimizer after fully_shard"));
}

TEST(Seeds, TwoOptimizersShareAShardedModel) {
  auto program = [](dist::ProcessGroup& world, const Config&) {
    auto net = nn::make<Net>();
    OSS<optim::SGD> up(net->up->named_parameters(), {.lr = 0.1}), down(net->down->named_parameters(), {.lr = 0.1});
    ShardedDDP model(net, up, world, down);
    for (int step = 0; step < 5; ++step) {
      model->zero_grad();
      mse_loss(model(rows(world, "data", step, 7)), rows(world, "target", step, 3), double(kRows * 3)).backward();
      up.step();
      down.step();
    }
    return weights_of(model.sharded());
  };
  EXPECT_EQ(on_ranks(2, program, {}), on_ranks(2, ddp_and_fsdp, {}));
}

// --- the tutorial's checkpointed network, under autocast with a grad scaler ---

struct CheckpointModel : nn::Module {
  nn::Child<nn::Sequential> ffn_module = child<nn::Sequential>("ffn_module");
  nn::Child<nn::Linear> last_linear = child<nn::Linear>("last_linear", 32, 1);
  CheckpointModel() {
    ffn_module->add<nn::Linear>(32, 128).add<nn::Dropout>(0.5).add<nn::Linear>(128, 32);
    nn::recompute(*ffn_module);
  }
  Tensor forward(const Tensor& input) { return last_linear(ffn_module(input)); }
};

template <bool checkpointed> Weights scaled(dist::ProcessGroup& world, const Config& config) {
  auto model = nn::make<CheckpointModel>();
  if (!checkpointed) model->ffn_module->set_recompute({});
  auto sharded = fully_shard(*model, world, config);
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.05});
  optim::GradScaler scaler = sharded_grad_scaler(*sharded, {.init_scale = 1 << 24, .backoff_factor = 1.0 / 1024});
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      Autocast autocast(DType::f16);
      Tensor output = model(rows(world, "input", step, 32));
      loss = mse_loss(output, rows(world, "target", step, 1), double(kRows));
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  Weights weights = weights_of(*sharded);
  EXPECT_EQ(scaler.factor(), 1 << 14) << "the first step has overflowed and was left out";
  return weights;
}

TEST(Seeds, TheTutorialsCheckpointedDropoutUnderAutocastWithAGradScaler) {
  expect_same_under_every_strategy(scaled<true>, 5e-3);
  EXPECT_EQ(on_ranks(2, scaled<true>, {}), on_ranks(2, scaled<false>, {})) << "the same masks are drawn again";
}

// --- Tango's regression model ---

struct FeedForward : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", 4, 4);
  nn::Child<nn::ReLU> activation = child<nn::ReLU>("activation");
  Tensor forward(const Tensor& x) { return activation(linear(x)); }
};
struct SimpleRegressionModel : nn::Module {
  nn::Child<nn::Sequential> blocks = child<nn::Sequential>("blocks");
  nn::Child<nn::Linear> regression_head = child<nn::Linear>("regression_head", 4, 1);
  SimpleRegressionModel() { blocks->add<FeedForward>().add<FeedForward>().add<FeedForward>(); }
  std::map<std::string, Tensor> forward(const Tensor& x, const Tensor& y, double count) {
    return {{"loss", mse_loss(regression_head(blocks(x)), y, count)}};
  }
};
const std::vector<std::string> kModulesToWrap{R"(blocks\.[0-9]+)", "regression_head"};

Program regression(const std::optional<FSDPConfig>& options, bool checkpointed,
                   std::vector<std::string>* units = nullptr) {
  return [=](dist::ProcessGroup& world, const Config& config) {
    auto model = with_wrapped_modules(nn::make<SimpleRegressionModel>(), kModulesToWrap, options, checkpointed);
    auto sharded = fully_shard(*model, world, config);
    if (units && world.rank() == 0)
      for (const auto& unit : sharded->units()) units->push_back(unit->name());
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
    for (int step = 0; step < 4; ++step) {
      Tensor x = rows(world, "x", step, 4), y = rows(world, "y", step, 1);
      model(x, y, double(kRows)).at("loss").backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    return weights_of(*sharded);
  };
}

TEST(Seeds, TangosRegressionModelWrappedAndCheckpointed) {
  expect_same_under_every_strategy(regression(FSDPConfig(), true), 1e-5);
  Weights plain = on_ranks(2, regression({}, false), {});
  for (bool checkpointed : {false, true})
    for (bool reshard : {true, false})
      for (bool to_cpu : {true, false}) {
        FSDPConfig options{.reshard_after_forward = reshard, .move_params_to_cpu = to_cpu};
        EXPECT_EQ(on_ranks(2, regression(options, checkpointed), options.as_kwargs()), plain)
            << checkpointed << reshard << to_cpu;
      }
}

TEST(Seeds, WrappingAndCheckpointingAreSwitchedIndependently) {
  std::vector<std::string> units;
  on_ranks(2, regression(FSDPConfig(), false, &units), {});
  EXPECT_THAT(units, ElementsAre("blocks.0", "blocks.1", "blocks.2", "regression_head"));
  units.clear();
  on_ranks(2, regression({}, true, &units), {});
  EXPECT_THAT(units, ElementsAre("blocks", "regression_head")) << "the default ones";
  Context context;
  auto checkpointed = [](const std::optional<FSDPConfig>& options, bool on) {
    auto model = with_wrapped_modules(nn::make<SimpleRegressionModel>(), kModulesToWrap, options, on);
    return int(bool(model->blocks->recompute_options())) + 2 * int(bool(model->regression_head->recompute_options())) +
           4 * int(bool(model->blocks->children()[1].object->recompute_options()));
  };
  EXPECT_EQ(checkpointed({}, true), 6);
  EXPECT_EQ(checkpointed(FSDPConfig(), true), 6);
  EXPECT_EQ(checkpointed(FSDPConfig(), false), 0);
}

TEST(Seeds, WhatMatchesNoModuleListsThoseThatThereAreAndChangesNothing) {
  Context context;
  auto model = nn::make<SimpleRegressionModel>();
  EXPECT_THAT(message_of([&] {
                with_wrapped_modules(model, {"blocks", "head"}, FSDPConfig(), true);
              }),
              HasSubstr("with_wrapped_modules: 'head' matches no module; there are blocks, blocks.0, blocks.0.linear, "
                        "blocks.0.activation, blocks.1, "));
  EXPECT_TRUE(wrapped_units().empty());
  EXPECT_FALSE(model->blocks->recompute_options());
  EXPECT_THAT(message_of([&] { with_wrapped_modules(model, {"("}); }), HasSubstr("'(' is no regular expression"));
  struct Lists : nn::Module {
    nn::Child<nn::ModuleList<nn::Linear>> list = child<nn::ModuleList<nn::Linear>>("list");
    Tensor forward(const Tensor& x) { return x; }
  };
  EXPECT_THAT(message_of([&] { with_wrapped_modules(nn::make<Lists>(), {"list"}, FSDPConfig()); }),
              HasSubstr("which has no forward: it is never called; match the modules in it"));
}

TEST(Seeds, FsdpConfigHasFairScalesOptionsAndDefaults) {
  Config config = FSDPConfig().as_kwargs();
  EXPECT_EQ(config.strategy, Strategy::zero3);
  EXPECT_FALSE(config.move_params_to_cpu || config.move_grads_to_cpu || config.param_dtype || config.reduce_dtype);
  Config memory = FSDPConfig{true, true, true, true}.as_kwargs(),
         speed = FSDPConfig{false, false, false, true}.as_kwargs();
  EXPECT_EQ(memory.strategy, Strategy::zero3);
  EXPECT_TRUE(memory.move_params_to_cpu && memory.grads_to_cpu());
  EXPECT_EQ(memory.param_dtype, DType::f16);
  EXPECT_EQ(memory.reduce_dtype, DType::f32);
  EXPECT_EQ(speed.strategy, Strategy::zero2);
  EXPECT_FALSE(speed.move_params_to_cpu || speed.grads_to_cpu());
  EXPECT_TRUE((FSDPConfig{.move_params_to_cpu = true}.as_kwargs().grads_to_cpu())) << "as the parameters";
  Context context;
  auto model = nn::make<SimpleRegressionModel>();
  FSDPConfig{.move_params_to_cpu = true}.wrap(model->blocks);
  EXPECT_TRUE(wrapped_units().at(&*model->blocks)->move_params_to_cpu);
}

// --- what the tutorial says and is not so ---

// The most bytes of some categories that each of two ranks has in a step.
std::vector<int64_t> peaks(Strategy strategy, const std::vector<Category::Kind>& categories) {
  std::vector<int64_t> all(2);
  dist::run_ranks(2,
                  [&](dist::ProcessGroup& world) {
                    auto model = nn::make<CheckpointModel>();
                    model->ffn_module->set_recompute({});
                    auto sharded = fully_shard(*model, world, {.strategy = strategy});
                    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
                    mse_loss(model(rows(world, "x", 0, 32)), rows(world, "y", 0, 1), double(kRows)).backward();
                    optimizer.step();
                    for (Category::Kind category : categories)
                      all[size_t(world.rank())] += context().ledger().peak(category);
                  },
                  {.seed = 1, .threads = 1});
  return all;
}

TEST(SeedClaims, UnderDdpEveryRankNeedsTheSameMemory) {
  std::vector<int64_t> bytes =
      peaks(Strategy::ddp, {Category::parameter_shard, Category::full_gradient, Category::optimizer_state});
  EXPECT_EQ(bytes[0], bytes[1]);
  int64_t parameters = 33 * 128 + 129 * 32 + 33;
  EXPECT_GE(bytes[0], 4 * 4 * parameters) << "whole parameters, gradients and two states";
}

TEST(SeedClaims, ActivationsTakeAsManyBytesUnderFsdpAsUnderDdp) {
  std::vector<int64_t> ddp = peaks(Strategy::ddp, {Category::activation});
  EXPECT_GT(ddp[0], 0);
  EXPECT_EQ(peaks(Strategy::zero3, {Category::activation}), ddp);
}

// --- processes ---

TEST(Seeds, TheTutorialsProgramIsSpawned) {
  Weights expected = on_ranks(2, ddp_and_fsdp, {});
  dist::spawn(2,
              [&](dist::ProcessGroup& world) {
                if (ddp_and_fsdp(world, {}) != expected) fail("other bits");
              },
              {.context = {.seed = 1, .threads = 1}});
}

}  // namespace
}  // namespace shardgrad::fsdp::testing::seeds
