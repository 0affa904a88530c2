#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/appended_file.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/run_report.h>

#include "checkpoint_files.h"
#include "disk_watch.h"

namespace shardgrad {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

class CheckpointsOnDisk : public CheckpointFiles {
 protected:
  // Saves step 2 in `folder` beside step 1, in a process that ends before the `number`-th call that changes files
  // there. False when there are not so many.
  bool save_and_end_before(int number, const std::string& folder) {
    pid_t child = fork();
    if (child == 0) {
      dist::run_ranks(2,
                      [&](dist::ProcessGroup& world) {
                        static std::optional<DiskWatch> watch;
                        Trained trained(world, fsdp::Strategy::zero3, 2);
                        if (world.rank() == 0)
                          watch.emplace(folder).end_before(number, folder + " lost", folder + " torn");
                        world.barrier();
                        train::save_checkpoint(folder, config_, {2, 20, 7, {}}, trained.state());
                      },
                      {.threads = 1});
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_THAT(WEXITSTATUS(status), AnyOf(0, DiskWatch::kEnded));
    return WEXITSTATUS(status) == DiskWatch::kEnded;
  }
  // The step of the checkpoint that `folder` holds, whose every byte is that of the one saved in peace.
  int64_t step_in(const std::string& folder, const std::map<int64_t, std::string>& expected) {
    std::string last = train::latest_checkpoint(folder).value();
    std::string model = read_file(last + "/model.safetensors"), optimizer = read_file(last + "/optimizer.safetensors");
    int64_t step = std::stoll(last.substr(last.rfind('-') + 1));
    EXPECT_EQ(model + optimizer, expected.at(step)) << folder;
    return step;
  }
};

// Killed, or without power, at any moment between the first call and the last: the checkpoint before or the new one is
// there, whole, and the run goes on from it.
TEST_F(CheckpointsOnDisk, B29_AtEveryStopTheLastOrTheNewCheckpointIsWhole) {
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 1);
    save(trained, 1);
  });
  std::map<int64_t, std::string> expected{{1, bytes("model.safetensors") + bytes("optimizer.safetensors")}};
  std::string peace = folder_ / "peace";
  auto copy_run = [&](const std::string& to) {
    fs::create_directory(to);
    for (const char* name : {"latest", "step-1"})
      fs::copy(folder_ / name, to + "/" + name, fs::copy_options::recursive);
    fs::create_symlink("step-1/model.safetensors", to + "/model.safetensors");
  };
  // Whether the link to the newest model is one checkpoint old, which who goes on mends.
  auto mends_link = [](const std::string& run) {
    std::string link = run + "/model.safetensors", last = *train::latest_checkpoint(run);
    bool is_old = !fs::equivalent(link, last + "/model.safetensors");
    EXPECT_EQ(train::link_model(run, fs::path(last).filename()), "");
    EXPECT_TRUE(fs::equivalent(link, last + "/model.safetensors"));
    return is_old;
  };
  copy_run(peace);
  ASSERT_FALSE(save_and_end_before(0, peace));
  expected[2] = read_file(peace + "/step-2/model.safetensors") + read_file(peace + "/step-2/optimizer.safetensors");
  std::map<std::string, std::set<int64_t>> seen;
  int number = 1, old_links = 0;
  for (;; ++number) {
    std::string run = folder_ / concat("run ", number);
    copy_run(run);
    if (!save_and_end_before(number, run)) break;
    old_links += mends_link(run);
    for (const char* how : {"", " lost", " torn"}) {
      SCOPED_TRACE(concat("ended before call ", number, how));
      seen[how].insert(step_in(run + how, expected));
      fs::remove_all(run + how);
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(number, 30) << "calls";
  EXPECT_GT(old_links, 0) << "or nothing was to be mended";
  for (const char* how : {"", " lost", " torn"}) EXPECT_EQ(seen[how], (std::set<int64_t>{1, 2})) << how;
}

// Of two changes of a folder a power cut may keep the later one and not the earlier.
TEST_F(CheckpointsOnDisk, ACheckpointHasItsNameOnTheDiskBeforeAnythingNamesIt) {
  fs::create_directory(folder_ / "step-2.tmp");
  DiskWatch watch(folder_.path());
  train::commit_checkpoint(folder_.path(), folder_ / "step-2.tmp", 2, {.is_best = true});
  std::vector<std::string> calls = watch.calls();
  ASSERT_GE(calls.size(), 4u);
  EXPECT_THAT(std::vector(calls.begin(), calls.begin() + 4), ElementsAre("fsync", "rename", "fsync", "write"));
}

// Whenever it is killed: what goes on from the best one so far knows that it is.
TEST_F(CheckpointsOnDisk, TheBestOneIsNamedSoBeforeItIsTheLatest) {
  int number = 1, status = 0, latest = 0;
  do {
    std::string run = folder_ / concat("run ", number);
    fs::create_directories(run + "/step-2.tmp");
    pid_t child = fork();
    if (child == 0) {
      DiskWatch watch(run);
      watch.end_before(number, run + " lost", run + " torn");
      train::commit_checkpoint(run, run + "/step-2.tmp", 2, {.is_best = true});
      _exit(0);
    }
    waitpid(child, &status, 0);
    for (const std::string& left : {run, run + " lost", run + " torn"}) {
      if (!fs::exists(left + "/latest")) continue;
      EXPECT_TRUE(fs::exists(left + "/best")) << "ended before call " << number;
      ++latest;
    }
    ++number;
  } while (WEXITSTATUS(status) == DiskWatch::kEnded);
  EXPECT_EQ(status, 0);
  EXPECT_GT(latest, 3);
}

// A process that was killed leaves no more than the next save removes.
TEST_F(CheckpointsOnDisk, TheNextSaveRemovesWhatAKilledOneLeft) {
  save_on_one_rank();
  fs::rename(folder_ / "step-2", folder_ / "step-1");
  folder_.write("latest", "step-1\n");
  for (int number : {3, 20, 40}) ASSERT_TRUE(save_and_end_before(number, folder_.path()));
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 0);
    save(trained, 3);
  });
  for (const char* how : {" lost", " torn"}) fs::remove_all(folder_.path() + how);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-3"}));
}

