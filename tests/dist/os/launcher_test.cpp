// A launcher that does not end by itself is ended, and no process that is not one.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>

#include <array>
#include <thread>

#include <shardgrad/dist/os/launcher.h>
#include <shardgrad/dist/os/process_watch.h>
#include <tests/dist/child.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;

/// A process of this name whose two children are a rank, which asks for its end and ends, and what stands for ssh. The
/// rank may be the child of a script.
struct Launcher {
  explicit Launcher(const char* name, const char* script = nullptr)
      : ends_(pipe_ends()), process_([&] { launch(name, script); }), watch_(process_.pid()) {
    close(ends_[1]);
    EXPECT_EQ(read(ends_[0], &ssh_, sizeof(ssh_)), ssize_t(sizeof(ssh_)));
  }
  ~Launcher() {
    kill(ssh_, SIGKILL);
    close(ends_[0]);
  }
  bool dies_within(std::chrono::milliseconds time) const {
    pollfd death{watch_.descriptor(), POLLIN, 0};
    return poll(&death, 1, int(time.count())) == 1;
  }
  bool ssh_is_there() const { return !stands_still(ssh_); }
  /// Whether all who have our output have closed it.
  bool output_ends_within(std::chrono::milliseconds time) const {
    pollfd end{ends_[0], POLLIN, 0};
    return poll(&end, 1, int(time.count())) == 1 && (end.revents & POLLHUP);
  }

 private:
  static std::array<int, 2> pipe_ends() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    return ends;
  }
  void launch(const char* name, const char* script) {
    prctl(PR_SET_NAME, name);
    pid_t ssh = fork();
    if (ssh == 0) {
      close(ends_[1]);
      for (;;) pause();
    }
    if (fork() == 0) {
      if (script && prctl(PR_SET_NAME, script) == 0 && fork() != 0) {
        close(ends_[1]);
        wait(nullptr);
        _exit(1);
      }
      end_launcher_after(3s);
      _exit(1);
    }
    if (write(ends_[1], &ssh, sizeof(ssh)) != sizeof(ssh)) _exit(1);
    close(ends_[1]);
    for (;;) pause();
  }
  std::array<int, 2> ends_;
  Child process_;
  ProcessWatch watch_;
  pid_t ssh_ = 0;
};

TEST(Launcher, OneThatStaysIsKilledWithAllThatItHasStarted) {
  Launcher mpirun("mpirun"), daemon("orted"), script("mpirun", "sh");
  for (const Launcher* launcher : {&mpirun, &daemon, &script})
    EXPECT_TRUE(launcher->output_ends_within(2s)) << "who waits for the job's output waits for nobody else";
  EXPECT_FALSE(mpirun.dies_within(0ms)) << "it has its time";
  for (const Launcher* launcher : {&mpirun, &daemon, &script}) {
    EXPECT_TRUE(launcher->dies_within(30s));
    for (int i = 0; i < 1000 && launcher->ssh_is_there(); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(launcher->ssh_is_there());
  }
}

// A shell, and daemons that serve many jobs.
TEST(Launcher, OtherParentsAreLeftAlone) {
  Launcher shell("bash"), daemon("prted"), slurm("slurmstepd"), other("mpirun-wrapper");
  EXPECT_FALSE(shell.dies_within(6s));
  for (const Launcher* launcher : {&shell, &daemon, &slurm, &other}) {
    EXPECT_FALSE(launcher->dies_within(0s));
    EXPECT_TRUE(launcher->ssh_is_there());
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
