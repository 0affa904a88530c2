// Tango's and Lightning's programs of their guides (docs/coming-from.md), in their words. From ddp to zero3 each
// changes one word and not one bit.

#include <gmock/gmock.h>

#include <cstring>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/fit.h>
#include <shardgrad/train/plan.h>

#include "config_texts.h"
#include "small_run.h"

namespace shardgrad::seeds {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::StepOutput;

std::vector<float> numbers(int64_t count, int64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(float((i * 7919 + seed * 104729) % 199) / 100 - 1);
  return values;
}

std::shared_ptr<data::TensorDataset> random_dataset(std::vector<int64_t> columns, int64_t rows) {
  std::vector<Tensor> fields;
  for (int64_t c : columns) fields.push_back(from_vector<float>(numbers(rows * c, c), {rows, c}));
  return std::make_shared<data::TensorDataset>(fields);
}

class SeedRuns : public ::testing::Test {
 protected:
  template <class Module> train::Result fit(train::TrainerOptions options, std::vector<int64_t> columns) {
    options.default_root_dir = folder_ / "runs";
    options.out = &out_;
    options.config.batch = 8;
    train::Trainer trainer(options);
    return trainer.fit([] { return nn::make<Module>(); },
                       [&] {
                         return data::Splits{random_dataset(columns, 64), random_dataset(columns, 16)};
                       });
  }
  // The values behind the file's header, which also says how they came about.
  static std::string weights(const train::Result& result) {
    std::string file = read_file(result.folder + "/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    return file.substr(sizeof header + header);
  }
  static std::vector<std::string> units(const train::Result& result) {
    std::vector<std::string> names;
    auto about = nlohmann::json::parse(read_file(result.folder + "/about.json"));
    for (const auto& unit : about["plan"]["units"]) names.push_back(unit["name"]);
    return names;
  }
  template <class Module>
  void expect_same_under_every_strategy(const train::TrainerOptions& options, const std::vector<int64_t>& columns) {
    std::string expected;
    for (const char* strategy : {"ddp", "zero1", "ddp_sharded", "ddp_fully_sharded"}) {
      train::TrainerOptions chosen = options;
      chosen.strategy = strategy;
      std::string trained = weights(fit<Module>(chosen, columns));
      if (expected.empty()) expected = trained;
      EXPECT_TRUE(trained == expected) << strategy;
    }
  }

  TemporaryFolder folder_;
  std::ostringstream out_;
};

// --- Lightning ---

struct BoringModel : train::FitModule {
  nn::Child<nn::Linear> layer = child<nn::Linear>("layer", 32, 2);
  Tensor forward(const Tensor& x) { return layer(x); }
  // The mean squared distance of what it says from ones.
  Tensor loss(const data::Batch& batch) {
    Tensor said = forward(batch.fields[0]);
    return mse_loss(said.to(DType::f32), ones(said.shape()), double(batch.global_count * 2));
  }
  StepOutput training_step(const data::Batch& batch, int64_t) override { return loss(batch); }
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::SGD>(std::move(parameters), optim::SgdOptions{.lr = 0.1}),
            [](int64_t) { return optim::staircase(1, 0.9); }};
  }
};

TEST_F(SeedRuns, LightningsBoringModelInSixteenBits) {
  train::TrainerOptions options{.devices = 4, .precision = "16", .max_epochs = 1};
  expect_same_under_every_strategy<BoringModel>(options, {32});
  train::TrainerOptions plain{.devices = 1, .max_epochs = 1};
  EXPECT_NEAR(fit<BoringModel>(options, {32}).scores[0].value, fit<BoringModel>(plain, {32}).scores[0].value, 2e-3);
}

struct MyModel : train::FitModule {
  nn::Child<nn::Linear> linear_layer = child<nn::Linear>("linear_layer", 32, 32);
  nn::Child<nn::Sequential> block;
  void configure_sharded_model() override {
    fsdp::wrap(linear_layer);
    block = child<nn::Sequential>("block");
    block->add<nn::Linear>(32, 32).add<nn::Linear>(32, 32);
    for (const auto& layer : block->children())
      fsdp::wrap(nn::Child<nn::Linear>(std::static_pointer_cast<nn::Linear>(layer.object)));
  }
  Tensor forward(const Tensor& x) { return block(relu(linear_layer(x))); }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    Tensor said = forward(batch.fields[0]);
    return mse_loss(said.to(DType::f32), batch.fields[0], double(batch.global_count * 32));
  }
  train::Optimizers configure_optimizers(std::vector<NamedParameter>) override {
    return {std::make_unique<optim::AdamW>(trainer().model().named_parameters(), optim::AdamOptions{.lr = 1e-3})};
  }
};