// Replicas hold the same values; one of each writes them.
TEST_F(CheckpointsOnDisk, EveryByteIsWrittenOnceWhateverTheStrategy) {
  for (auto strategy : {fsdp::Strategy::zero3, fsdp::Strategy::ddp, fsdp::Strategy::hybrid}) {
    std::optional<DiskWatch> watch;
    dist::run_ranks(4, [&](dist::ProcessGroup& world) {
      Trained trained(world, strategy, 1);
      if (world.rank() == 0) watch.emplace(folder_.path());
      world.barrier();
      save(trained, 1);
      world.barrier();
    });
    EXPECT_EQ(watch->written(), tensors("model.safetensors").size() + tensors("optimizer.safetensors").size());
    watch.reset();
    fs::remove(folder_ / "latest");
  }
}

// A power cut leaves the file of before, or the new one.
TEST_F(CheckpointsOnDisk, AStateSavedInOneCallGetsItsNameWhenTheDiskHasAllOfIt) {
  Context context;
  DiskWatch watch(folder_.path());
  train::save_safetensors(folder_ / "a", {{"x", ones({4})}});
  std::vector<std::string> calls = watch.calls();
  ASSERT_GE(calls.size(), 3u);
  EXPECT_THAT(std::vector(calls.end() - 3, calls.end()), ElementsAre("fsync", "rename", "fsync"));
}

// On a file system of one machine, the disk is waited for once per file and rank; where machines keep pages of their
// own (NFS, SMB, CIFS, SMB2, 9P, FUSE), at every write.
TEST_F(CheckpointsOnDisk, EveryWriteWaitsForTheDiskOnlyWhereMachinesKeepPages) {
  for (long magic : {0L, long(NFS_SUPER_MAGIC), long(SMB_SUPER_MAGIC), long(int32_t(0xFF534D42)), 0xFE534D42L,
                     long(V9FS_MAGIC), 0x65735546L}) {
    train::SafetensorsFile::create(folder_ / "a", {{"x", {{4}, DType::f32}}});
    DiskWatch watch(folder_.path());
    if (magic) watch.pretend_file_system(magic);
    Context context;
    train::SafetensorsFile file(folder_ / "a", train::SafetensorsFile::Access::write);
    for (int64_t i = 0; i < 4; ++i) file.write("x", i, from_vector<float>({1}, {1}));
    file.sync();
    EXPECT_EQ(watch.synced_writes(), magic ? 4 : 0);
    EXPECT_THAT(watch.calls(), ElementsAre("pwrite", "pwrite", "pwrite", "pwrite", "fsync"));
  }
}

// Some file systems promise no space; then the file is only made long, and no block of it written.
TEST_F(CheckpointsOnDisk, AFileSystemThatPromisesNoSpaceCostsNothing) {
  for (int refusal : {EOPNOTSUPP, ENOSYS}) {
    DiskWatch watch(folder_.path());
    watch.let_fail("fallocate", refusal);
    train::SafetensorsFile::create(folder_ / "a", {{"x", {{1000}, DType::f64}}});
    EXPECT_THAT(watch.calls(), ElementsAre("write", "fallocate", "ftruncate"));
    EXPECT_EQ(train::SafetensorsFile(folder_ / "a", train::SafetensorsFile::Access::read).tensors().size(), 1);
  }
  DiskWatch watch(folder_.path());
  watch.let_fail("fallocate", ENOSPC);
  EXPECT_THAT(error_of([&] {
                train::SafetensorsFile::create(folder_ / "b", {{"x", {{1}, DType::f32}}});
              }),
              HasSubstr("/b': No space left on device"));
}

