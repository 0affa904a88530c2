// Before it trains, a run evaluates two batches of its test samples, so that an evaluation that fails costs no epoch.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/nn/dropout.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/fit.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using train::StepOutput;
namespace fs = std::filesystem;

// What an evaluation could disturb: statistics, random numbers, a module that is to stay in evaluation mode, and
// numbers of its own.
struct Delicate : train::FitModule {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 4, 16);
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 16), frozen = child<nn::BatchNorm1d>("frozen", 16);
  nn::Child<nn::Dropout> drop = child<nn::Dropout>("drop", 0.3);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 16, 1);
  Delicate() { frozen->eval(); }
  Tensor forward(const Tensor& x) { return out(drop(frozen(norm(tanh(in(x)))))); }
  StepOutput training_step(const data::Batch& batch, int64_t) override {
    Tensor noise = rand(batch.fields[0].shape(), "noise");
    return mse_loss(forward(add(batch.fields[0], noise)), batch.fields[1], double(batch.global_count));
  }
  train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
    return {std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{.lr = 0.02})};
  }
};

class SanityStep : public ::testing::Test {
 protected:
  train::TrainerOptions options(int devices = 2) {
    train::TrainerOptions options{.devices = devices, .max_epochs = 2, .default_root_dir = folder_ / "runs"};
    options.out = &out_;
    options.config.batch = 16;
    options.config.log_steps = true;
    options.config.trace_steps = {0, 0};  // whose text has a length by chance, and memory
    options.config.tensorboard = true;
    return options;
  }
  template <class Module = Delicate> train::Result fit(const train::TrainerOptions& options) {
    train::Trainer trainer(options);
    return trainer.fit([] { return nn::make<Module>(); },
                       [] {
                         return data::Splits{rows_of_numbers(75), rows_of_numbers(61)};
                       });
  }
  // All that a run says of its steps, without times.
  static nlohmann::json lines_of(const train::Result& run) {
    nlohmann::json lines;
    std::istringstream text(read_file(run.folder + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line));
      for (const char* time : {"seconds", "samples_per_s", "gflops_per_s"}) lines.back().erase(time);
    }
    return lines;
  }
  static nlohmann::json without_peaks(const train::Result& run) {  // in which there are saves
    nlohmann::json lines = lines_of(run);
    for (nlohmann::json& line : lines) line.erase("peak_bytes");
    return lines;
  }
  // Which collectives ran in the traced steps.
  static std::vector<std::string> sent_by(const train::Result& run) {
    std::vector<std::string> sent;
    const auto trace = nlohmann::json::parse(read_file(run.folder + "/trace.json"));
    for (const auto& event : trace["traceEvents"])
      if (event.contains("args") && event["args"].contains("bytes_sent"))
        sent.push_back(concat(event["pid"], event["name"], event["args"]["bytes_sent"]));
    std::ranges::sort(sent);
    return sent;
  }
  void expect_same(const train::Result& with, const train::Result& without) {
    for (const char* file : {"/model.safetensors", "/ledger.json"})
      EXPECT_TRUE(read_file(with.folder + file) == read_file(without.folder + file)) << file;
    EXPECT_EQ(lines_of(with), lines_of(without));
    EXPECT_EQ(with.step_bytes, without.step_bytes);
    EXPECT_EQ(with.step_bytes, with.predicted_step_bytes);
  }

  TemporaryFolder folder_;
  std::ostringstream out_;
};

TEST_F(SanityStep, NoBitOfTheRunKnowsOfIt) {
  for (int ranks : {1, 2, 3})
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      SCOPED_TRACE(concat(strategy, " on ", ranks));
      train::TrainerOptions chosen = options(ranks);
      chosen.strategy = strategy;
      train::Result with = fit(chosen);
      chosen.num_sanity_val_steps = 0;
      expect_same(with, fit(chosen));
      if (HasFailure()) return;
    }
}

// A run of one step has sent what its first step sent: an evaluation before it has gathered nothing for it.
TEST_F(SanityStep, TheFirstStepGathersWhatItGathersWithoutIt) {
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    train::TrainerOptions chosen = options();
    chosen.strategy = strategy;
    chosen.max_epochs = {};
    chosen.max_steps = 1;
    chosen.config.trace_steps = {1, 1};
    train::Result with = fit(chosen);
    chosen.num_sanity_val_steps = 0;
    train::Result without = fit(chosen);
    EXPECT_FALSE(with.step_bytes || without.step_bytes) << strategy << ": of the first step alone no plan knows";
    EXPECT_EQ(sent_by(with), sent_by(without)) << strategy;
  }
}

// Whoever changed the program between the two may have broken its validation_step.
TEST_F(SanityStep, ARunThatGoesOnIsTriedAsWellAndStaysTheSame) {
  for (int ranks : {1, 2, 3}) {
    train::TrainerOptions chosen = options(ranks);
    chosen.config.name = concat("in one on ", ranks);
    train::Result whole = fit(chosen);
    chosen.config.resume = true;
    chosen.config.name = concat("in two on ", ranks);
    chosen.max_epochs = 1;
    fit(chosen);
    chosen.max_epochs = 2;
    train::Result second = fit(chosen);
    auto values = [](const train::Result& run) {
      return train::verify_checkpoint(run.folder + "/step-10").manifest.hash();
    };
    EXPECT_EQ(values(second), values(whole)) << ranks;
    EXPECT_EQ(without_peaks(second), without_peaks(whole)) << ranks;
  }
}

