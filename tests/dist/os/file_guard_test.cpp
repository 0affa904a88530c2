// Files that go with the process that needs them.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <shardgrad/dist/os/file_guard.h>

namespace shardgrad::dist::testing {
namespace {

class FileGuards : public ::testing::Test {
 protected:
  FileGuards() { std::ofstream(path_) << "text"; }
  ~FileGuards() override { std::filesystem::remove(path_); }
  bool is_gone_soon() const {
    for (int i = 0; i < 500 && std::filesystem::exists(path_); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !std::filesystem::exists(path_);
  }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("guarded-" + std::to_string(getpid()));
};

TEST_F(FileGuards, RemovesWhenItGoes) {
  { FileGuard guard({path_}); }
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it waits for that";
}

TEST_F(FileGuards, RemovesNothingOnceTheFilesAreSomebodyElses) {
  {
    FileGuard guard({path_});
    guard.keep();
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(FileGuards, RemovesWhenItsProcessGroupIsKilled) {
  pid_t owner = fork();
  if (owner == 0) {
    setpgid(0, 0);
    FileGuard guard({path_});
    kill(0, SIGKILL);
  }
  int status = 0;
  waitpid(owner, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(is_gone_soon());
}

}  // namespace
}  // namespace shardgrad::dist::testing