// Why a file could not be written is what the system says, not a guess.
TEST_F(CheckpointsOnDisk, AFailedWriteIsToldWithItsReasonAndLeavesNothing) {
  save_on_one_rank();
  struct Fault {
    const char* call;
    int error;
    const char* said;
  };
  for (const Fault& fault : {Fault{"pwrite", EDQUOT, "/model.safetensors': Disk quota exceeded"},
                             {"write", EIO, "/model.safetensors': Input/output error"},
                             {"close", EDQUOT, "/model.safetensors': Disk quota exceeded"},
                             {"fsync", EIO, "/model.safetensors': Input/output error"},
                             {"fallocate", ENOSPC, "/model.safetensors': No space left on device"},
                             {"mkdir", EROFS, "Read-only file system"},
                             {"rename", EACCES, "Permission denied"}}) {
    std::string message = error_of([&] {
      dist::run_ranks(1, [&](dist::ProcessGroup& world) {
        Trained trained(world, fsdp::Strategy::zero3, 1);
        DiskWatch watch(folder_.path());
        watch.let_fail(fault.call, fault.error);
        save(trained, 3);
      });
    });
    EXPECT_THAT(message, HasSubstr(fault.said)) << fault.call;
    EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-2"})) << fault.call;
  }
}

// One rank of several: all hear of it, name it, and leave the last checkpoint whole.
TEST_F(CheckpointsOnDisk, ARankThatCannotWriteIsNamedOnAllRanks) {
  save_on_one_rank();
  for (const char* call : {"pwrite", "fsync"}) {
    std::optional<DiskWatch> watch;
    dist::run_ranks(3, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero3, 1);
      if (world.rank() == 1) watch.emplace(folder_.path()).let_fail_here(call, ENOSPC);
      world.barrier();
      std::string message = error_of([&] { save(trained, 3); });
      EXPECT_THAT(message, HasSubstr("/model.safetensors': No space left on device"));
      EXPECT_EQ(message.starts_with("rank 1: "), world.rank() != 1);
      world.barrier();
    });
    watch.reset();
    EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-2"}));
  }
  EXPECT_EQ(refusal(), "no error");
}

