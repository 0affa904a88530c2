// Language models as the program trains them: GPT-2 and LLaMA by name on files of tokens, scores over every label that
// counts, wherever it is, and what does not go together refused before the first step.

#include <cmath>
#include <numbers>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/tasks/language.h>
#include <shardgrad/train/tasks/next_token.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int64_t kPlaces = 8;

class NextTokenRun : public TrainerTest {
 protected:
  NextTokenRun() {
    std::string ids;
    for (int i = 0; i < 1200; ++i) ids += {char((i * i / 7 + i) % 23), char(0)};
    folder_.write("text.bin", ids);
    config_.data = {"tokens", {{"train", nlohmann::json(folder_ / "text.bin").dump()}, {"length", "8"}}};
    config_.task = {"next_token"};
    config_.batch = 12;
    config_.epochs = 2;
    use_gpt2();
  }
  void use_gpt2() {
    config_.model = {"gpt2",
                     {{"vocab_size", "23"},
                      {"n_positions", "8"},
                      {"n_embd", "16"},
                      {"n_layer", "2"},
                      {"n_head", "2"},
                      {"dropout", "0.1"}}};
  }
  void use_llama() {
    config_.model = {"llama",
                     {{"vocab_size", "23"},
                      {"max_position_embeddings", "8"},
                      {"hidden_size", "16"},
                      {"intermediate_size", "24"},
                      {"num_hidden_layers", "2"},
                      {"num_attention_heads", "4"},
                      {"num_key_value_heads", "2"},
                      {"rope_scaling", "[4, 1, 2, 4]"},
                      {"vocab_multiple", "8"}}};
  }
  void set_model(const std::string& key, const std::string& value) { config_.model.options[key] = value; }
  std::string refusal() {
    return error_of([&] { train(2); });
  }
};

TEST_F(NextTokenRun, EveryStrategyTrainsItToTheSameScoresAndIsPredictedToTheByte) {
  for (bool gpt2 : {true, false}) {
    gpt2 ? use_gpt2() : use_llama();
    std::optional<double> loss;
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      config_.strategy = strategy;
      train::Result result = train(2);
      EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy;
      ASSERT_EQ(result.scores.size(), 2u);
      if (!loss) loss = result.scores[0].value;
      EXPECT_EQ(result.scores[0].value, *loss) << strategy;
      EXPECT_EQ(result.scores[1].name, "perplexity");
      EXPECT_EQ(result.scores[1].value, std::exp(*loss));
      data::Outline samples{std::vector(2, data::Field{{kPlaces}, DType::i64, 23})};
      EXPECT_EQ(train::plan(config_, samples, 2, kMeta), train::plan(config_, samples, 2, kCpu)) << strategy;
    }
    EXPECT_LT(*loss, std::log(23)) << "it has learned something";
    for (int ranks : {1, 3}) EXPECT_NEAR(train(ranks).scores[0].value, *loss, 1e-4) << ranks;
  }
}

TEST_F(NextTokenRun, LinesCountTokensAndOperations) {
  train::Result result = train(2);
  nlohmann::json line = metrics(result).back();
  EXPECT_NEAR(line["tokens_per_s"].get<double>(), kPlaces * line["samples_per_s"].get<double>(), 1);
  data::Outline samples{std::vector(2, data::Field{{kPlaces}, DType::i64, 23})};
  double a_sample = train::plan(config_, samples, 2, kMeta).flops / 6;
  EXPECT_NEAR(line["gflops_per_s"].get<double>(), 1e-9 * a_sample * line["samples_per_s"].get<double>(), 1e-6);
  auto end = nlohmann::json::parse(read_file(result.folder + "/about.json"))["end"];
  EXPECT_NEAR(end["tokens_per_s"].get<double>(), kPlaces * end["samples_per_s"].get<double>(), 1);
  for (const char* part : {" tokens/s", " GFLOP/s"}) EXPECT_THAT(out_.str(), HasSubstr(part));
}

TEST_F(NextTokenRun, LogitsOfAFewRowsAtATimeGiveTheSameRunInLessMemory) {
  set_model("vocab_size", "400");
  data::Outline samples{std::vector(2, data::Field{{kPlaces}, DType::i64, 23})};
  double whole = train(2).scores[0].value;
  int64_t peak = train::plan(config_, samples, 2, kMeta).peaks.at(Category::activation);
  config_.task.options["logit_rows"] = "5";
  EXPECT_NEAR(train(2).scores[0].value, whole, 1e-4);
  EXPECT_LT(train::plan(config_, samples, 2, kMeta).peaks.at(Category::activation), peak);
}

TEST_F(NextTokenRun, RecomputeOfBlocksGivesTheSameRun) {
  double whole = train(2).scores[0].value;
  config_.recompute = {"h.?"};
  EXPECT_EQ(train(2).scores[0].value, whole);
}