TEST_F(SeedRuns, LightningsManuallyWrappedModel) {
  train::TrainerOptions options{.devices = 2, .precision = "16", .max_epochs = 1};
  expect_same_under_every_strategy<MyModel>(options, {32});
  options.strategy = "fsdp";
  EXPECT_THAT(units(fit<MyModel>(options, {32})), ElementsAre("linear_layer", "block.0", "block.1"));
}

TEST_F(SeedRuns, LightningsCpuOffload) {
  train::TrainerOptions options{.strategy = "fsdp", .devices = 2, .max_epochs = 1};
  std::string expected = weights(fit<MyModel>(options, {32}));
  options.strategy = fsdp::Config{.move_params_to_cpu = true};
  EXPECT_TRUE(weights(fit<MyModel>(options, {32})) == expected);
}

struct MyTransformerBlock : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 32, 64), out = child<nn::Linear>("out", 64, 32);
  Tensor forward(const Tensor& x) { return x + out(gelu(in(x))); }
};
struct Stack : MyModel {
  nn::Child<MyTransformerBlock> first = child<MyTransformerBlock>("first"),
                                second = child<MyTransformerBlock>("second");
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    recomputed = int(bool(first->recompute_options())) + int(bool(second->in->recompute_options())) +
                 2 * int(bool(linear_layer->recompute_options()));
    Tensor said = forward(second(first(batch.fields[0])));
    return mse_loss(said, batch.fields[0], double(batch.global_count * 32));
  }
  static std::atomic<int> recomputed;
};
std::atomic<int> Stack::recomputed = 0;

TEST_F(SeedRuns, LightningsActivationCheckpointingByATypeAndByAList) {
  train::TrainerOptions options{.strategy = "fsdp", .devices = 2, .max_epochs = 1};
  std::string expected = weights(fit<Stack>(options, {32}));
  EXPECT_EQ(Stack::recomputed, 0);
  options.activation_checkpointing = {"MyTransformerBlock"};
  EXPECT_TRUE(weights(fit<Stack>(options, {32})) == expected);
  EXPECT_EQ(Stack::recomputed, 1) << "a block, not what is in it";
  options.activation_checkpointing = {"MyTransformerBlock", "Linear"};
  EXPECT_TRUE(weights(fit<Stack>(options, {32})) == expected);
  EXPECT_EQ(Stack::recomputed, 3);
}

// Versions of Lightning in which a strategy was an accelerator.
TEST_F(SeedRuns, TheTutorialsTrainers) {
  for (auto [theirs, ours] : {std::pair("dp", "ddp"), {"ddp", "ddp"}, {"fsdp", "zero3"}}) {
    train::Trainer trainer(train::TrainerOptions{.gpus = 2, .accelerator = theirs});
    EXPECT_EQ(trainer.config().strategy, ours);
    EXPECT_EQ(trainer.config().device, "cuda");
    EXPECT_EQ(trainer.options().devices, 2);
  }
  EXPECT_THAT(error_of([] { train::Trainer(train::TrainerOptions{.strategy = "ddp", .accelerator = "dp"}); }),
              HasSubstr("accelerator is 'dp', which is a strategy, and strategy is given, too"));
}

struct OfAnother : BoringModel {
  train::Optimizers configure_optimizers(std::vector<NamedParameter>) override {
    auto other = nn::make<BoringModel>();
    other->materialize();
    std::vector<NamedParameter> both = trainer().model().named_parameters();
    for (NamedParameter& parameter : other->named_parameters())
      both.push_back({"other." + parameter.name, parameter.tensor});
    return {std::make_unique<optim::SGD>(both, optim::SgdOptions{.lr = 0.1})};
  }
};
struct OfACopy : BoringModel {
  train::Optimizers configure_optimizers(std::vector<NamedParameter>) override {
    return {std::make_unique<optim::SGD>(nn::make<BoringModel>()->named_parameters(), optim::SgdOptions{.lr = 0.1})};
  }
};

TEST_F(SeedRuns, AnOptimizerOverTheWrongParametersIsRefusedWithTheRightCall) {
  train::TrainerOptions options{.strategy = "fsdp", .devices = 2, .max_epochs = 1};
  EXPECT_THAT(
      error_of([&] { fit<OfAnother>(options, {32}); }),
      HasSubstr("its optimizer updates 'other.layer.weight', which is no parameter of its module; make it of the "
                "parameters that configure_optimizers is given, those of trainer().model().named_parameters()"));
  EXPECT_THAT(error_of([&] { fit<OfACopy>(options, {32}); }), HasSubstr("its optimizer leaves out 'layer.weight'"));
}

// --- Tango ---

struct FeedForward : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", 4, 4);
  nn::Child<nn::ReLU> activation = child<nn::ReLU>("activation");
  Tensor forward(const Tensor& x) { return activation(linear(x)); }
};
struct SimpleRegressionModel : nn::Module {
  nn::Child<nn::Sequential> blocks = child<nn::Sequential>("blocks");
  nn::Child<nn::Linear> regression_head = child<nn::Linear>("regression_head", 4, 1);
  SimpleRegressionModel() { blocks->add<FeedForward>().add<FeedForward>().add<FeedForward>(); }
  Tensor forward(const Tensor& x) { return regression_head(blocks(x)); }
};