std::vector<std::string> lines_in(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

size_t times(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

train::Metrics line_of(int64_t step) { return {.step = step, .scores = {{"accuracy", 0.5}}}; }

TEST(FilesOfARun, AFailedWriteIsToldWithItsReasonAndLeavesNothing) {
  TemporaryFolder folder;
  train::Config config;
  config.runs = folder.path();
  std::ostringstream out;
  train::RunReport report(config, out);
  DiskWatch watch(folder.path());
  watch.let_fail("write", EDQUOT);
  EXPECT_THAT(error_of([&] { report.write("trace.json", "{}"); }), HasSubstr("/trace.json.tmp': Disk quota exceeded"));
  for (int i = 0; i < 2; ++i) report.try_write("trace.json", "{}");
  report.write_ledger(Ledger());
  EXPECT_EQ(times("/trace.json.tmp': Disk quota exceeded; the run goes on without it\n", out.str()), 1);
  EXPECT_THAT(out.str(), HasSubstr("/ledger.json.tmp': Disk quota exceeded; the run goes on without it\n"));
  for (const char* file : {"/trace.json.tmp", "/ledger.json.tmp"}) EXPECT_FALSE(fs::exists(report.folder() + file));
}

// A disk that is full for a while ends no run: it says so once of each file, and every record gets there once.
TEST(FilesOfARun, LinesAndEventsThatTheDiskHasNoRoomForAreAddedLater) {
  TemporaryFolder folder, peace;
  std::ostringstream out;
  train::Config config;
  config.tensorboard = true;
  auto events_of = [](const std::string& run) {
    for (const auto& entry : fs::directory_iterator(run))
      if (entry.path().filename().string().starts_with("events.")) return fs::file_size(entry.path());
    return uintmax_t(0);
  };
  auto report_in = [&](const TemporaryFolder& runs) {
    config.runs = runs.path();
    return std::make_unique<train::RunReport>(config, out);
  };
  auto report = report_in(folder), other = report_in(peace);
  for (int64_t step = 1; step <= 6; ++step) other->on_logged(line_of(step));
  report->on_logged(line_of(1));
  DiskWatch watch(folder.path());
  watch.let_fail("pwrite", ENOSPC);
  for (int64_t step = 2; step <= 4; ++step) report->on_logged(line_of(step));
  EXPECT_EQ(lines_in(report->folder() + "/metrics.jsonl").size(), 1);
  for (const char* file : {"/metrics.jsonl", "/events.out"}) EXPECT_EQ(times(file, out.str()), 1) << out.str();
  EXPECT_THAT(out.str(), HasSubstr("metrics.jsonl': No space left on device; the run goes on"));
  watch.let_fail("pwrite", 0);
  for (int64_t step = 5; step <= 6; ++step) report->on_logged(line_of(step));
  EXPECT_EQ(read_file(report->folder() + "/metrics.jsonl"), read_file(other->folder() + "/metrics.jsonl"));
  EXPECT_EQ(events_of(report->folder()), events_of(other->folder()));
}

// A run goes on from a checkpoint with the lines until there, so they are tried again when it is saved, and at the end.
TEST(FilesOfARun, WhatWaitsIsTriedAgainWithEachCheckpointAndAtTheEnd) {
  TemporaryFolder folder;
  std::ostringstream out;
  train::Config config;
  config.runs = folder.path();
  train::RunReport report(config, out);
  auto count = [&] { return lines_in(report.folder() + "/metrics.jsonl").size(); };
  DiskWatch watch(folder.path());
  auto add_on_full_disk = [&](int64_t step) {
    watch.let_fail("pwrite", ENOSPC);
    report.on_logged(line_of(step));
    watch.let_fail("pwrite", 0);
  };
  add_on_full_disk(1);
  EXPECT_EQ(count(), 0);
  report.on_save({});
  EXPECT_EQ(count(), 1);
  add_on_full_disk(2);
  train::Result end{.scores = {{"accuracy", 0.5}}};
  report.on_end(end);
  EXPECT_EQ(count(), 2);
  EXPECT_THAT(out.str(), ::testing::Not(HasSubstr("missing there")));
  watch.let_fail("pwrite", ENOSPC);
  report.on_logged(line_of(3));
  report.on_end(end);
  EXPECT_THAT(out.str(), HasSubstr("metrics.jsonl': No space left on device; 1 records are missing there\ndone:"));
}

// A disk that takes a part of a line takes it back.
TEST(FilesOfARun, APartOfALineIsNeverLeft) {
  TemporaryFolder folder;
  train::AppendedFile file(folder / "lines");
  file.add("first\n");
  {
    DiskWatch watch(folder.path());
    watch.write_at_most(3);
    watch.fail_after("pwrite", 1, ENOSPC);
    file.add("second\n");
    EXPECT_EQ(read_file(folder / "lines"), "first\n");
    EXPECT_EQ(file.missing(), 1);
  }
  file.add("third\n");
  EXPECT_EQ(read_file(folder / "lines"), "first\nsecond\nthird\n");
  EXPECT_EQ(file.missing(), 0);
  EXPECT_EQ(file.trouble(), "");
}

// What waits has a bound, and what is above it is counted.
TEST(FilesOfARun, WhatWaitsForTheDiskHasABound) {
  TemporaryFolder folder;
  train::AppendedFile file(folder / "lines");
  {
    DiskWatch watch(folder.path());
    watch.let_fail("pwrite", ENOSPC);
    for (int i = 0; i < 3; ++i) file.add(std::string(train::AppendedFile::kMostWaiting / 2, 'x'));
    EXPECT_EQ(file.missing(), 3);
  }
  file.retry();
  EXPECT_EQ(file.missing(), 1);
  EXPECT_THAT(file.trouble(), HasSubstr("No space left"));
  EXPECT_EQ(fs::file_size(folder / "lines"), train::AppendedFile::kMostWaiting);
}

TEST(FilesOfARun, WhatTheSystemWritesInPiecesArrivesWhole) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/trace.json", text(1000, '.');
  text.back() = '!';
  DiskWatch watch(folder.path());
  watch.write_at_most(64);
  train::write_file(path, text);
  EXPECT_EQ(read_file(path), text);
}

// A folder that rank 0 cannot write to either is no folder that rank 1 does not see.
TEST(FilesOfARun, AFolderThatCannotBeWrittenIsNotCalledUnshared) {
  std::string message = error_of(
      [] { dist::run_ranks(2, [](dist::ProcessGroup& world) { train::check_folder_is_shared(world, "/proc"); }); });
  EXPECT_THAT(message, HasSubstr("cannot write '/proc': No such file or directory; a run writes into its folder"));
}

}  // namespace
}  // namespace shardgrad
