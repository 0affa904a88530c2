// `grains`: a run has the same bits on 1, 2, 4, … ranks, and goes on with them on another number.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/dropout.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/evaluate_run.h>
#include <shardgrad/train/fit.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/plan.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::StepOutput;

class Grains : public TrainerTest {
 protected:
  Grains() {
    config_.grains = 8;
    config_.clip_grad_norm = 0.5;
    config_.log_interval = 1;
    config_.epochs = 2;
  }
  // The lines of a run less its times.
  std::vector<nlohmann::json> lines_of(const train::Result& run) {
    auto lines = metrics(run);
    for (nlohmann::json& line : lines)
      for (const char* time : {"seconds", "samples_per_s", "gflops_per_s", "tokens_per_s", "peak_bytes"})
        line.erase(time);
    return lines;
  }
  void expect_same(const train::Result& run, const train::Result& expected, const std::string& what) {
    EXPECT_EQ(lines_of(run), lines_of(expected)) << what;
    for (const char* file : {"/step-20/model.safetensors", "/step-20/optimizer.safetensors"})
      EXPECT_TRUE(read_file(run.folder + file) == read_file(expected.folder + file)) << what << file;
    EXPECT_EQ(run.step_bytes, run.predicted_step_bytes) << what;
  }
};

TEST_F(Grains, AnyNumberOfRanksTrainsTheSameRunToTheBit) {
  for (bool by_step : {true, false}) {
    config_.log_steps = by_step;
    config_.log_interval = by_step ? 5 : 3;  // the losses of several steps are added before ranks talk
    config_.name = "expected";
    train::Result expected = train(1);
    for (int ranks : {2, 4, 8})
      for (const char* strategy : {"zero3", "ddp", "zero1", "hybrid"}) {
        if (by_step && ranks + strategy[0] != 4 + 'z') continue;  // the losses of each step are another way
        config_.strategy = strategy;
        config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
        config_.name = concat(strategy, ranks);
        expect_same(train(ranks), expected, config_.name);
      }
    config_.strategy = "zero3";
    config_.fsdp.options.shard_ranks = 0;
  }
}

// Without grains they are not: else the test above would say nothing.
TEST_F(Grains, WithoutThemBitsDifferByTheRanks) {
  config_.grains = 0;
  config_.name = "one";
  train::Result one = train(1);
  config_.name = "four";
  train::Result four = train(4);
  EXPECT_FALSE(read_file(one.folder + "/step-20/model.safetensors") ==
               read_file(four.folder + "/step-20/model.safetensors"));
  EXPECT_NE(lines_of(one), lines_of(four));
}

TEST_F(Grains, ARunGoesOnWithOtherRanksAsIfNothingHadHappened) {
  config_.name = "whole";
  train::Result whole = train(2);
  config_.name = "parts";
  config_.resume = true;
  for (int ranks : {1, 4, 8, 2}) {
    config_.strategy = ranks == 4 ? "ddp" : "zero3";
    EXPECT_TRUE(train(ranks, true).stopped) << ranks;  // after its first step
  }
  EXPECT_THAT(out_.str(), HasSubstr("goes on after step 3 of 20"));
  config_.strategy = "zero2";
  expect_same(train(4), whole, "in five parts");
}

TEST_F(Grains, ThePlanKnowsThem) {
  config_.strategy = "zero2";
  for (int ranks : {1, 2, 8}) {
    train::Result run = train(ranks);
    auto [planned, measured] = peaks(run);
    EXPECT_EQ(planned, measured) << ranks;
    EXPECT_EQ(run.step_bytes, run.predicted_step_bytes) << ranks;
  }
}

// Then to rounding.
TEST_F(Grains, ARunIsEvaluatedOnAnyNumberOfRanks) {
  train::Result run = train(2);
  auto score = [&](int ranks) {
    double accuracy = 0;
    dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
      std::ostringstream out;
      auto evaluation = train::evaluate_run(config_, run.folder, world, out);
      if (world.rank() == 0) accuracy = evaluation.scores[0].value;
    });
    return accuracy;
  };
  for (int ranks : {1, 3, 4}) EXPECT_EQ(score(ranks), run.scores[0].value) << ranks;
}

TEST_F(Grains, ARunSaysWhereItsBitsAreTheSame) {
  train(1);
  EXPECT_THAT(out_.str(),
              HasSubstr("\ngrains: the same bits on 1, 2, 4, 8 ranks of 1 thread each (OMP_NUM_THREADS), or of "
                        "any number with SHARDGRAD_GEMM=own\n"));
  config_.grains = 3;
  EXPECT_THAT(train::grains_note(config_, 2), HasSubstr("same bits on 1 rank of 2 threads each"));
  config_.grains = 0;
  EXPECT_EQ(train::grains_note(config_, 2), "");
}