// A training_step calls the layers and not the module: the first of them gives values to the whole of it.
TEST_F(SanityStep, AModuleMayHaveStatisticsThatNothingUses) {
  struct Spare : Delicate {
    nn::Child<nn::BatchNorm1d> spare = child<nn::BatchNorm1d>("spare", 16);
  };
  train::Result run = fit<Spare>(options(2));
  EXPECT_EQ(run.step_bytes, run.predicted_step_bytes);
}

// Ranks normalise by samples of their own, and have one model all the same.
TEST_F(SanityStep, WhenItIsSavedChangesNothingAndScoresAreThoseOfWhatIsSaved) {
  for (int ranks : {2, 3}) {
    train::TrainerOptions chosen = options(ranks);
    chosen.config.name = concat("at the end on ", ranks);
    train::Result at_end = fit(chosen);
    chosen.config.save_every = 3;
    chosen.config.name = concat("often on ", ranks);
    train::Result often = fit(chosen);
    EXPECT_TRUE(read_file(often.folder + "/model.safetensors") == read_file(at_end.folder + "/model.safetensors"));
    EXPECT_EQ(without_peaks(often), without_peaks(at_end));
    chosen.config.resume = true;
    train::Result again = fit(chosen);
    EXPECT_EQ(again.scores[0].value, often.scores[0].value) << "of the weights that were loaded";
    EXPECT_EQ(often.step_bytes, often.predicted_step_bytes);
    auto about = nlohmann::json::parse(read_file(often.folder + "/about.json"));
    auto ledger = nlohmann::json::parse(read_file(often.folder + "/ledger.json"));
    EXPECT_GT(about["plan"]["peaks"]["buffer"], 0);
    EXPECT_EQ(about["plan"]["peaks"].count("other"), 0);
    for (const char* owner : {"buffer", "activation", "optimizer_state"})
      EXPECT_EQ(ledger["categories"][owner]["peak"], about["plan"]["peaks"][owner]) << owner;
  }
}

struct Broken : Delicate {
  StepOutput validation_step(const data::Batch& batch, int64_t) override {
    return {{{"loss", forward(batch.fields[0])}}};  // no number, but one for each row
  }
};

TEST_F(SanityStep, AnEvaluationThatFailsIsRefusedBeforeTheFirstStep) {
  for (int ranks : {1, 3}) {
    std::string message = error_of([&] { fit<Broken>(options(ranks)); });
    EXPECT_THAT(message, HasSubstr("validation_step gives 'loss' of shape"));
    EXPECT_THAT(message, HasSubstr("(found before training begins"));
    EXPECT_THAT(message, HasSubstr("sanity_steps=0"));
    EXPECT_FALSE(fs::exists(folder_ / "runs/run")) << "it has not begun";
  }
}

TEST_F(SanityStep, ARunThatCannotGoOnLosesNothing) {
  train::TrainerOptions chosen = options();
  chosen.config.resume = true;
  chosen.config.save_every = 3;
  chosen.max_epochs = 1;
  train::Result before = fit(chosen);
  std::string lines = read_file(before.folder + "/metrics.jsonl"), config = read_file(before.folder + "/config.json");
  chosen.max_epochs = 3;
  EXPECT_THAT(error_of([&] { fit<Broken>(chosen); }), HasSubstr("validation_step gives 'loss' of shape"));
  EXPECT_EQ(read_file(before.folder + "/metrics.jsonl"), lines);
  EXPECT_EQ(read_file(before.folder + "/config.json"), config);
  EXPECT_EQ(fit(chosen).steps, 15);
}

struct LateBroken : Delicate {
  StepOutput validation_step(const data::Batch& batch, int64_t i) override {
    return i == 2 ? StepOutput({{"loss", forward(batch.fields[0])}}) : training_step(batch, i);
  }
};

// Two batches, or as many as are asked for; all of them where there are fewer.
TEST_F(SanityStep, ItTriesAsManyBatchesAsAreAskedFor) {
  train::TrainerOptions chosen = options();
  EXPECT_THAT(error_of([&] { fit<LateBroken>(chosen); }), Not(HasSubstr("before training begins")));
  chosen.num_sanity_val_steps = 3;
  EXPECT_THAT(error_of([&] { fit<LateBroken>(chosen); }), HasSubstr("before training begins"));
  chosen.num_sanity_val_steps = 1000;
  EXPECT_EQ(fit(chosen).steps, 10);
  chosen.num_sanity_val_steps = -1;
  EXPECT_THAT(error_of([&] { fit(chosen); }), HasSubstr("num_sanity_val_steps is -1, expected an integer from 0"));
}

struct Counting : Delicate {
  StepOutput validation_step(const data::Batch& batch, int64_t i) override {
    if (control) {  // the plan looks at it before there is one
      ++batches;
      control->request_stop();
    }
    return training_step(batch, i);
  }
  static inline dist::Control* control = nullptr;
  static inline int batches = 0;
};

TEST_F(SanityStep, ARequestToEndCutsItShort) {
  train::TrainerOptions chosen = options(1);
  chosen.num_sanity_val_steps = 1000;
  chosen.callbacks = {[](const Config&, dist::ProcessGroup& world) {
    Counting::control = &world.control();
    return std::make_unique<train::Callback>();
  }};
  train::Result result = fit<Counting>(chosen);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 1);
  EXPECT_EQ(Counting::batches, 1);
}

}  // namespace
}  // namespace shardgrad
