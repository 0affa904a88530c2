// The optimizers that a configuration names: Lion, and Muon with AdamW beside it.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/step.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OptimizersOfRuns : public TrainerTest {
 protected:
  void use(const std::string& name) {
    config_.optimizer.name = name;
    config_.optimizer.lr = name == "lion" ? 0.003 : 0.01;
    config_.optimizer.weight_decay = 0.1;
    config_.clip_grad_norm = 0.5;
  }
  void use(const std::string& name, const char* strategy) {
    use(name);
    config_.strategy = strategy;
    config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
  }
};

TEST_F(OptimizersOfRuns, TrainTheSameRunOnAnyNumberOfRanks) {
  for (const char* name : {"lion", "muon"}) {
    use(name);
    train::Result alone = train(1);
    EXPECT_GT(alone.scores[0].value, 0.95) << name;
    auto expected = metrics(alone);
    for (int ranks : {2, 3, 4}) {
      auto lines = metrics(train(ranks));
      ASSERT_EQ(lines.size(), expected.size());
      for (size_t i = 0; i < lines.size(); ++i)
        EXPECT_NEAR(lines[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-3) << name << ranks;
    }
  }
}

TEST_F(OptimizersOfRuns, HaveTheSameBitsUnderEveryStrategyAndOfGrainsOnAnyNumberOfRanks) {
  config_.epochs = 1;
  config_.grains = 4;
  for (const char* name : {"lion", "muon"}) {
    use(name, "zero3");
    auto hash = [&](int ranks) {
      return nlohmann::json::parse(read_file(train(ranks).folder + "/step-10/run.json"))["hash"].get<std::string>();
    };
    std::string expected = hash(1);
    for (const char* strategy : {"zero3", "zero2", "zero1", "ddp", "hybrid"})
      for (int ranks : {2, 4}) {
        use(name, strategy);
        EXPECT_EQ(hash(ranks), expected) << name << " " << strategy << " on " << ranks;
      }
  }
}

TEST_F(OptimizersOfRuns, NeedAndSendWhatThePlanSays) {
  config_.epochs = 2;
  for (const char* name : {"lion", "muon"})
    for (const char* strategy : {"zero3", "ddp", "hybrid"}) {
      use(name, strategy);
      train::Result result = train(4);
      EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << name << strategy;
      auto [planned, measured] = peaks(result);
      EXPECT_EQ(planned, measured) << name << strategy;
    }
}

TEST_F(OptimizersOfRuns, GoOnAfterAStopWithTheSameBits) {
  config_.schedule = {.name = "cosine", .warmup_steps = 3};
  for (const char* name : {"lion", "muon"})
    for (const char* strategy : {"zero3", "hybrid"}) {
      use(name, strategy);
      config_.resume = false;
      config_.name = concat("whole ", name, strategy);
      train::Result whole = train(4);
      config_.name = concat("parts ", name, strategy);
      config_.resume = true;
      EXPECT_TRUE(train(4, true).stopped);
      train::Result second = train(4);
      for (const char* file : {"/step-30/model.safetensors", "/step-30/optimizer.safetensors"})
        EXPECT_EQ(read_file(second.folder + file), read_file(whole.folder + file)) << name << strategy << file;
    }
}

TEST_F(OptimizersOfRuns, HaveOneLearningRate) {
  use("muon");
  config_.schedule = {.name = "cosine", .final = 0.25};
  train::Result result = train(1);
  double last = metrics(result).back()["lr"];
  EXPECT_LT(last, 0.01);
  Context context;
  train::SafetensorsFile file(result.folder + "/step-30/optimizer.safetensors", train::SafetensorsFile::Access::read);
  Tensor rates = empty({4 * 3}, {DType::f64, kCpu});
  file.read("lr", 0, rates);
  for (int64_t parameter = 0; parameter < 4; ++parameter) EXPECT_EQ(rates.data<double>()[3 * parameter + 1], last);
}

TEST_F(OptimizersOfRuns, LearnWithTheLossScaled) {
  use("muon");
  config_.autocast = "f16";
  train::Result result = train(2);
  EXPECT_GT(result.scores[0].value, 0.95);
  auto about = nlohmann::json::parse(read_file(result.folder + "/step-30/run.json"));
  EXPECT_GT(about["good_steps"].get<int>(), 0);
}

class NarrowTask : public train::Task {
 public:
  NarrowTask() { model_->to(DType::bf16); }
  nn::Module& module() override { return *model_; }
  Tensor loss(const data::Batch& batch) override { return sum(model_(batch.fields[0])); }

 private:
  nn::Child<nn::Linear> model_ = nn::make<nn::Linear>(4, 2);
};

TEST_F(OptimizersOfRuns, TakeAModelInBf16WhereTheyRoundByChance) {
  Context context;
  NarrowTask task;
  for (const char* name : {"sgd", "adam", "adamw"}) {
    use(name);
    config_.optimizer.stochastic_rounding = false;
    EXPECT_THROW(train::make_optimizers(config_, task), Error) << name;
    config_.optimizer.stochastic_rounding = true;
    EXPECT_EQ(train::make_optimizers(config_, task).all().size(), 1u) << name;
  }
}

// The gradient of b alone overflows, which AdamW has.
struct Overflowing : nn::Module {
  Tensor w = param("w", {2, 2}, nn::init::ones()), b = param("b", {2}, nn::init::zeros());
  Tensor forward(const Tensor& x) { return sum(matmul(x, w)) + sum(b * 1e36); }
};
class OverflowingTask : public train::Task {
 public:
  nn::Module& module() override { return *model_; }
  Tensor loss(const data::Batch& batch) override { return model_(batch.fields[0]); }

 private:
  nn::Child<Overflowing> model_ = nn::make<Overflowing>();
};

TEST_F(OptimizersOfRuns, LeaveOutAStepTogether) {
  config_.optimizer.name = "muon";
  config_.autocast = "f16";
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    OverflowingTask task;
    auto sharded = fsdp::fully_shard(task.module(), world);
    train::Optimizers optimizers = train::make_optimizers(config_, task);
    auto scaler = train::make_scaler(config_, world);
    scaler.load_state({1024, 0});
    data::Batch batch{.fields = {ones({1, 2})}, .global_count = 2, .count = 1};
    EXPECT_TRUE(train::train_step({config_, task, *sharded, optimizers.all(), scaler}, batch, false).skipped);
    EXPECT_EQ(fsdp::full_state_dict(*sharded, false).at("w").to_vector<float>(), std::vector<float>(4, 1));
    EXPECT_EQ(scaler.factor(), 512);
  });
}

