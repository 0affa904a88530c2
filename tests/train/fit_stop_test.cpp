// Fits that are asked to end, by a callback or by a signal, and go on.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include <shardgrad/train/checkpoint/manifest.h>
#include <shardgrad/train/trace.h>

#include "fit_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;

struct StopAtStep : train::Callback {
  StopAtStep(int64_t step, dist::Control& control) : step(step), control(control) {}
  void on_step(const train::Stepped& e) override {
    if (e.step == step) control.request_stop();
  }
  int64_t step;
  dist::Control& control;
};

TEST_F(Fit, ARunThatWasStoppedGoesOnWithTheSameBits) {
  std::string expected = weights(fit<Scheduled>(options()));
  train::TrainerOptions parts = options();
  parts.config.name = "parts";
  parts.config.resume = true;
  parts.callbacks = {
      [](const Config&, dist::ProcessGroup& world) { return std::make_unique<StopAtStep>(10, world.control()); }};
  EXPECT_TRUE(fit<Scheduled>(parts).stopped);
  parts.callbacks.clear();
  out_.str("");
  EXPECT_TRUE(weights(fit<Scheduled>(parts)) == expected);
  EXPECT_THAT(out_.str(), HasSubstr("\ngoes on after step 1"));
}

// The second epoch begins after step 7.
TEST_F(Fit, ARunThatGoesOnAmongItsTracedStepsKeepsTheTraceOfMoreSteps) {
  auto traced = [&](std::vector<int64_t> steps) {
    train::TrainerOptions parts = options();
    parts.config.name = concat("from", steps[0], "to", steps[1]);
    parts.config.resume = true;
    parts.config.trace_steps = std::move(steps);
    parts.max_epochs = 1;
    EXPECT_EQ(fit(parts).steps, 7);
    parts.max_epochs = 2;
    std::vector<train::RankTrace> ranks = train::read_trace(fit(parts).folder + "/trace.json");
    std::vector<int64_t> numbers;
    for (const auto& step : ranks[0].steps) numbers.push_back(step.number);
    return numbers;
  };
  EXPECT_EQ(traced({5, 8}), (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(traced({5, 10}), (std::vector<int64_t>{5, 6, 7})) << "as many";
  EXPECT_EQ(traced({6, 10}), (std::vector<int64_t>{8, 9, 10}));
  EXPECT_EQ(traced({6, 7}), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(traced({8, 9}), (std::vector<int64_t>{8, 9}));
}

// Sends a signal to the process after a step.
struct Asks : train::Callback {
  Asks(int number, int64_t step, int rank) : number_(number), step_(step), rank_(rank) {}
  void on_step(const train::Stepped& s) override {
    if (s.step == step_ && rank_ == 0) kill(getpid(), number_);
    if (s.step >= step_) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the monitor looks that often
  }
  int number_;
  int64_t step_;
  int rank_;
};

TEST_F(Fit, ASignalAsksItToSaveAndEnd) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);  // whoever started this may ignore them
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    for (int devices : {1, 2}) {
      train::TrainerOptions stopped = options(devices);
      stopped.max_epochs = 40;
      stopped.config.name = concat("by", number, "on", devices);
      stopped.callbacks = {[&](const train::Config&, dist::ProcessGroup& world) {
        return std::make_unique<Asks>(number, 5, world.rank());
      }};
      train::Result result = fit(stopped);
      EXPECT_TRUE(result.stopped) << number;
      EXPECT_TRUE(result.steps >= 5 && result.steps < result.total_steps) << number << " " << result.steps;
      EXPECT_TRUE(std::filesystem::exists(result.folder + "/model.safetensors")) << number;
      struct sigaction after {};
      sigaction(number, nullptr, &after);
      EXPECT_EQ(after.sa_handler, SIG_DFL) << "it is the program's again";
    }
}

// Is asked to end while it is validated after the step that arms it.
struct AskedInValidation : Scheduled {
  StepOutput validation_step(const data::Batch& batch, int64_t i) override {
    if (batch.first == 0 && i == 0 && armed.exchange(false)) {
      kill(getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(400));  // the monitor looks more often
    }
    return mse_loss(forward(batch.fields[0]), batch.fields[1], double(batch.global_count));
  }
  static inline std::atomic<bool> armed = false;
};
struct Arms : train::Callback {
  explicit Arms(int64_t step) : step_(step) {}
  void on_step(const train::Stepped& s) override {
    if (s.step == step_) AskedInValidation::armed = true;
  }
  int64_t step_;
};

struct Enough : train::Callback {
  std::string reason_to_end() override { return "it is enough"; }
};

TEST_F(Fit, OneThatACallbackEndsInAnEvaluationThatIsMadeUpStaysEnded) {
  train::TrainerOptions parts = options(2);
  parts.config.resume = true;
  parts.callbacks = {[](const train::Config&, dist::ProcessGroup&) { return std::make_unique<Arms>(7); }};
  EXPECT_EQ(fit<AskedInValidation>(parts).steps, 7);
  parts.callbacks = {[](const train::Config&, dist::ProcessGroup&) { return std::make_unique<Enough>(); }};
  train::Result ended = fit<AskedInValidation>(parts);
  EXPECT_EQ(ended.steps, 7);
  auto about = nlohmann::json::parse(read_file(ended.folder + "/step-7/run.json"));
  EXPECT_FALSE(about.contains("pending"));
  parts.callbacks.clear();
  EXPECT_EQ(fit<AskedInValidation>(parts).steps, 7);
  EXPECT_THAT(out_.str(), HasSubstr("it has ended: it is enough"));
}

struct EnoughInLatin1 : train::Callback {
  std::string reason_to_end() override { return "genug f\xFCr heute"; }
};

TEST_F(Fit, OneThatACallbackEndsIsSavedWhateverTheReasonIsWrittenIn) {
  train::TrainerOptions ended = options(2);
  ended.callbacks = {[](const train::Config&, dist::ProcessGroup&) { return std::make_unique<EnoughInLatin1>(); }};
  train::Result result = fit(ended);
  EXPECT_EQ(result.steps, 7);
  EXPECT_EQ(train::read_manifest(result.folder + "/step-7").reached.ended, "genug f\uFFFDr heute");
  EXPECT_THAT(out_.str(), HasSubstr("ends after step 7: genug f\uFFFDr heute"));
}

TEST_F(Fit, OneThatWasAskedToEndInAnEvaluationMakesItUpWhereItGoesOn) {
  auto lines_of = [](const train::Result& result) {
    std::string lines;
    std::istringstream file(read_file(result.folder + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      auto parsed = nlohmann::json::parse(line);
      for (const char* time : {"seconds", "samples_per_s", "gflops_per_s", "peak_bytes"}) parsed.erase(time);
      lines += parsed.dump() + "\n";
    }
    return lines;
  };
  for (int devices : {1, 2})
    for (bool log_steps : {false, true}) {
      train::TrainerOptions whole = options(devices), parts = options(devices);
      for (auto* o : {&whole, &parts}) {
        o->config.log_steps = log_steps;
        o->config.keep_best = true;
        o->config.resume = true;
      }
      whole.config.name = concat("whole", devices, log_steps);
      parts.config.name = concat("parts", devices, log_steps);
      train::Result expected = fit<AskedInValidation>(whole);
      int64_t second = expected.total_steps / 2;  // of four epochs
      parts.callbacks = {[&](const train::Config&, dist::ProcessGroup&) { return std::make_unique<Arms>(second); }};
      train::Result stopped = fit<AskedInValidation>(parts);
      ASSERT_TRUE(stopped.stopped);
      EXPECT_EQ(stopped.steps, second);
      EXPECT_EQ(lines_of(stopped).find("\"step\":" + std::to_string(stopped.steps) + ",\"test_count\":37"),
                std::string::npos);
      parts.callbacks.clear();
      train::Result result = fit<AskedInValidation>(parts);
      EXPECT_FALSE(result.stopped);
      EXPECT_THAT(out_.str(), HasSubstr("tests the weights of step"));
      EXPECT_TRUE(weights(result) == weights(expected));
      EXPECT_EQ(lines_of(result), lines_of(expected)) << devices << log_steps;
      EXPECT_EQ(read_file(result.folder + "/best"), read_file(expected.folder + "/best"));
    }
}

}  // namespace
}  // namespace shardgrad
