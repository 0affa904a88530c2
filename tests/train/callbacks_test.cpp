// Callbacks that a user's program registers: what they are told of a run and when, and that they may end it.

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "own_run.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct NormsSeen : train::Callback {
  explicit NormsSeen(std::vector<std::optional<double>>& norms) : norms(norms) {}
  void on_step(const train::Stepped& e) override { norms.push_back(e.grad_norm); }
  std::vector<std::optional<double>>& norms;
};

TEST_F(OwnRun, OnTheCpuACallbackIsToldTheNormOfEveryStepThatClips) {
  std::vector<std::optional<double>> norms;
  std::vector<std::optional<double>> of_rank_1;
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) {
    return std::make_unique<NormsSeen>(world.rank() == 0 ? norms : of_rank_1);
  });
  configure(kOwn, {"epochs=1", "clip_grad_norm=0.1", "log_interval=4"});
  train(2);
  ASSERT_GE(norms.size(), 6u);
  for (const auto& norm : norms) EXPECT_GT(norm.value_or(0), 0);
  EXPECT_EQ(norms, of_rank_1);
  norms.clear();
  configure(kOwn, {"epochs=1", "log_interval=4"});
  train(2);
  for (size_t i = 0; i + 1 < norms.size(); ++i) EXPECT_EQ(norms[i].has_value(), i % 4 == 3) << i;
}

TEST_F(OwnRun, CallbacksOfEveryRankSeeWhatHappens) {
  std::vector<SeenEvents> seen(2);
  registry_.add_callback(
      [&](const Config&, dist::ProcessGroup& world) { return std::make_unique<Watch>(seen[size_t(world.rank())]); });
  configure(kOwn, {"steps=10", "eval_every=4", "log_interval=3", "save_every=5"});
  train(2);
  for (const SeenEvents& s : seen) {
    EXPECT_THAT(s.steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    EXPECT_THAT(s.tests, ElementsAre(4, 8, 10)) << "and at the end";
    EXPECT_THAT(s.lines, ElementsAre(3, 4, 6, 7, 8, 9, 10)) << "an epoch has 7 steps";
    EXPECT_THAT(s.saves, ElementsAre(5, 10));
    EXPECT_EQ(s.ends, 1);
  }
}

// It may be killed right after.
struct LinesAtSave : train::Callback {
  LinesAtSave(const std::string& file, std::vector<size_t>& lines) : file(file), lines(lines) {}
  void on_save(const train::Saved&) override { lines.push_back(size_t(std::ranges::count(read_file(file), '\n'))); }
  std::string file;
  std::vector<size_t>& lines;
};

TEST_F(OwnRun, ACheckpointHasTheLinesOfEveryStepUntilThere) {
  std::vector<size_t> lines;
  registry_.add_callback([&](const Config& config, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
    if (world.rank() > 0) return std::make_unique<train::Callback>();
    return std::make_unique<LinesAtSave>(config.runs + "/run/metrics.jsonl", lines);
  });
  configure(kOwn, {"steps=10", "eval_every=10", "log_interval=10", "save_every=3", "log_steps=true"});
  train(2);
  EXPECT_THAT(lines, ElementsAre(3, 6, 9, 10));
}

// Whose process stands still for a while within its fifth loss, as Ctrl-Z and fg let it.
class Pausing : public Mirrored {
 public:
  Pausing(dist::Control*& control) : Mirrored(4), control_(control) {}
  Tensor loss(const data::Batch& batch) override {
    if (control_ && ++losses_ == 5) {
      control_->note_beat(dist::Suspension::Clock::now(), {}, std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      control_->note_beat(dist::Suspension::Clock::now(), {}, std::chrono::seconds(2));
    }
    return Mirrored::loss(batch);
  }

 private:
  dist::Control*& control_;
  int losses_ = 0;
};

TEST_F(OwnRun, SecondsOfAStepLeaveOutThoseInWhichTheProcessStoodStill) {
  dist::Control* control = nullptr;
  registry_.add_whole_task("pausing", "stands still", [&] { return std::make_unique<Pausing>(control); });
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) {
    control = &world.control();
    return std::make_unique<train::Callback>();
  });
  configure(R"({"data": {"name": "points"}, "task": {"name": "pausing"}, "steps": 6, "log_steps": true})");
  dist::WatchOptions seldom;
  seldom.beat = seldom.gap = std::chrono::seconds(60);  // only the test tells of the process
  train::Result result;
  dist::run_ranks(1, [&](dist::ProcessGroup& world) { result = train::train(config_, world, out_, terminal_); },
                  {.threads = 1, .watch = seldom});
  auto lines = metrics(result);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_LT(lines[4]["seconds"].get<double>(), 0.45);
  EXPECT_GE(result.seconds, 0.5);
}

