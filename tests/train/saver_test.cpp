#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <regex>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/run_lock.h>
#include <shardgrad/train/registry.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// Runs of 30 steps, ten an epoch.
class SavedRun : public TrainerTest {
 protected:
  SavedRun() {
    config_.name = "run";
    config_.resume = true;
  }
  std::string run() const { return config_.runs + "/" + config_.name; }
  std::vector<std::string> checkpoints() {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(run()))
      if (entry.is_directory()) found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
  }
  static std::vector<std::string> files_of(const std::string& folder) {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }
  // What the run holds, as its last checkpoint says.
  std::string hash() { return train::read_manifest(*train::latest_checkpoint(run())).hash(); }
  // A process with the whole run, killed when rank 0 prints `text`.
  void kill_at(const std::string& text) {
    kill_at_ = text;
    pid_t child = fork();
    if (child == 0) {
      train(2);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << text;
    kill_at_.clear();
  }
};

TEST_F(SavedRun, IsSavedEveryFewStepsAndTheNewestStay) {
  config_.save_every = 7;
  train(2);
  EXPECT_THAT(checkpoints(), ElementsAre("step-28", "step-30"));
  for (const char* line :
       {"saved step 7 in ", "saved step 14 in ", "saved step 21 in ", "saved step 28 in ", "saved step 30 in "})
    EXPECT_THAT(out_.str(), HasSubstr(line));
  config_.name = "three";
  config_.keep = 3;
  train(2);
  EXPECT_THAT(checkpoints(), ElementsAre("step-21", "step-28", "step-30"));
}

TEST_F(SavedRun, KeepingNoneIsRefusedBeforeTheFirstStep) {
  config_.keep = 0;
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("keep is 0, expected 1 or more"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("saved step")));
}

TEST_F(SavedRun, IsSavedByTheClock) {
  config_.save_minutes = 1e-9;  // at every agreement
  train(2);
  EXPECT_THAT(out_.str(), HasSubstr("saved step 1 in "));
  EXPECT_THAT(checkpoints().size(), 2);
  config_.name = "never";
  config_.save_minutes = 0;
  train(2);
  EXPECT_THAT(checkpoints(), ElementsAre("step-30"));
}

TEST_F(SavedRun, TheBestOneStays) {
  config_.keep_best = true;
  config_.keep = 1;
  config_.save_every = 9;
  train::Result result = train(2);
  std::string best = read_file(run() + "/best");
  best.pop_back();
  double accuracy = train::read_manifest(run() + "/" + best).reached.best->value, highest = 0;
  int64_t step = 0;
  for (const auto& line : metrics(result))
    if (!line["test_accuracy"].is_null() && line["test_accuracy"] > highest) {
      highest = line["test_accuracy"];
      step = line["step"];
    }
  EXPECT_EQ(best, concat("step-", step));
  EXPECT_EQ(accuracy, highest);
}