class OptimizersOfAModel : public ::testing::Test {
 protected:
  OptimizersOfAModel() {
    config_.optimizer = {.name = "muon", .lr = 0.5, .weight_decay = 0.5};
    config_.task = {"next_token"};
    config_.model = {"gpt2", {{"vocab_size", "9"}, {"n_embd", "8"}, {"n_layer", "1"}, {"n_head", "2"}}};
  }
  train::Optimizers make() {
    task_ = train::make_task(config_);
    return train::make_optimizers(config_, *task_);
  }
  static std::vector<std::string> names(const optim::Optimizer& optimizer) {
    std::vector<std::string> names;
    for (const NamedParameter& each : optimizer.parameters()) names.push_back(each.name);
    return names;
  }
  Context context_;
  Config config_;
  std::unique_ptr<train::Task> task_;
};

TEST_F(OptimizersOfAModel, MuonHasTheMatricesInsideOfIt) {
  train::Optimizers made = make();
  EXPECT_THAT(names(*made.optimizer), ElementsAre("h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight",
                                                  "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"));
  EXPECT_EQ(names(*made.beside).size() + 4, task_->module().named_parameters().size());
  EXPECT_EQ(names(*made.beside)[0], "wte.weight") << "whose matrix the head shares";
  EXPECT_EQ(made.optimizer->weight_decay_of(0), 0.5);
  EXPECT_EQ(made.beside->weight_decay_of(2), 0) << "a gain of a norm";
}

TEST_F(OptimizersOfAModel, MatricesMayBeLeftToAdamw) {
  config_.optimizer.adamw = {"*.mlp.*.weight"};
  train::Optimizers made = make();
  EXPECT_THAT(names(*made.optimizer),
              ElementsAre("wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight"));
  config_.optimizer.no_decay = {"*.mlp.*.weight"};  // a name of one of the two
  EXPECT_EQ(make().optimizer->weight_decay_of(0), 0.5);
}

TEST_F(OptimizersOfAModel, NamesThatChooseNothingAreRefused) {
  config_.optimizer.adamw = {"head.*"};
  EXPECT_EQ(error_of([&] { make(); }),
            "optimizer.adamw: 'head.*' is no parameter of the model; the first one is 'wte.weight'");
  config_.optimizer.adamw = {"*"};
  EXPECT_THAT(error_of([&] { make(); }), HasSubstr("no matrix to train that optimizer.adamw leaves to it"));
  config_.optimizer.adamw = {};
  config_.optimizer.no_decay = {"head.*"};
  EXPECT_THAT(error_of([&] { make(); }), HasSubstr("the rule 'head.*' applies to no parameter"));
}

}  // namespace
}  // namespace shardgrad
