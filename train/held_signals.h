#pragma once
// Between a signal that ends the process and what would be left behind by that.

#include <csignal>
#include <initializer_list>

#include <shardgrad/core/error.h>

namespace shardgrad::train {

/// While it lives, signals that would end the process (Ctrl-C, SIGTERM, SIGHUP) wait; then they do. What is unfinished
/// is made after this, and so removed before.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      if (action.sa_handler == SIG_DFL) sigaddset(&held_, number);
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  /// Throws Error(input) when one waits.
  void check() const {
    sigset_t waiting;
    sigpending(&waiting);
    for (int number : {SIGINT, SIGTERM, SIGHUP})
      SG_CHECK(!sigismember(&held_, number) || !sigismember(&waiting, number), "interrupted; nothing of it is left");
  }

 private:
  sigset_t held_, before_;
};

}  // namespace shardgrad::train
