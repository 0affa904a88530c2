#pragma once
// A child process in a known state, for as long as the object lives.

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <utility>

namespace shardgrad::dist::testing {

class Child {
 public:
  explicit Child(const std::function<void()>& deed) : pid_(fork()) {
    if (pid_ == 0) {
      deed();
      _exit(0);
    }
  }
  /// One that this process holds as a debugger does; tracer_of says so where the system permits it.
  static Child traced() {
    Child child([] {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      raise(SIGSTOP);
    });
    waitpid(child.pid_, nullptr, WUNTRACED);
    return child;
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ~Child() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace shardgrad::dist::testing