// The first two of three epochs without keep_best.
TEST_F(SavedRun, TheBestUntilThenIsKnownWhereKeepBestIsNewToARun) {
  config_.epochs = 2;
  config_.optimizer.lr = 1e-30;  // the first score stays the best
  config_.keep = 5;
  config_.save_every = 10;
  train(2);
  EXPECT_FALSE(fs::exists(run() + "/best"));
  config_.epochs = 3;
  config_.keep_best = true;
  config_.keep = 1;
  fs::copy(run(), config_.runs + "/gone", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  train(2);
  EXPECT_EQ(read_file(run() + "/best"), "step-10\n");
  EXPECT_THAT(out_.str(), ContainsRegex("best names step-10, whose score of 0.[0-9]+ is the best so far\n"));
  EXPECT_THAT(checkpoints(), ElementsAre("step-10", "step-30"));
  train(2);
  EXPECT_THAT(out_.str(), Not(HasSubstr("the best so far"))) << "it is known";
  config_.name = "gone";
  fs::remove_all(run() + "/step-10");
  train(2);
  EXPECT_THAT(out_.str(),
              ContainsRegex("the best score so far, 0.[0-9]+ after step 10, is not among the whole checkpoints "
                            "any more; until one is better, best has none\n"));
  EXPECT_FALSE(fs::exists(run() + "/best"));
}

TEST_F(SavedRun, ThatWentOnWithoutKeepBestDoesNotNameAnOldScoreAsTheBest) {
  config_.keep_best = true;
  config_.keep = 1;
  config_.epochs = 1;
  config_.optimizer.lr = 0.001;  // it becomes better for a while
  train(2);
  EXPECT_EQ(read_file(run() + "/best"), "step-10\n");
  config_.keep_best = false;
  config_.epochs = 2;
  train(2);
  ASSERT_EQ(train::read_manifest(run() + "/step-20").reached.best->worse, 0) << "or nothing is tested";
  config_.keep_best = true;
  config_.epochs = 3;
  train(2, true);
  EXPECT_THAT(out_.str(), HasSubstr("best names step-20, whose score of "));
}

TEST_F(SavedRun, WrittenBesideTrainingHoldsTheSame) {
  config_.save_every = 10;
  config_.keep = 3;
  for (const char* strategy : {"zero3", "ddp"}) {
    config_.strategy = strategy;
    config_.name = "at once";
    config_.save_beside = false;
    train(2);
    config_.name = "beside";
    config_.save_beside = true;
    train(2);
    EXPECT_THAT(checkpoints(), ElementsAre("step-10", "step-20", "step-30"));
    for (const char* step : {"/step-10", "/step-20", "/step-30"})
      for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
        EXPECT_EQ(read_file(config_.runs + "/beside" + step + file),
                  read_file(config_.runs + "/at once" + step + file));
    fs::remove_all(config_.runs);
  }
}

TEST_F(SavedRun, ThatWasKilledGoesOnFromItsLastCheckpointToTheSameEnd) {
  config_.name = "whole";
  train(2);
  std::string expected = hash();
  for (bool beside : {false, true}) {
    config_.save_every = 6;
    config_.save_beside = beside;
    config_.name = beside ? "beside" : "at once";
    kill_at("step     16");
    train(2);
    // One that was still being written beside training does not count.
    EXPECT_THAT(out_.str(), ContainsRegex(beside ? "goes on after step (6|12) of 30" : "goes on after step 12 of 30"));
    EXPECT_EQ(hash(), expected);
    std::vector<int64_t> steps;
    std::istringstream lines(read_file(run() + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
    EXPECT_EQ(steps, (std::vector<int64_t>{4, 8, 10, 12, 16, 20, 24, 28, 30}));
  }
}

TEST_F(SavedRun, SaysTheSameHashWhenItIsSavedAndLoaded) {
  train(2, true);
  std::string said = "hash " + hash();
  EXPECT_THAT(out_.str(), HasSubstr("saved step 1 in "));
  EXPECT_THAT(out_.str(), HasSubstr(said));
  train(3);
  EXPECT_THAT(out_.str(), HasSubstr("loaded step 1, " + said));
}

TEST_F(SavedRun, ThatCannotGoOnSaysSoBeforeItShowsAnything) {
  train(2, true);
  config_.optimizer.lr *= 2;
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("was saved by another run, which this one cannot go on with:"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(SavedRun, ASecondJobOfThatNameIsRefused) {
  fs::create_directories(run());
  train::RunLock other(run());
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("is being written by another job: process "));
  EXPECT_THAT(checkpoints(), ElementsAre());
  EXPECT_EQ(out_.str(), "") << "nothing but why it is refused";
}

TEST_F(SavedRun, WhoseCheckpointIsDamagedIsRefusedBeforeItShowsAnything) {
  config_.epochs = 1;
  train(2);
  std::string file = run() + "/step-10/model.safetensors", bytes = read_file(file);
  bytes.back() = char(bytes.back() ^ 1);
  std::ofstream(file) << bytes;
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("is not what was saved"));
  EXPECT_EQ(out_.str(), "");
}

// As a kill leaves it after `latest` names the new one.
TEST_F(SavedRun, ThatGoesOnMendsALinkThatIsOneCheckpointOld) {
  config_.save_every = 20;
  train(2);
  std::string link = run() + "/model.safetensors";
  ASSERT_EQ(fs::read_symlink(link), "step-30/model.safetensors");
  fs::remove(link);
  fs::create_symlink("step-20/model.safetensors", link);
  train(2);
  EXPECT_THAT(out_.str(), Not(HasSubstr("saved step"))) << "the run has ended: no save mends it";
  EXPECT_EQ(fs::read_symlink(link), "step-30/model.safetensors");
}

// As on machines that do not see each other's locks: another job takes the folder while this one trains.
struct TakesTheFolder : train::Callback {
  TakesTheFolder(std::string run, std::optional<train::RunLock>& other) : run(std::move(run)), other(other) {}
  void on_step(const train::Stepped& e) override {
    if (e.step != 15) return;
    fs::remove(run + "/lock");
    other.emplace(run);
    fs::create_directories(run + "/step-99.tmp-ab");
  }
  std::string run;
  std::optional<train::RunLock>& other;
};

TEST_F(SavedRun, WhoseFolderAnotherJobHasTakenSavesNothingMore) {
  config_.save_every = 10;
  std::optional<train::RunLock> other;
  auto registry = std::make_shared<train::Registry>();
  registry->add_callback(
      [&](const Config&, dist::ProcessGroup&) { return std::make_unique<TakesTheFolder>(run(), other); });
  config_.registry = registry;
  EXPECT_THAT(error_of([&] { train(1); }), HasSubstr("has lost"));
  EXPECT_THAT(checkpoints(), ElementsAre("step-10", "step-99.tmp-ab")) << "the other's save goes on";
}

TEST_F(SavedRun, ThatIsRefusedLeavesNoFolderButOneThatWasThere) {
  config_.tensorboard = true;
  config_.keep = 1 << 30;  // no disk has room for so many
  for (bool resume : {false, true}) {
    config_.resume = resume;
    EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("keep fewer"));
    EXPECT_FALSE(fs::exists(run())) << resume;
    EXPECT_EQ(out_.str(), "") << resume;
  }
  fs::create_directories(run());
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("keep fewer"));
  EXPECT_TRUE(fs::exists(run()));
}

TEST_F(SavedRun, CanBeTrainedLongerAndSaysWhatThatDoesToTheLearningRate) {
  config_.schedule.name = "linear";
  train(2);
  config_.epochs = 4;
  train::Result longer = train(2);
  EXPECT_EQ(longer.steps, 40);
  EXPECT_THAT(out_.str(), HasSubstr("goes on after step 30 of 40"));
  EXPECT_THAT(out_.str(),
              HasSubstr("the run has 40 steps, had 30: the learning rate follows the schedule of 40 steps from here "
                        "on, 0.00230769 at step 31"));
  config_.epochs = 2;
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("is of step 40, the run has 20; set epochs (or steps) to a larger"));
}

