#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <shardgrad/train/checkpoint/run_folder.h>

#include "checkpoint_files.h"
#include "disk_watch.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::Last;
namespace fs = std::filesystem;

class RunFolder : public CheckpointFiles {
 protected:
  // Checkpoints of one rank at these steps, all of which are kept.
  void save_steps(const std::vector<int64_t>& steps, train::Keep keep = {.count = 100}) {
    dist::run_ranks(1, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero3, 1);
      for (int64_t step : steps)
        train::save_checkpoint(folder_.path(), config_, {step, step, 7, {}}, trained.state(), keep);
    });
  }
  Last last() { return train::last_checkpoint(folder_.path()); }
};

TEST_F(RunFolder, TheNewestOnesAreKept) {
  save_steps({1, 2, 3, 4}, {.count = 2});
  EXPECT_THAT(names(), ElementsAre("latest", "step-3", "step-4"));
  save_steps({10}, {.count = 2});
  EXPECT_THAT(names(), ElementsAre("latest", "step-10", "step-4")) << "in the order of numbers, not of names";
}

TEST_F(RunFolder, TheBestOneIsKeptUntilThereIsABetterOne) {
  save_steps({1}, {.count = 1, .is_best = true});
  save_steps({2, 3}, {.count = 1});
  EXPECT_THAT(names(), ElementsAre("best", "latest", "step-1", "step-3"));
  EXPECT_EQ(read_file(folder_ / "best"), "step-1\n");
  save_steps({4}, {.count = 1, .is_best = true});
  EXPECT_THAT(names(), ElementsAre("best", "latest", "step-4"));
}

TEST_F(RunFolder, KeepingNoneIsRefusedBeforeAnythingIsWritten) {
  save_steps({1});
  for (int count : {0, -1})
    EXPECT_THAT(error_of([&] { save_steps({2}, {.count = count}); }),
                HasSubstr(concat("keep is ", count, ", expected 1 or more")));
  fs::create_directory(folder_ / "step-2.tmp");
  EXPECT_THAT(error_of([&] { train::commit_checkpoint(folder_.path(), folder_ / "step-2.tmp", 2, {.count = 0}); }),
              HasSubstr("keep is 0"));
  EXPECT_THAT(names(), ElementsAre("latest", "step-1", "step-2.tmp"));
}