TEST_F(NextTokenRun, APlanCountsForwardTwiceWhereItIsComputedAgain) {
  data::Outline samples{std::vector(2, data::Field{{kPlaces}, DType::i64, 23})};
  const double rows = 6, tokens = rows * kPlaces, pairs = rows * kPlaces * (kPlaces + 1) / 2, width = 16;
  double block = 2 * 12 * width * width * tokens + 2 * 2 * width * pairs;
  double once = train::plan(config_, samples, 2, kMeta).flops;
  EXPECT_EQ(once, 6 * (2 * 12 * width * width + 23 * width) * tokens + 2 * 2 * 7 * width * pairs);
  config_.recompute = {"h.?"};
  EXPECT_EQ(train::plan(config_, samples, 2, kMeta).flops, once + 2 * block);
}

TEST_F(NextTokenRun, WhatDoesNotGoTogetherIsRefusedBeforeTheFirstStep) {
  set_model("vocab_size", "22");
  EXPECT_THAT(refusal(),
              EndsWith("the data has a vocabulary of 23 tokens, the model one of 22; set model.vocab_size to "
                       "23 or more"));
  set_model("vocab_size", "23");
  config_.data.options["length"] = "9";
  EXPECT_THAT(refusal(), EndsWith("the model does not take the data's inputs, i64 [2, 9] of two samples: the model has "
                                  "8 positions; rows of 9 tokens are too long for it"));
  config_.data.options["length"] = "8";
  set_model("n_head", "3");
  EXPECT_THAT(refusal(), HasSubstr("n_embd must be a multiple of n_head"));
  use_llama();
  set_model("rope_scaling", "[1, 2]");
  EXPECT_THAT(refusal(), EndsWith("model.rope_scaling has 2 numbers; give none, or 4"));
  use_gpt2();
  config_.task = {"classification"};
  EXPECT_THAT(refusal(), HasSubstr("task classification needs one label for each sample"));
  config_.task = {"next_token"};
  config_.model = {"mlp"};
  EXPECT_THAT(refusal(), HasSubstr("the model does not take the data's inputs, i64 [2, 8] of two samples"));
  use_gpt2();
  config_.data = {"fashion_mnist", {{"dir", nlohmann::json(folder_.path()).dump()}}};
  EXPECT_THAT(refusal(), HasSubstr("task next_token needs tokens, i64 [T]; the data has f32 [784]"));
}

// --- the task alone --------------------------------------------------------------------------------------------------

Tensor ids_of(const std::vector<int64_t>& values, int64_t rows) {
  return from_vector<int64_t>(values, {rows, int64_t(values.size()) / rows});
}

train::Model small_gpt2_model() {
  return nn::make<nn::Gpt2>(nn::Gpt2Options{.vocab_size = 9, .n_positions = 4, .n_embd = 8, .n_layer = 1, .n_head = 2});
}

TEST(NextToken, OfALanguageModelIsTheLossOfItsLogits) {
  Context context;
  train::Model model = small_gpt2_model();
  train::NextToken task(model);
  Tensor tokens = ids_of({1, 2, 3, 4, 5, 6}, 2), next = ids_of({2, 3, 8, 5, 6, 0}, 2);
  data::Batch batch{{tokens, next}, 0, 4, 0, 2};
  double by_hand = cross_entropy(reshape(model(tokens), {6, 9}), reshape(next, {6}), 12).item();
  EXPECT_NEAR(task.loss(batch).item(), by_hand, 1e-6);
}

// Labels that do not count are in no sum and no count, on however many ranks, one of which has no other.
TEST(NextToken, LabelsThatDoNotCountChangeNeitherLossNorScores) {
  constexpr int64_t no = data::kIgnored;
  Tensor tokens, next;
  std::vector<std::vector<double>> results;
  for (int ranks : {1, 2, 3}) {
    std::vector<double> loss(static_cast<size_t>(ranks));
    std::vector<train::Score> scores;
    dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
      auto samples = std::make_shared<data::TensorDataset>(std::vector<Tensor>{
          ids_of({1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 5, 7}, 3), ids_of({no, no, no, no, 6, 7, no, 1, 3, 5, 7, 8}, 3)});
      train::NextToken task(small_gpt2_model());
      data::DataLoader loader(samples,
                              {.batch = 3, .shuffle = false, .rank = world.rank(), .world_size = world.size()});
      Tensor part = task.loss(loader.get(0, 0)).detach();
      world.all_reduce(part).host_wait();
      loss[size_t(world.rank())] = part.item();
      train::Evaluation evaluation = train::evaluate(task, loader, world, {});
      if (world.rank() == 0) scores = evaluation.scores;
    });
    EXPECT_NEAR(scores[0].value, loss[0], 1e-6) << ranks;
    results.push_back({loss[0], scores[0].value, scores[1].value});
  }
  for (const auto& result : results)
    for (size_t i = 0; i < result.size(); ++i) EXPECT_NEAR(result[i], results[0][i], 1e-5);
  Context context;
  train::Model model = small_gpt2_model();
  Tensor logits = model(ids_of({5, 6, 7, 8, 1, 3, 5, 7}, 2));
  double by_hand = cross_entropy(reshape(logits, {8, 9}), ids_of({6, 7, no, 1, 3, 5, 7, 8}, 8).view({8}), 7).item();
  EXPECT_NEAR(results[0][0], by_hand, 1e-6);
}