TEST_F(SavedRun, BeginsWithTheWeightsOfAnyFile) {
  config_.epochs = 1;
  train(1);
  std::string file = run() + "/step-10/model.safetensors";
  config_.name = "next";
  config_.optimizer.lr = 1e-30;  // a step changes nothing
  std::string first = config_.runs + "/run";
  for (const std::string& from : {file, first, first + "/latest", first + "/step-10"}) {
    config_.name = "next";
    config_.init_from = from;
    fs::remove_all(run());
    train::Result next = train(3);
    EXPECT_EQ(train::read_manifest(next.folder + "/step-10").model, train::read_manifest(first + "/step-10").model)
        << from;
    std::string told = nlohmann::json::parse(read_file(next.folder + "/config.json"))["init_from"];
    if (from != file) told += "/model.safetensors";  // a checkpoint, whose hashes are looked at
    EXPECT_EQ(fs::weakly_canonical(told), fs::weakly_canonical(file)) << "who repeats the run begins with the same";
  }
  config_.name = "other";
  config_.model.options["layers"] = "[784, 23, 10]";
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("'layer0.weight' is f32[23, 784] here, but f32[24, 784] was given"));
  EXPECT_FALSE(fs::exists(run())) << "nothing is made before";
  config_.name = "missing";
  config_.init_from = folder_ / "nothing";
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("nothing'"));
  EXPECT_FALSE(fs::exists(run()));
  config_.resume = false;
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("nothing'"));
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(SavedRun, ARunThatGoesOnKeepsInItsConfigurationWhatItBeganWith) {
  config_.epochs = 1;
  std::string first = train(1).folder;
  config_.name = "next";
  config_.init_from = first;
  auto told = [&] { return nlohmann::json::parse(read_file(run() + "/config.json"))["init_from"].get<std::string>(); };
  train(1);
  std::string file = told();
  EXPECT_THAT(file, EndsWith("/step-10"));
  config_.epochs = 2;
  train(1);
  EXPECT_EQ(told(), file);
  config_.init_from = "";
  train(1);
  EXPECT_EQ(told(), file);
  for (const std::string& saved : checkpoints()) fs::remove_all(run() + "/" + saved);
  fs::remove(run() + "/latest");
  train(1);
  EXPECT_EQ(told(), "") << "it began anew, and without";
}