TEST_F(RunFolder, AStepBelowZeroIsRefusedBeforeAnythingIsWritten) {
  EXPECT_THAT(error_of([&] { save_steps({-5}); }), HasSubstr("step is -5, expected 0 or more"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

// A copy that somebody has made, under a name that no run gives.
TEST_F(RunFolder, ANameWithZerosBeforeItsNumberIsNoCheckpoints) {
  save_steps({90});
  fs::copy(folder_ / "step-90", folder_ / "step-0100");
  save_steps({100}, {.count = 1});
  EXPECT_THAT(names(), ElementsAre("latest", "step-0100", "step-100"));
  EXPECT_EQ(last().folder, folder_ / "step-100");
}

// The run was set back, and comes to the step of the best one with other weights.
TEST_F(RunFolder, BestGoesWithTheOneThatItNames) {
  save_steps({1});
  save_steps({3}, {.count = 100, .is_best = true});
  folder_.write("latest", "step-1\n");
  save_steps({2});
  EXPECT_THAT(names(), ElementsAre("best", "latest", "step-1", "step-2", "step-3"));
  fs::create_directory(folder_ / "step-3.tmp");
  EXPECT_EQ(train::commit_checkpoint(folder_.path(), folder_ / "step-3.tmp", 3, {.count = 100}),
            concat("removed '", folder_ / "best", "', for the step-3 that it named is replaced"));
  EXPECT_THAT(names(), ElementsAre("latest", "step-1", "step-2", "step-3"));
}

// The run went on from an older one: what came after that belongs to no run any more.
TEST_F(RunFolder, LaterOnesFromWhichTheRunDidNotGoOnAreRemoved) {
  save_steps({1, 2, 3});
  folder_.write("latest", "step-1\n");
  save_steps({2}, {.count = 2});
  EXPECT_THAT(names(), ElementsAre("latest", "step-1", "step-2"));
}

TEST_F(RunFolder, WhichLaterOnesAreRemovedIsSaid) {
  for (const char* name : {"step-9", "step-1", "step-2.tmp"}) fs::create_directory(folder_ / name);
  EXPECT_EQ(train::commit_checkpoint(folder_.path(), folder_ / "step-2.tmp", 2, {}),
            concat("removed '", folder_ / "step-9", "', from which the run did not go on"))
      << "and of an older one there is nothing to say";
  EXPECT_THAT(names(), ElementsAre("latest", "step-2"));
}

TEST_F(RunFolder, WithoutLatestTheNewestWholeOneIsUsedAndSaidSo) {
  save_steps({9, 10, 11});
  EXPECT_EQ(last().note, "");
  fs::remove(folder_ / "latest");
  EXPECT_EQ(last().folder, folder_ / "step-11");
  EXPECT_EQ(last().note, concat("'", folder_.path(), "/latest' is missing; goes on from '", folder_ / "step-11",
                                "', the newest that is whole"));
  folder_.write("step-11/model.safetensors", "damaged");
  EXPECT_EQ(last().folder, folder_ / "step-10");
  fs::remove(folder_ / "step-10/optimizer.safetensors");
  EXPECT_EQ(last().folder, folder_ / "step-9");
  fs::remove(folder_ / "step-9/run.json");
  EXPECT_THAT(error_of([&] { last(); }), HasSubstr("none of the 3 checkpoints beside it is whole"));
}

TEST_F(RunFolder, ALatestThatNamesNothingIsNoEnd) {
  save_steps({1});
  folder_.write("latest", "step-5\n");
  EXPECT_EQ(last().folder, folder_ / "step-1");
  EXPECT_THAT(last().note, HasSubstr("latest' names 'step-5', which is not there; goes on from"));
  folder_.write("step-1/notes", "mine");
  EXPECT_EQ(last().folder, folder_ / "step-1");
  fs::remove_all(folder_ / "step-1");
  EXPECT_THAT(error_of([&] { last(); }), HasSubstr("none of the 0 checkpoints beside it is whole"));
}

TEST_F(RunFolder, ALatestThatIsNoNameOfACheckpointIsRefused) {
  for (const char* text :
       {"../elsewhere\n", "step-\n", "step--3\n", "step-2-backup\n", "step-3.tmp\n", "step-03\n", ""}) {
    folder_.write("latest", text);
    EXPECT_THAT(error_of([&] { last(); }), HasSubstr("expected the name of a folder step-N")) << text;
  }
  folder_.write("latest", std::string("step\0\x1b[2J", 9));
  EXPECT_THAT(error_of([&] { last(); }), HasSubstr("latest' says 'step??[2J', expected")) << "it is shown";
}

// As eval, predict, export and hash do beside a run of save_every=1 and keep=1.
TEST_F(RunFolder, WhereTheNamedOneIsRemovedBeforeItIsOpenedTheNextOneIsRead) {
  save_steps({1});
  auto named = [&] { return train::used_checkpoint(folder_.path()).folder.value(); };
  std::vector<std::string> tried;
  auto read = [&](const std::string& folder) {
    tried.push_back(fs::path(folder).filename());
    if (tried.size() < 3) save_steps({int64_t(tried.size()) + 1}, {.count = 1});
    return train::verify_checkpoint(folder).manifest.reached.step;
  };
  EXPECT_EQ(train::read_used(named, read), 3);
  EXPECT_THAT(tried, ElementsAre("step-1", "step-2", "step-3"));

  fs::resize_file(folder_ / "step-3/model.safetensors", 10);
  EXPECT_THAT(error_of([&] { train::verify_used_checkpoint(folder_.path()); }), HasSubstr("model.safetensors"))
      << "a damaged one that is still the last stays refused";
}

// Between what `latest` says and a look at that folder, too.
TEST_F(RunFolder, ARunThatGoesOnIsNotSaidToBeDamaged) {
  save_steps({1});
  std::atomic<bool> done = false;
  std::thread run([&] {
    for (int64_t step = 2; step < 400; ++step) {
      std::string name = concat("step-", step), unfinished = folder_ / (name + ".tmp");
      fs::copy(folder_ / concat("step-", step - 1), unfinished);
      train::commit_checkpoint(folder_.path(), unfinished, step, {.count = 1});
    }
    done = true;
  });
  int64_t looks = 0;
  for (; !done; ++looks) {
    Last last = this->last();
    EXPECT_EQ(last.note, "");
    EXPECT_TRUE(last.folder);
  }
  run.join();
  EXPECT_GT(looks, 100);
}

TEST_F(RunFolder, WhatIsToBeKnownOfACheckpointIsSaidOnce) {
  save_steps({1, 2});
  fs::remove(folder_ / "latest");
  ::testing::internal::CaptureStderr();
  train::UsedCheckpoint used(folder_.path());
  EXPECT_EQ(used.named(), folder_ / "step-2");
  EXPECT_EQ(used.named(), folder_ / "step-2");
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said, concat("'", folder_.path(), "/latest' is missing; goes on from '", folder_ / "step-2",
                         "', the newest that is whole\n"));
}

TEST_F(RunFolder, WhatKilledSavesHaveLeftIsRemovedAndNothingElse) {
  for (const char* name :
       {"step-1.tmp", "step-2.tmp-00ff", "step-3.tmp-zz", "step-4.tmpx", "step-x.tmp", "step-5.tmp-1"})
    fs::create_directory(folder_ / name);
  folder_.write("step-2.tmp-00ff/model.safetensors", "half");
  folder_.write("step-5.tmp-1/notes", "mine");
  folder_.write(".seen-77-123", "of a start");
  train::remove_unfinished(folder_.path());
  EXPECT_THAT(names(), ElementsAre("step-3.tmp-zz", "step-4.tmpx", "step-5.tmp-1", "step-x.tmp"));
}

TEST_F(RunFolder, WhatIsLeftWhileASaveIsUnderWayGoesWithItsCommit) {
  for (const char* name : {"step-1.tmp-3f", "step-2.tmp"}) fs::create_directory(folder_ / name);
  EXPECT_EQ(train::commit_checkpoint(folder_.path(), folder_ / "step-2.tmp", 2, {}), "");
  EXPECT_THAT(names(), ElementsAre("latest", "step-2"));
}

TEST_F(RunFolder, AFolderOfThatNameWithOtherFilesIsRefusedBeforeAnythingIsWritten) {
  fs::create_directory(folder_ / "step-3");
  folder_.write("step-3/notes", "mine");
  EXPECT_THAT(error_of([&] { save_steps({3}); }), HasSubstr("step-3' holds other files than a checkpoint's"));
  EXPECT_THAT(names(), ElementsAre("step-3"));
  EXPECT_EQ(read_file(folder_ / "step-3/notes"), "mine");
}

TEST_F(RunFolder, AnOldOneThatCannotBeRemovedDoesNotHarmTheNewOne) {
  save_steps({1});
  DiskWatch watch(folder_.path());
  watch.let_fail("unlinkat", EACCES);
  save_steps({2}, {.count = 1});
  EXPECT_EQ(last().folder, folder_ / "step-2");
}

TEST_F(RunFolder, RoomIsAskedForAndGivenBack) {
  train::check_room(folder_.path(), 1 << 20);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  EXPECT_THAT(error_of([&] { train::check_room(folder_.path(), int64_t(1) << 60); }),
              HasSubstr("cannot take 1152921504606846976 bytes more"));
  EXPECT_THAT(error_of([&] { train::check_room(folder_.path(), int64_t(1) << 40, int64_t(1) << 30); }),
              HasSubstr("cannot take 9223372036854775807 bytes more"))
      << "more than can be counted";
  DiskWatch watch(folder_.path());
  watch.let_fail("fallocate", EDQUOT);
  EXPECT_THAT(error_of([&] { train::check_room(folder_.path(), 100); }), HasSubstr("Disk quota exceeded"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

// A start that is killed while it asks leaves no file as large as its checkpoints.
TEST_F(RunFolder, RoomIsAskedForWithoutAName) {
  pid_t child = fork();
  if (child == 0) {
    rlimit most{.rlim_cur = 4096, .rlim_max = 4096};
    setrlimit(RLIMIT_FSIZE, &most);  // the system kills who makes a longer file
    train::check_room(folder_.path(), 1 << 20);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

}  // namespace
}  // namespace shardgrad
