#pragma once
// When the monitor (dist/watch/monitor.h) warns of other ranks, and when it ends the job.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace shardgrad::dist {

/// What a longer limit counts as: more does not fit into sums of times.
inline constexpr std::chrono::milliseconds kLongestLimit = std::chrono::hours(24 * 365);

struct WatchOptions {
  std::chrono::milliseconds beat{100};
  /// No heartbeat for so long: the rank has stopped. Those of other machines come once a second, and up to two late.
  std::chrono::milliseconds silence_limit{8000};
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
  int signals = -1;  ///< a signalfd: SIGTERM ends the job, SIGUSR1 and SIGINT ask it to stop (dist/watch/signals.h)
  /// SIGTERM and SIGHUP ask to stop, too: no launcher of this library hears them for the ranks.
  bool saves_when_told = false;
  bool ends_when_told = false;  ///< SIGUSR1, SIGINT and SIGHUP end the job, too: there is nothing to save
  bool announce = false;        ///< on SIGTERM, print the cause before the launcher kills this process
  std::string cause_file;       ///< the launcher's: gets the cause as soon as it is known, and nobody prints it
};

}  // namespace shardgrad::dist