// A run that it begins with is used as every command uses one.
TEST_F(SavedRun, BeginsWithACheckpointThatIsWhatWasSaved) {
  config_.epochs = 1;
  config_.save_every = 5;
  train(1);
  std::string first = run();
  config_.name = "next";
  config_.init_from = first;
  config_.optimizer.lr = 1e-30;  // a step changes nothing
  fs::remove_all(first + "/step-10");
  ::testing::internal::CaptureStderr();
  train::Result next = train(3);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("step-5"));
  EXPECT_EQ(train::read_manifest(next.folder + "/step-10").model, train::read_manifest(first + "/step-5").model);
  std::string file = first + "/step-5/model.safetensors", bytes = read_file(file);
  bytes.back() = char(bytes.back() ^ 1);
  std::ofstream(file) << bytes;
  config_.name = "damaged";
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("is not what was saved"));
  fs::remove_all(first + "/step-5");
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("none of the 0 checkpoints beside it is whole"));
  EXPECT_FALSE(fs::exists(run()));
}

// As on machines that each have a file of that name: a rank reads its own shard of it.
TEST_F(SavedRun, RanksThatWouldBeginWithOtherWeightsAreRefused) {
  config_.epochs = 1;
  train(1);
  for (const char* rank : {"0", "1"}) {
    fs::create_directories(folder_ / "here" + rank);
    fs::copy_file(run() + "/step-10/model.safetensors", folder_ / "here" + rank + "/w.safetensors");
  }
  config_.name = "next";
  config_.init_from = "w.safetensors";
  auto begin = [&](dist::ProcessGroup& world) {
    unshare(CLONE_FS);  // this thread has a working directory of its own
    fs::path before = fs::current_path();
    fs::current_path(folder_ / "here" + std::to_string(world.rank()));
    std::ostringstream out;
    std::string message = error_of([&] { train::train(config_, world, out); });
    fs::current_path(before);
    if (message != "no error") fail(message);
  };
  auto begins = [&] { return error_of([&] { dist::run_ranks(2, begin, {.seed = 1, .threads = 1}); }); };
  EXPECT_EQ(begins(), "no error");
  config_.name = "another";
  std::string bytes = read_file(folder_ / "here1/w.safetensors"), changed = bytes;
  changed[bytes.size() / 2] ^= 1;  // in the midst of the largest tensor
  folder_.write("here1/w.safetensors", changed);
  EXPECT_THAT(begins(), HasSubstr("'w.safetensors' is another file on rank 1 than on rank 0, with other values of "
                                  "'layer0.weight'"));
  bytes.back() ^= 1;
  folder_.write("here1/w.safetensors", bytes);
  EXPECT_THAT(begins(), HasSubstr("'layer1.weight'"));
}

