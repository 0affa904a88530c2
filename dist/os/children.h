#pragma once
// The processes a launcher has started, and the signals it gets while they run. SIGINT and SIGTERM are passed on as
// SIGUSR1 (please save and end), a later one of them ends them; SIGHUP, the terminal's end, only asks and is not
// counted (under nohup it is nothing); SIGUSR1 as it is, to a child that is ready for it, which others would die of;
// SIGTSTP and SIGCONT stop and continue the children together with the launcher. Children run in process groups of
// their own, so that the terminal's Ctrl-C does not kill them first, and die with the launcher's thread.

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace shardgrad::dist {

/// A second signal within this time is the first one's: `timeout` sends each twice at once.
inline constexpr std::chrono::milliseconds kSameRequest{300};

class Children {
 public:
  struct Ended {
    int index;  ///< in order of start
    pid_t pid;
    int status;  ///< as waitpid gives it
  };
  /// Whether a child, by the order of start, has begun to listen to SIGUSR1.
  using Ready = std::function<bool(int index)>;
  /// Takes the signals over for its lifetime. `end` and `stop` are what ends and stops a child.
  explicit Children(Ready ready, int end = SIGKILL, int stop = SIGSTOP);
  /// Kills who is left.
  ~Children();
  Children(const Children&) = delete;

  /// Runs argv with these variables ("NAME=value") added to the environment. `death_signal` is what the child gets when
  /// this thread dies, `output` its standard output.
  void start(const std::vector<std::string>& argv, const std::vector<std::string>& variables, int death_signal,
             int output = STDOUT_FILENO);
  /// Calls `deed` in a process that is a copy of this one, and ends it with what that returns. Of this process's
  /// threads it has only the calling one.
  void start(const std::function<int()>& deed, int death_signal);
  int alive() const;
  bool lives(int index) const { return children_[size_t(index)].alive; }
  pid_t pid(int index) const { return children_[size_t(index)].pid; }
  /// Waits a moment, passes signals on, and returns who has ended.
  std::vector<Ended> wait();
  void signal(int number);

 private:
  struct Child {
    pid_t pid;
    bool alive;
    int asked = 0;  // so often to save and end
  };
  bool fork_child(int death_signal);
  void read_signals();
  void ask_who_is_ready();
  std::vector<Child> children_;
  int end_, stop_;
  sigset_t before_, taken_;
  int signals_;
  Ready ready_;
  std::optional<std::chrono::steady_clock::time_point> requested_;  // when the first request to end came
  int asks_ = 0;                                                    // to save and end
};

/// A child's exit code in the manner of a shell: its own, or 128 + signal.
int exit_code_of(int status);

}  // namespace shardgrad::dist
