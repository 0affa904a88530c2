#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include <shardgrad/core/error.h>
#include <shardgrad/train/checkpoint/run_lock.h>

#include "disk_watch.h"
#include "temporary_folder.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using train::RunLock;
namespace fs = std::filesystem;

// A second is a long time here.
constexpr RunLock::Times kShort{.beat = std::chrono::milliseconds(20), .forgotten = std::chrono::milliseconds(300)};

std::string lock_refusal(const std::string& run, RunLock::Times times = {}) {
  return error_of([&] { RunLock lock(run, times); });
}

void make_older(const std::string& path, int seconds) {
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  timespec times[2] = {status.st_mtim, status.st_mtim};
  for (timespec& time : times) time.tv_sec -= seconds;
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(RunLock, ASecondJobIsRefusedAndBothAreNamed) {
  TemporaryFolder folder;
  RunLock lock(folder.path());
  std::string message = lock_refusal(folder.path()), process = concat("process ", getpid(), " on ");
  EXPECT_THAT(message, HasSubstr("' is being written by another job: " + process));
  EXPECT_THAT(message, HasSubstr("; this one is " + process));
  EXPECT_THAT(message, HasSubstr("set another name"));
  lock.check();
}

TEST(RunLock, GoesWithItsOwnerAndLeavesNothing) {
  TemporaryFolder folder;
  { RunLock lock(folder.path()); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(lock_refusal(folder.path()), "no error");
}

TEST(RunLock, OneThatCannotBeReadAtTheEndStaysAndIsFree) {
  TemporaryFolder folder;
  std::optional<RunLock> lock(std::in_place, folder.path());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};  // no file can be opened any more
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  lock.reset();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(fs::exists(folder / "lock"));
  EXPECT_EQ(lock_refusal(folder.path()), "no error");
}

TEST(RunLock, WhereItsOwnersNameDoesNotFitOnTheDiskNothingStaysTaken) {
  TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* by_default = std::signal(SIGXFSZ, SIG_IGN);  // then a write fails
  rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  std::string message = lock_refusal(folder.path());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, by_default);
  EXPECT_THAT(message, HasSubstr("cannot write '"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(lock_refusal(folder.path()), "no error");
}

TEST(RunLock, OfAKilledProcessIsFree) {
  TemporaryFolder folder;
  pid_t child = fork();
  if (child == 0) {
    RunLock lock(folder.path());
    _exit(0);  // as if killed: no destructor
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder / "lock"));
  EXPECT_EQ(lock_refusal(folder.path()), "no error");
}

TEST(RunLock, NothingIsLeftOfALongerNameInIt) {
  TemporaryFolder folder;
  folder.write("lock", "process 1234567 on " + std::string(300, 'x') + " since 2026-01-01 00:00:00 UTC\n");
  {
    RunLock lock(folder.path(), kShort);
    lock.check();
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// As where each machine sees its own locks only (Lustre's localflock): the system gives the lock to both jobs.
class JobElsewhere {
 public:
  explicit JobElsewhere(std::string path)
      : thread_([this, path] {
          for (; !ends_; std::this_thread::sleep_for(kShort.beat)) utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
        }) {}
  ~JobElsewhere() { ends_ = true; }

 private:
  std::atomic<bool> ends_ = false;
  std::jthread thread_;
};

TEST(RunLock, OfAnotherMachineIsRefusedWhileItsOwnerGivesASignAndTakenOverAfterwards) {
  TemporaryFolder folder;
  folder.write("lock", "process 1 on elsewhere since then\n");
  {
    JobElsewhere job(folder / "lock");
    EXPECT_THAT(lock_refusal(folder.path(), kShort),
                HasSubstr("is being written by another job: process 1 on elsewhere since then; this one is process"));
  }
  EXPECT_EQ(read_file(folder / "lock"), "process 1 on elsewhere since then\n") << "it is still the other's";
  EXPECT_EQ(lock_refusal(folder.path(), kShort), "no error") << "the refused one has let go of it";
}

TEST(RunLock, AnOwnerGivesSigns) {
  TemporaryFolder folder;
  RunLock lock(folder.path(), kShort);
  make_older(folder / "lock", 100);
  auto age = [&] { return fs::file_time_type::clock::now() - fs::last_write_time(folder / "lock"); };
  for (int i = 0; i < 200 && age() > std::chrono::seconds(50); ++i) std::this_thread::sleep_for(kShort.beat);
  EXPECT_LT(age(), std::chrono::seconds(50));
}

TEST(RunLock, OneThatWasRemovedIsTakenAgain) {
  TemporaryFolder folder;
  RunLock lock(folder.path());
  fs::remove(folder / "lock");
  lock.check();
  EXPECT_THAT(lock_refusal(folder.path()), HasSubstr("is being written by another job"));
}

TEST(RunLock, OneThatAnotherJobHasNowIsNoticed) {
  TemporaryFolder folder;
  RunLock lock(folder.path());
  fs::remove(folder / "lock");
  RunLock other(folder.path());
  EXPECT_THAT(error_of([&] { lock.check(); }), HasSubstr("has lost"));
  other.check();
  folder.write("lock", "process 1 on elsewhere\n");  // which does not see this machine's locks
  EXPECT_THAT(error_of([&] { other.check(); }), HasSubstr("(process 1 on elsewhere"));
}

TEST(RunLock, AFolderThatCannotBeWrittenIsRefused) {
  EXPECT_THAT(lock_refusal("/proc"), HasSubstr("cannot write '/proc/lock'"));
}

// Where a file system knows no flock, the file is the lock.
class RunLockWithoutFlock : public ::testing::TestWithParam<int> {
 protected:
  RunLockWithoutFlock() : watch_(folder_.path()) { watch_.let_fail("flock", GetParam()); }
  TemporaryFolder folder_;
  DiskWatch watch_;
};

TEST_P(RunLockWithoutFlock, ASecondJobIsRefusedUntilTheFirstHasEnded) {
  std::optional<RunLock> lock(std::in_place, folder_.path(), kShort);
  EXPECT_THAT(lock_refusal(folder_.path(), kShort), HasSubstr(concat("another job: process ", getpid())));
  lock->check();
  lock.reset();
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  EXPECT_EQ(lock_refusal(folder_.path()), "no error");
}

// A job that is started again a moment after it was killed goes on, and need not be started once more.
TEST_P(RunLockWithoutFlock, OneThatNobodyTouchesAnyMoreIsWaitedForAndTakenOver) {
  folder_.write("lock", "process 1 on elsewhere\n");
  auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(lock_refusal(folder_.path(), kShort), "no error");
  EXPECT_GT(std::chrono::steady_clock::now() - begin, kShort.forgotten / 2);
  folder_.write("lock", "process 1 on elsewhere\n");
  make_older(folder_ / "lock", 61);
  EXPECT_EQ(lock_refusal(folder_.path()), "no error") << "nobody has touched it for a minute";
  folder_.write("lock", "process 1 on elsewhere\n");
  JobElsewhere job(folder_ / "lock");
  EXPECT_THAT(lock_refusal(folder_.path(), kShort), HasSubstr("process 1 on elsewhere"));
}

INSTANTIATE_TEST_SUITE_P(Reasons, RunLockWithoutFlock, ::testing::Values(ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL));

}  // namespace
}  // namespace shardgrad
