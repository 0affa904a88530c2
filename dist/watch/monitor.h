#pragma once
// The thread that watches the other ranks for one rank, through the control page. It ends the job, with one sentence on
// who, where and why, when a rank has died, has stopped, has diverged, or has left a collective that others wait in. It
// is slow to judge everything else:
//   - a rank that is alive and late is named after `warn_after`, then each `warn_again`, and only ends the job after
//     `stall_limit`;
//   - after a gap in its own clock (Ctrl-Z and fg, a suspended machine) it starts all its windows anew;
//   - a rank under a debugger is not judged, and it says so;
//   - threads of one process are not judged by their heartbeats: they cannot stop alone;
//   - a rank on another machine, whose heartbeats come once a second, is looked at as rarely.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/thread.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/dist/watch/watch_options.h>

namespace shardgrad::dist {

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
  void watch_heartbeat(int rank);
  std::vector<int> missed_with(int rank) const;
  bool watch_start(int rank);
  void watch_lane(int lane);
  void read_signals();
  // stop: between two steps, as Control::request_stop says; end: as a failure, once the cause has had time to be told.
  enum class Meaning { nothing, stop, end, end_at_once };
  Meaning meaning_of(int signal) const;
  bool was_asked_within(Clock::duration time) const;
  void tell();
  bool excuse(int rank);
  bool all_begun();
  bool is_elsewhere(int rank) const { return elsewhere_[size_t(rank)]; }
  void warn(const std::string& text) const;
  const Row& row(int rank) const { return control_->page().row(rank); }

  std::shared_ptr<Control> control_;
  WatchOptions options_;
  Context& context_;
  std::vector<Peer> peers_;
  std::vector<bool> elsewhere_;    // by rank
  std::vector<int> here_;          // the other ranks of this machine
  int begun_ = 0;                  // the first ranks, of which all have begun
  Clock::time_point next_look_{};  // at ranks elsewhere
  std::vector<Wait> waits_;        // by lane
  ProcessWatch parent_;
  Clock::time_point now_;
  Clock::time_point asked_{}, ends_{};  // when the job was asked to stop, and a signal came that ends it
  bool interrupted_ = false;            // one of those that asked was SIGINT
  bool terminated_ = false;             // one of all was SIGTERM
  int told_by_ = 0;                     // the signal that ends the job
  int wake_;                            // an eventfd
  Thread thread_;
};

}  // namespace shardgrad::dist
