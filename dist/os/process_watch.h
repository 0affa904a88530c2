#pragma once
// What the operating system says about other processes of this machine.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

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
/// Whether a process is dead or stopped by a signal: until something is done about it, it does not go on.
bool stands_still(pid_t pid);
/// Why a process does nothing, where that shows: " (stopped by a signal)" or " (in a system call that does not end,
/// …)"; otherwise "".
std::string why_still(pid_t pid);

/// A process, then its descendants, as far as the system says: children after their parents.
std::vector<pid_t> family_of(pid_t pid);

/// For how long a process has done nothing at all: it used no time of a CPU, and no debugger held it.
class Stillness {
 public:
  explicit Stillness(pid_t pid) : pid_(pid) {}
  /// To be called several times a second. After a pause (Ctrl-Z and fg, a suspended machine) it begins anew.
  void look();
  std::chrono::milliseconds time() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(seen_ - since_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  pid_t pid_;
  int64_t ticks_ = -1;
  Clock::time_point seen_{}, since_{};
};

}  // namespace shardgrad::dist