// As it stands in Tango's guide, but for Python's True and r"".
constexpr const char* kFromParams = R"({
    "type": "fairscale::with_wrapped_modules",
    "model": {
        "type": "simple_regression_model"
    },
    "modules_to_wrap": ["blocks\\.[0-9]+", "regression_head"],
    "activation_checkpointing": true
})";

class TangoRuns : public SeedRuns {
 protected:
  train::Registry registry() {
    train::Registry registry;
    registry.add_model("simple_regression_model", "Tango's", [] { return nn::make<SimpleRegressionModel>(); });
    registry.add_data("pairs", "of numbers", [] {
      return data::Splits{random_dataset({4, 1}, 64), random_dataset({4, 1}, 16)};
    });
    return registry;
  }
  Config config(const std::string& model, const std::string& rest = "") {
    std::string text = concat(R"({"data": {"name": "pairs"}, "task": {"name": "regression"}, "batch": 8, "steps": 5, )",
                              "\"runs\": \"", folder_ / "runs", "\", \"model\": ", model, rest, "}");
    folder_.write("tango.json", text);
    return train::read_config(folder_ / "tango.json", {}, registry());
  }
  train::Result run(const Config& config, int ranks = 2) {
    train::Result result;
    dist::run_ranks(ranks,
                    [&](dist::ProcessGroup& world) {
                      train::Result mine = train::train(config, world, out_);
                      if (world.rank() == 0) result = mine;
                    },
                    {.seed = 1, .threads = 1});
    return result;
  }
};

TEST_F(TangoRuns, TheGuidesFromParamsTrainsAsItStands) {
  Config checkpointed = config(kFromParams);
  EXPECT_EQ(checkpointed.model.name, "simple_regression_model");
  EXPECT_THAT(checkpointed.recompute_regex, ElementsAre(R"(blocks\.[0-9]+)", "regression_head"));
  EXPECT_EQ(checkpointed.fsdp.wrap, "children") << "without an fsdp_config no module is wrapped";
  std::string plain = weights(run(config(R"({"type": "simple_regression_model"})")));
  EXPECT_FALSE(plain.empty());
  EXPECT_TRUE(weights(run(checkpointed)) == plain);
  for (const char* engine : {"torch", "fairscale"})
    EXPECT_TRUE(weights(run(config(kFromParams, concat(R"(, "training_engine": {"type": ")", engine, "\"}")))) == plain)
        << "one word, and no bit";
}

TEST_F(TangoRuns, WithAnFsdpConfigTheModulesAreUnits) {
  std::string text = kFromParams;
  text.insert(text.rfind('}'), R"(, "fsdp_config": {"reshard_after_forward": false, "move_params_to_cpu": true})");
  Config wrapped = config(text);
  EXPECT_EQ(wrapped.strategy, "zero2");
  EXPECT_TRUE(wrapped.fsdp.options.move_params_to_cpu);
  EXPECT_THAT(units(run(wrapped)), ElementsAre("blocks.0", "blocks.1", "blocks.2", "regression_head"));
}

TEST_F(TangoRuns, WhatTheConstructorLacksIsNamed) {
  auto refused = [&](const std::string& model) { return error_of([&] { run(config(model)); }); };
  EXPECT_THAT(refused(R"({"type": "fairscale::with_wrapped_modules", "model": "simple_regression_model"})"),
              HasSubstr("fairscale::with_wrapped_modules needs model.modules_to_wrap"));
  EXPECT_THAT(refused(R"({"type": "fairscale::with_wrapped_modules", "model": "simple_regression_model",
                          "modules_to_wrap": ["blocks"], "activation_checkpointing": 1})"),
              HasSubstr("model.activation_checkpointing is 1, expected one of true, false"));
  EXPECT_THAT(refused(R"({"type": "fairscale::with_wrapped_modules", "model": "simple_regression_model",
                          "modules_to_wrap": 5})"),
              HasSubstr("model.modules_to_wrap is 5, expected a list of names"));
  EXPECT_THAT(refused(R"({"type": "fairscale::with_wrapped_modules", "model": "simple_regression_model",
                          "modules_to_wrap": ["blocks.*"], "fsdp_config": true})"),
              HasSubstr("model.fsdp_config is true, expected options, or null"));
  EXPECT_THAT(refused(R"({"type": "fairscale::with_wrapped_modules", "model": "simple_regression_model",
                          "modules_to_wrap": ["block"], "activation_checkpointing": true})"),
              HasSubstr("no module fits 'block'; there are blocks, blocks.0, blocks.0.linear"));
}

}  // namespace
}  // namespace shardgrad::seeds