TEST_F(Grains, WhatWouldNotHaveTheSameBitsIsRefused) {
  EXPECT_THAT(error_of([&] { train(3); }), HasSubstr("grains: 3 ranks do not add up grains in one tree"));
  config_.grains = 12;
  EXPECT_THAT(error_of([&] { train(8); }),
              HasSubstr("grains is 12, which 8 ranks cannot share; set it to 8 or 16, or another multiple"));
  config_.grains = 1;
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("grains is 1, which 2 ranks cannot share; set it to 2, or another multiple"));
  EXPECT_FALSE(std::filesystem::exists(config_.runs)) << "before a folder is made";
  auto offers = train::offers(config_, {{{{784}, DType::f32}, {{}, DType::i64}}, 301, 101}, {2});
  EXPECT_THAT(offers[0].why_not, HasSubstr("cannot share"));
}

// --- a module of one's own -------------------------------------------------------------------------------------------

// What is drawn at random belongs to a sample's place in the batch, whoever holds it.
struct Drops : train::FitModule {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 4, 16);
  nn::Child<nn::Dropout> drop = child<nn::Dropout>("drop", 0.3);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 16, 1);
  Tensor forward(const Tensor& x) { return out(drop(tanh(in(x)))); }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    return mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  StepOutput validation_step(const data::Batch& batch, int64_t) override {
    return mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  Tensor predict_step(const data::Batch& batch, int64_t) override { return forward(batch.fields[0]); }
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{.lr = 0.02})};
  }
};
struct Normalised : Drops {
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 4);
};
struct Frozen : Normalised {
  Frozen() { norm->eval(); }
};

class GrainsOfAModule : public ::testing::Test {
 protected:
  template <class Module> std::pair<std::string, std::vector<float>> fit(int devices) {
    train::TrainerOptions options{
        .devices = devices, .max_epochs = 2, .default_root_dir = folder_ / std::to_string(devices)};
    options.out = &out_;
    options.config.batch = 20;
    options.config.grains = 4;
    train::Trainer trainer(options);
    train::Result run = trainer.fit([] { return nn::make<Module>(); },
                                    [] {
                                      return data::Splits{rows_of_numbers(75), rows_of_numbers(61)};
                                    });
    auto rows = trainer.predict([] { return nn::make<Module>(); },
                                [] {
                                  return data::Splits{rows_of_numbers(75), rows_of_numbers(61)}.test;
                                });
    return {read_file(run.folder + "/model.safetensors"), rows.values};
  }
  TemporaryFolder folder_;
  std::ostringstream out_;
};

TEST_F(GrainsOfAModule, DrawTheSameNumbersOnAnyNumberOfRanks) {
  auto expected = fit<Drops>(1);
  for (int devices : {2, 4}) EXPECT_TRUE(fit<Drops>(devices) == expected) << devices;
}

TEST_F(GrainsOfAModule, BatchNormIsRefusedUnlessItIsFrozen) {
  EXPECT_THAT(error_of([&] { fit<Normalised>(2); }), HasSubstr("grains: module 'norm' is a BatchNorm1d"));
  EXPECT_EQ(error_of([&] { fit<Frozen>(2); }), "no error");
}

// --- what a rank is given --------------------------------------------------------------------------------------------

TEST(GrainsOfABatch, OfARankAreSpreadOverIt) {
  auto places = [](int64_t count, int rank) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (data::Part part : data::grains_of(count, 4, rank, 2)) all.emplace_back(part.begin, part.end);
    return all;
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_THAT(places(16, 0), ElementsAre(Pair(0, 4), Pair(8, 12)));
  EXPECT_THAT(places(16, 1), ElementsAre(Pair(4, 8), Pair(12, 16)));
  EXPECT_THAT(places(3, 0), ElementsAre(Pair(0, 1), Pair(2, 3)));
  EXPECT_THAT(places(3, 1), ElementsAre(Pair(1, 2), Pair(3, 3))) << "of no sample";
}

TEST(GrainsOfABatch, AreTheSameSamplesOnAnyNumberOfRanks) {
  Context context;
  auto grains = [](int ranks) {
    std::map<std::pair<int64_t, int64_t>, std::vector<float>> all;  // by step and place
    for (int rank = 0; rank < ranks; ++rank) {
      data::DataLoader loader(rows_of_numbers(75),
                              {.batch = 20, .seed = 3, .rank = rank, .world_size = ranks, .grains = 8});
      for (const data::Batch& batch : loader.epoch(1)) {
        int64_t rows = 0;
        for (int64_t i = 0; i < 8 / ranks; ++i) {
          data::Batch grain = batch.micro_batch(i, 8 / ranks);
          EXPECT_EQ(grain.count, grain.fields[0].size(0));
          EXPECT_EQ(grain.global_count, batch.global_count);
          if (grain.count > 0) all[{batch.step, grain.first}] = grain.fields[0].to_vector<float>();
          rows += grain.count;
        }
        EXPECT_EQ(rows, batch.count);
      }
    }
    return all;
  };
  auto expected = grains(1);
  EXPECT_EQ(expected.size(), 4 * 8);
  for (int ranks : {2, 4, 8}) EXPECT_EQ(grains(ranks), expected) << ranks;
  EXPECT_THAT(error_of([&] { data::DataLoader(rows_of_numbers(8), {.batch = 8, .world_size = 3, .grains = 4}); }),
              HasSubstr("3 ranks cannot share 4 grains"));
}

}  // namespace
}  // namespace shardgrad
