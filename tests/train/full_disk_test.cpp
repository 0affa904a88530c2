// A disk that is full for a moment while a run trains.

#include <numeric>

#include <shardgrad/train/registry.h>

#include "disk_watch.h"
#include "small_run.h"

namespace shardgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The disk takes nothing from one step to another.
struct FullBetween : train::Callback {
  using Calls = std::vector<std::string>;
  FullBetween(DiskWatch& disk, int64_t from, int64_t to, Calls calls) : disk(disk), from(from), to(to), calls(calls) {}
  void on_step(const train::Stepped& e) override {
    std::lock_guard lock(disk.mutex);
    for (const std::string& call : calls) disk.let_fail(call, e.step >= from && e.step < to ? ENOSPC : 0);
  }
  DiskWatch& disk;
  int64_t from, to;
  Calls calls;
};

class FullDisk : public TrainerTest {
 protected:
  FullDisk() {
    config_.log_steps = true;
    config_.tensorboard = true;
    config_.save_every = 10;
  }
  train::Result train_on_full_disk(int64_t from, int64_t to, const FullBetween::Calls& calls = {"write", "pwrite"}) {
    fs::create_directories(config_.runs);
    DiskWatch disk(config_.runs);
    auto registry = std::make_shared<train::Registry>();
    registry->add_callback([&](const Config&, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
      if (world.rank() != 0) return std::make_unique<train::Callback>();
      return std::make_unique<FullBetween>(disk, from, to, calls);
    });
    config_.registry = registry;
    return train(2);
  }
  std::vector<std::string> folders() {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(config_.runs + "/" + config_.name))
      if (entry.is_directory()) found.push_back(entry.path().filename());
    return found;
  }
};

// Where nothing is saved meanwhile the run goes on; its lines, events and trace come later, each step once.
TEST_F(FullDisk, WhatIsWrittenBesideCheckpointsEndsNoRun) {
  config_.runs = folder_ / "in peace";
  train::Result expected = train(2);
  config_.runs = folder_ / "runs";
  train::Result result = train_on_full_disk(2, 9);
  EXPECT_EQ(result.steps, 30);
  std::vector<int64_t> steps, all(30);
  std::iota(all.begin(), all.end(), 1);
  for (const auto& line : metrics(result)) steps.push_back(line["step"]);
  EXPECT_EQ(steps, all);
  for (const char* file : {"metrics.jsonl'", "trace.json.tmp'", "events.out.tfevents"})
    EXPECT_THAT(out_.str(), HasSubstr(file));
  EXPECT_TRUE(nlohmann::json::accept(read_file(result.folder + "/trace.json")));
  EXPECT_TRUE(read_file(result.folder + "/model.safetensors") == read_file(expected.folder + "/model.safetensors"));
}

// A checkpoint that has no room still ends the run, and the lines until the one before are there to go on with. Beside
// training it may be begun and have no room for its tensors, which only the thread that writes them sees (pwrite).
TEST_F(FullDisk, ARunThatEndedSoHasEachStepOnceAfterItWentOn) {
  config_.resume = true;
  struct Case {
    const char* name;
    bool beside;
    FullBetween::Calls fail;
  };
  for (const Case& c :
       {Case{"now", false, {"write", "pwrite"}}, {"beside", true, {"write", "pwrite"}}, {"thread", true, {"pwrite"}}}) {
    SCOPED_TRACE(c.name);
    config_.name = c.name;
    config_.save_beside = c.beside;
    config_.registry = train::built_in_registry();
    config_.epochs = 1;
    train(2);  // until step 10, all of which is on the disk
    config_.epochs = 3;
    EXPECT_THAT(error_of([&] { train_on_full_disk(14, 1000, c.fail); }),
                AllOf(HasSubstr("No space left on device. The last checkpoint, '"),
                      HasSubstr(concat("/step-10', is whole: the same command goes on from it with name set to ",
                                       c.name, " and resume to true"))));
    EXPECT_THAT(folders(), ElementsAre("step-10")) << "and nothing of the next one";
    config_.registry = train::built_in_registry();
    train::Result result = train(2);
    EXPECT_THAT(out_.str(), HasSubstr("goes on after step 10 of 30"));
    std::vector<int64_t> steps, every(30);
    std::iota(every.begin(), every.end(), 1);
    for (const auto& line : metrics(result)) steps.push_back(line["step"]);
    EXPECT_EQ(steps, every);
  }
}

}  // namespace
}  // namespace shardgrad
