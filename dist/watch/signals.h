#pragma once
// The signals that ask a program to save and end, or that end it. They are read by the monitor, not handled: nothing
// runs in the middle of anything.

#include <signal.h>

namespace shardgrad::dist {

/// While it lives, SIGTERM, SIGUSR1 and SIGINT are for who reads descriptor(), a signalfd, and SIGXFSZ and SIGPIPE are
/// ignored. It is made before the threads that inherit its mask.
class Signals {
 public:
  /// `with_process`: the process ends soon after. A request to save that comes too late does not end it before, nor
  /// does the end of its terminal where it was ignored.
  explicit Signals(bool with_process = true);
  ~Signals();
  Signals(const Signals&) = delete;
  /// All of them do what they did before.
  void give_back();
  /// SIGINT does.
  void give_interrupts_back();
  /// SIGHUP is read, too, unless it was ignored, as under nohup.
  void take_hangups();
  /// SIGHUP is ignored.
  void ignore_hangups();
  /// Whether there is one in this process: a second one would not give back what the first one has taken.
  static bool taken();
  int descriptor() const { return descriptor_; }
  bool pending() const;

 private:
  static constexpr int kSignals[] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};
  static constexpr int kAlways = 3;
  void take(int index);
  void give(int index);
  sigset_t before_, mask_;
  struct sigaction actions_[4], too_large_, no_reader_;
  bool taken_[4] = {}, ignores_hangups_ = false, with_process_;
  int descriptor_;
};

}  // namespace shardgrad::dist
