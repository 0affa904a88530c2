// How a process ended, as another one learns it.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include <shardgrad/dist/os/process_watch.h>

namespace shardgrad::dist::testing {
namespace {

// What is known of a process that does the deed and exits with code 3.
std::string known_end(const std::function<void()>& deed, bool waited_for) {
  pid_t pid = fork();
  if (pid == 0) {
    deed();
    _exit(3);
  }
  ProcessWatch watch(pid);
  siginfo_t info;
  waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT);
  if (waited_for) waitpid(pid, nullptr, 0);
  std::string how = watch.how_it_ended();
  if (!waited_for) waitpid(pid, nullptr, 0);
  return how;
}

TEST(ProcessWatch, SaysHowAProcessEnded) {
  EXPECT_EQ(known_end([] {}, false), "exited with code 3");
  EXPECT_EQ(known_end([] { raise(SIGKILL); }, false), "killed by signal 9 (Killed)");
}

// From Linux 6.15 on the system knows it then, too.
TEST(ProcessWatch, OfOneThatItsParentHasWaitedForItSaysTheTruthOrNothing) {
  std::string how = known_end([] {}, true);
  EXPECT_TRUE(how == "exited with code 3" || how.empty()) << how;
  how = known_end([] { raise(SIGKILL); }, true);
  EXPECT_TRUE(how == "killed by signal 9 (Killed)" || how.empty()) << how;
}

}  // namespace
}  // namespace shardgrad::dist::testing
