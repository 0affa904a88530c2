#pragma once
// The thread that watches the other ranks for one rank, through the control page. It ends the job, with one sentence on
// who, where and why, when a rank has died, has stopped, has diverged, or has left a collective that others wait in. It
// is slow to judge everything else:
//   - a rank that is alive and late is named after `warn_after`, then each `warn_again`, and only ends the job after
//     `stall_limit`;
//   - after a gap in its own clock (Ctrl-Z and fg, a suspended machine) it starts all its windows anew;
//   - a rank under a debugger is not judged, and it says so;
//   - threads of one process are not judged by their heartbeats: they cannot stop alone.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/thread.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/control.h>

namespace shardgrad::dist {

struct WatchOptions {
  std::chrono::milliseconds beat{100};
  std::chrono::milliseconds silence_limit{8000};  ///< no heartbeat for so long: the rank has stopped
  std::chrono::milliseconds warn_after{10000}, warn_again{60000};
  std::chrono::milliseconds deadlock_after{1000};  ///< ranks that wait for so long are searched for a deadlock
  std::chrono::milliseconds left_limit{5000};  ///< so long after a rank left a group by an exception, that is the cause
  std::chrono::milliseconds stall_limit{std::chrono::minutes(30)};
  /// A rank that has done nothing for so long before its first heartbeat does not begin any more.
  std::chrono::milliseconds start_limit{std::chrono::minutes(5)};
  std::chrono::milliseconds gap{2000};  ///< its own tick late by so much: this rank was suspended
  /// Where warnings go; by default standard error.
  std::function<void(const std::string&)> warn;
  bool processes = false;      ///< ranks are processes: watch those of this machine
  bool parent = false;         ///< the parent process is the launcher: watch it
  std::vector<int> elsewhere;  ///< ranks on other machines, of which only the page tells
  int signals = -1;            ///< a signalfd: SIGTERM ends the job, SIGUSR1 and SIGINT ask it to stop
  bool announce = false;       ///< on SIGTERM, print the cause before the launcher kills this process
  std::string cause_file;      ///< the launcher's: gets the cause as soon as it is known, and nobody prints it
};

class Monitor {
 public:
  /// Starts the thread, which carries the calling thread's context.
  Monitor(std::shared_ptr<Control> control, WatchOptions options);
  ~Monitor();
  Monitor(const Monitor&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    uint64_t beats = 0;
    Clock::time_point heard;
    ProcessWatch process;
    std::optional<Stillness> before;  // its first heartbeat
    bool excused = false;             // under a debugger, and said so
  };
  struct Wait {
    uint64_t sequence = 0;
    Clock::time_point since, next_warning;
    bool warned = false;
    Clock::time_point left;       // since when a member has left by an exception
    std::vector<Stuck> deadlock;  // as the last look found it
    Clock::time_point found;      // since when
  };

  void loop();
  void sleep();
  void restart_windows();
  void tick();
  void watch_processes();
  void watch_heartbeats();
  bool watch_start(int rank);
  void watch_lane(int lane);
  void read_signals();
  void tell();
  bool excuse(int rank);
  bool is_elsewhere(int rank) const;
  void warn(const std::string& text) const;
  const Row& row(int rank) const { return control_->page().row(rank); }

  std::shared_ptr<Control> control_;
  WatchOptions options_;
  Context& context_;
  std::vector<Peer> peers_;
  std::vector<Wait> waits_;  // by lane
  ProcessWatch parent_;
  Clock::time_point now_;
  Clock::time_point terminated_{};  // when SIGTERM came
  int wake_;                        // an eventfd
  Thread thread_;
};

}  // namespace shardgrad::dist
