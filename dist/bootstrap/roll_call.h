#pragma once
// What a launcher sees of a job whose ranks have not all begun. A rank may take its time, but one that does nothing at
// all (stopped by a signal, asleep in a file system that does not answer) would be waited for without an end, by ranks
// that cannot know why.

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <shardgrad/dist/os/process_watch.h>

namespace shardgrad::dist {

/// Processes by rank; a rank that a shell has started has two.
using RankProcesses = std::map<int, std::vector<pid_t>>;

class RollCall {
 public:
  RollCall();
  /// Looks at the ranks that have not begun; to be called several times a second. Warns once of those that have done
  /// nothing for a while, and after rendezvous_limit() returns the sentence that ends the job; otherwise "".
  std::string look(const RankProcesses& missing);

 private:
  std::string those_still_for(std::chrono::milliseconds limit, const RankProcesses& missing) const;
  std::map<pid_t, Stillness> stillness_;
  std::chrono::milliseconds limit_, warn_after_;
  bool warned_ = false;
};

/// The ranks of one mpirun on this machine, from their start until all have found each other.
class MpirunWatch {
 public:
  /// `report` is the launcher's file that the ranks write to (dist/os/report.h).
  explicit MpirunWatch(std::string report) : report_(std::move(report)) {}
  /// Looks around. When the job does not begin any more, kills its ranks and returns why; otherwise "".
  std::string look();
  /// "rank 1 (pid 7)", which ended first with this status of waitpid, as far as the system says; else "a rank".
  std::string whose(int status);

 private:
  using Clock = std::chrono::steady_clock;
  void note_dead();
  std::string report_;
  RollCall roll_call_;
  std::map<pid_t, std::pair<int, ProcessWatch>> watched_;  // that live, with their ranks
  std::map<std::string, std::string> first_ended_;         // who ended first in each way
  Clock::time_point began_ = Clock::now(), next_ = began_;
  bool met_ = false;
};

}  // namespace shardgrad::dist