// Each rank has statistics of its own samples, and a checkpoint has their mean: who saved it goes on from that, too.
TEST_F(SavedRun, WithRunningStatisticsGoesOnWithTheSameBits) {
  struct Net : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 784, 8), out = child<nn::Linear>("out", 8, 10);
    nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 8);
    Tensor forward(const Tensor& x) { return out(relu(norm(in(x)))); }
  };
  auto registry = std::make_shared<train::Registry>();
  registry->add_model("normed", "with running statistics", [] { return nn::make<Net>(); });
  config_.registry = registry;
  config_.model = {"normed"};
  config_.task = {"classification"};
  config_.save_every = 20;
  train(2);
  std::string file = run() + "/step-30/model.safetensors", whole = read_file(file);
  fs::remove_all(run() + "/step-30");
  fs::remove(run() + "/latest");
  train(2);
  EXPECT_THAT(out_.str(), HasSubstr("goes on after step 20 of 30"));
  EXPECT_THAT(out_.str(), HasSubstr(concat("'", run(), "/latest' is missing; goes on from '", run(), "/step-20'")));
  EXPECT_EQ(read_file(file), whole);
}

// From here on this thread, and those that it starts, see one file or folder in the place of another.
bool sees(const std::string& file, const std::string& as) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount(as.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) == 0;
}

// As on a file system whose other machines know a name's old meaning for a while.

TEST_F(SavedRun, GoesOnFromTheCheckpointThatRank0Sees) {
  config_.save_every = 5;
  config_.keep = 10;
  train(2);
  std::string file = run() + "/step-30/model.safetensors", whole = read_file(file);
  fs::remove_all(run() + "/step-30");
  folder_.write("old", "step-5");
  fs::remove_all(run() + "/step-25");
  folder_.write("runs/run/latest", "step-20");
  std::ostringstream out;
  std::atomic<bool> possible = true;
  auto go_on = [&](dist::ProcessGroup& world) {
    if (world.rank() == 1 && !sees(run() + "/latest", folder_ / "old")) possible = false;
    world.barrier();
    if (possible) train::train(config_, world, out);
  };
  dist::run_ranks(2, go_on, {.seed = 1, .threads = 1});
  if (!possible) GTEST_SKIP() << "a process may have no view of its own here";
  EXPECT_THAT(out.str(), HasSubstr("goes on after step 20 of 30"));
  EXPECT_EQ(read_file(file), whole);
}

TEST_F(SavedRun, OnAReadOnlyFileSystemIsRefusedBeforeTheFirstStep) {
  fs::create_directories(config_.runs);
  for (bool goes_on : {false, true}) {
    if (goes_on) train(2);
    config_.epochs = 4;
    auto before = files_of(config_.runs);
    std::string message;
    auto on_read_only = [&] {
      const char* runs = config_.runs.c_str();
      if (!sees(runs, runs) || mount(nullptr, runs, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) return;
      message = error_of([&] { train(2); });
    };
    std::thread(on_read_only).join();
    if (message.empty()) GTEST_SKIP() << "a process may have no view of its own here";
    EXPECT_THAT(message, HasSubstr("Read-only file system"));
    EXPECT_THAT(out_.str(), Not(ContainsRegex("step +[0-9]+ +epoch"))) << out_.str();
    EXPECT_EQ(files_of(config_.runs), before);
    config_.epochs = 3;
  }
}

// It was of use when the run began.
TEST_F(SavedRun, GoesOnWhereTheFileItBeganWithIsGone) {
  config_.epochs = 1;
  train(1);
  config_.init_from = folder_ / "first.safetensors";
  fs::copy_file(run() + "/step-10/model.safetensors", config_.init_from);
  config_.name = "next";
  train(2);
  fs::remove(config_.init_from);
  config_.epochs = 2;
  EXPECT_EQ(train(2).steps, 20);
}

// Weights of before, also those that are still being written beside training, are there to go on from.
TEST_F(SavedRun, StopsWhereItMakesNoSenseAnyMoreAndSavesNothingOfThat) {
  config_.optimizer.name = "sgd";
  config_.optimizer.lr = 1e30;
  config_.save_every = 1;
  for (bool beside : {false, true}) {
    config_.save_beside = beside;
    config_.name = beside ? "beside" : "at once";
    SCOPED_TRACE(config_.name);
    std::string said;
    try {
      train(2);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::rank_failed) << "exit code 4";
      said = error.what();
    }
    std::smatch step;
    ASSERT_TRUE(std::regex_search(said, step,
                                  std::regex("step ([0-9]+): the loss of rank .* is not finite; the first gradient "
                                             "that is not either is that of unit 'layer[01]'")))
        << said;
    EXPECT_EQ(train::read_manifest(train::latest_checkpoint(run()).value()).reached.step, std::stoll(step[1]) - 1);
    Context context;
    for (const std::string& name : checkpoints()) {
      train::SafetensorsFile file(run() + "/" + name + "/model.safetensors", train::SafetensorsFile::Access::read);
      Tensor values = empty({240}, kCpu);
      file.read("layer1.weight", 0, values);
      for (float value : values.to_vector<float>()) EXPECT_TRUE(std::isfinite(value)) << name;
    }
  }
}