struct EndAt : train::Callback {
  void on_eval(const train::Evaluated& e) override { step = e.step; }
  std::string reason_to_end() override { return step >= 14 ? "it is enough" : ""; }
  int64_t step = 0;
};

TEST_F(OwnRun, OneRanksCallbackEndsTheRunOnAll) {
  registry_.add_callback([](const Config&, dist::ProcessGroup& world) {
    return world.rank() == 1 ? std::make_unique<EndAt>() : std::make_unique<train::Callback>();
  });
  configure(kOwn, {"epochs=5"});
  train::Result result = train(2);
  EXPECT_EQ(result.steps, 14);
  EXPECT_FALSE(result.stopped) << "it is a good end";
  EXPECT_THAT(out_.str(), HasSubstr("saved step 14"));
  EXPECT_THAT(out_.str(), HasSubstr("ends after step 14: it is enough\n"));
}

TEST_F(OwnRun, OneThatACallbackHasEndedStaysEndedUntilItIsToBeLonger) {
  registry_.add_callback([](const Config&, dist::ProcessGroup&) { return std::make_unique<EndAt>(); });
  configure(kOwn, {"epochs=5", "resume=true"});
  train::Result result = train(2);
  std::string weights = read_file(result.folder + "/model.safetensors");
  EXPECT_EQ(train(2).steps, 14);
  EXPECT_EQ(read_file(result.folder + "/model.safetensors"), weights);
  EXPECT_THAT(out_.str(), HasSubstr("it has ended: it is enough; a larger number of epochs (or steps) goes on\n"));
  config_.epochs = 4;
  EXPECT_EQ(train(2).steps, 14) << "fewer are no reason to go on";
  config_.epochs = 6;
  EXPECT_EQ(train(2).steps, 21) << "and is asked again";
}

struct Logged : train::Callback {
  explicit Logged(std::vector<train::Metrics>& lines) : lines(lines) {}
  void on_logged(const train::Metrics& line) override { lines.push_back(line); }
  std::vector<train::Metrics>& lines;
};

TEST_F(OwnRun, TheLineOfEveryStepIsOfThatStepInEveryField) {
  std::vector<train::Metrics> lines;
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
    if (world.rank() > 0) return std::make_unique<train::Callback>();
    return std::make_unique<Logged>(lines);
  });
  configure(kOwn, {"steps=10", "eval_every=4", "log_interval=3", "log_steps=true"});
  train(2);
  ASSERT_EQ(lines.size(), 10u);
  double seconds = 0;
  for (const train::Metrics& line : lines) {
    bool stays = line.step == 4 || line.step == 7 || line.step == 8 || line.step == 10;
    EXPECT_EQ(line.epoch_done, stays) << line.step << ": an epoch has 7 steps, and 4, 8 and 10 are tested";
    seconds += line.seconds;
    EXPECT_NEAR(line.eta_seconds, double(10 - line.step) * seconds / double(line.step), 1e-9) << line.step;
  }
}

}  // namespace
}  // namespace shardgrad