/// The loss that so many ranks find of the same 13 windows, some of whose labels do not count.
double validation_loss(int ranks, DType dtype, int64_t grains = 0) {
  double loss = 0;
  auto body = [&](dist::ProcessGroup& world) {
    std::vector<int64_t> ids, next;
    for (int64_t i = 0; i < 13 * 4; ++i) {
      ids.push_back(i * i % 9);
      next.push_back(i % 5 == 3 ? data::kIgnored : (i + 1) * (i + 1) % 9);
    }
    auto windows = std::make_shared<data::TensorDataset>(std::vector<Tensor>{ids_of(ids, 13), ids_of(next, 13)});
    train::NextToken task(small_gpt2_model());
    task.module().to(dtype);
    data::DataLoader::Options options{.batch = 5, .shuffle = false, .rank = world.rank(), .world_size = world.size()};
    options.grains = grains;
    data::DataLoader loader(windows, options);
    train::Evaluation evaluation = train::evaluate(task, loader, world, {});
    EXPECT_EQ(evaluation.count, 13);
    if (world.rank() == 0) loss = evaluation.scores[0].value;
  };
  dist::run_ranks(ranks, body, {.seed = 3, .threads = 1});
  return loss;
}

// Sums are over all labels and divided once. What a rank makes of its part of a batch is one number of the model's
// dtype, f32 of 16 bits; grains are the same parts on any ranks.
TEST(NextToken, AValidationLossIsThatOfAllWindowsOnAnyNumberOfRanks) {
  double exact = validation_loss(1, DType::f64), single = validation_loss(1, DType::f32);
  EXPECT_NEAR(single, exact, 1e-6);
  for (int ranks : {2, 3}) {
    EXPECT_NEAR(validation_loss(ranks, DType::f64), exact, 1e-12) << ranks;
    EXPECT_NEAR(validation_loss(ranks, DType::f32), single, 2e-7) << ranks;
  }
  for (DType dtype : {DType::f32, DType::bf16})
    for (int ranks : {2, 4})
      EXPECT_EQ(validation_loss(ranks, dtype, 4), validation_loss(1, dtype, 4)) << ranks << dtype;
}

TEST(NextToken, BitsPerByteAreOfTheBytesThatTheDataKnows) {
  Context context;
  train::NextToken task(small_gpt2_model());
  EXPECT_EQ(task.scores({}).size(), 2u);
  std::vector<data::Field> fields{{{2}, DType::i64, 9}, {{2}, DType::i64, 9, 3.25}};
  task.prepare(fields);
  train::Sums sums;
  sums.add("loss", 26), sums.add("count", 4);
  train::Score score = task.scores(sums).at(2);
  EXPECT_EQ(score.name, "bits_per_byte");
  EXPECT_NEAR(score.value, 2 / std::numbers::ln2, 1e-12);
  EXPECT_FALSE(score.higher_is_better);
}

TEST(NextToken, ByDefaultVectorsDoNotDecay) {
  Context context;
  Config config;
  config.optimizer = {.name = "adamw", .lr = 0.5, .weight_decay = 0.5};
  config.task = {"next_token"};
  config.model = {"gpt2", {{"vocab_size", "9"}, {"n_embd", "8"}, {"n_layer", "1"}, {"n_head", "2"}}};
  auto task = train::make_task(config);
  task->module().materialize();
  std::map<std::string, std::vector<float>> before;
  for (const NamedParameter& each : task->module().named_parameters()) {
    before[each.name] = each.tensor.to_vector<float>();
    each.tensor.set_grad(zeros(each.tensor.shape()));
  }
  train::make_optimizers(config, *task).optimizer->step();
  for (const NamedParameter& each : task->module().named_parameters()) {
    std::vector<float> after = each.tensor.to_vector<float>();
    float factor = each.tensor.ndim() == 1 ? 1 : 0.75F;
    for (size_t i = 0; i < after.size(); ++i) ASSERT_FLOAT_EQ(after[i], factor * before[each.name][i]) << each.name;
  }
}

}  // namespace
}  // namespace shardgrad
