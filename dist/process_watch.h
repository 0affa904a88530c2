#pragma once
// What the operating system says about other processes of this machine.

#include <sys/types.h>

#include <string>

namespace shardgrad::dist {

/// A handle on a process that becomes readable when it dies (a pidfd), and closes itself. Empty when the system has
/// none.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  explicit ProcessWatch(pid_t pid);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&& other) noexcept;
  pid_t pid() const { return pid_; }
  /// For poll(); -1 when empty.
  int descriptor() const { return descriptor_; }
  bool died() const;
  /// "killed by signal 9 (Killed)", "exited with code 3", or "" when the system does not say.
  std::string how_it_ended() const;

 private:
  pid_t pid_ = 0;
  int descriptor_ = -1;
  bool gone_ = false;  // was dead before the watch began
};

/// What a watcher says who cannot find out how a process ended.
inline constexpr const char* kUnknownEnd = "killed, crashed, or left without a word";
/// "killed by signal 9 (Killed)" or "exited with code 3", from a status as waitpid gives it.
std::string describe_status(int status);
/// The debugger's pid, or 0.
pid_t tracer_of(pid_t pid);
/// True for a process stopped by a signal (SIGSTOP, SIGTSTP).
bool is_stopped(pid_t pid);

}  // namespace shardgrad::dist