TEST_F(SavedRun, GoesOnAllTheSameWhenItIsToldTo) {
  config_.optimizer.name = "sgd";
  config_.optimizer.lr = 1e30;
  config_.on_nan = "continue";
  EXPECT_THAT(error_of([&] { train(2); }), HasSubstr("trained to its end after step 30, and nothing is saved of it"));
  EXPECT_THAT(out_.str(), HasSubstr("step 30 is not saved: element "));
  EXPECT_THAT(checkpoints(), ElementsAre());
}

// Weights so large that f16 holds no product of them: no scale of the loss helps.
TEST_F(SavedRun, ThatLeavesOutEveryStepEndsAndSaysWhatHelps) {
  config_.autocast = "f16";
  config_.optimizer.name = "sgd";
  config_.optimizer.lr = 1e30;
  config_.epochs = 9;
  for (const char* on_nan : {"stop", "continue"}) {
    config_.name = config_.on_nan = on_nan;
    try {
      train(2);
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::rank_failed) << "exit code 4";
      EXPECT_THAT(error.what(),
                  ContainsRegex("step [4-6][0-9]: the last [4-6][0-9] steps were left out, for gradients overflow f16 "
                                "even where the loss is scaled by [0-9.]+e-[0-9]+; .*autocast=bf16"));
    }
  }
}

TEST_F(SavedRun, SaysHowManyStepsLossScalingLeftOutWhereItDid) {
  config_.autocast = "f16";
  config_.log_interval = 5;
  auto left_out = [&](const train::Result& result) {
    std::vector<int64_t> counts;
    for (const auto& line : metrics(result)) counts.push_back(line.value("skipped_steps", int64_t(0)));
    return counts;
  };
  config_.name = "none";
  train::Result good = train(2);
  EXPECT_THAT(left_out(good), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(read_file(good.folder + "/metrics.jsonl"), Not(HasSubstr("skipped"))) << "only where there are any";
  EXPECT_THAT(out_.str(), Not(HasSubstr("skipped")));
  config_.optimizer.name = "sgd";
  config_.optimizer.lr = 1e30;  // after the first step none is good
  config_.name = "all but the first";
  EXPECT_THAT(left_out(train(2)), ElementsAre(4, 5, 5, 5, 5, 5));
  EXPECT_THAT(out_.str(), ContainsRegex("step     10 .* skipped 5"));
  config_.log_steps = true;
  config_.name = "each step";
  std::vector<int64_t> counts(30, 1);
  counts[0] = 0;
  EXPECT_EQ(left_out(train(2)), counts);
}

}  // namespace
}  // namespace shardgrad
