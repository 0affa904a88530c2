#pragma once
// Which CPUs a rank runs on, and how many threads it uses there.

#include <sched.h>

#include <optional>
#include <vector>

#include <shardgrad/dist/bootstrap/bootstrap.h>

namespace shardgrad::dist {

/// A CPU of the system (a hardware thread), and the core and package that it is part of.
struct CpuPlace {
  int package = 0, core = 0, cpu = 0;
  auto operator<=>(const CpuPlace&) const = default;
};
/// The CPUs of the `index`th of `ranks` ranks that divide `places` evenly: neighbours by package and core.
std::vector<int> share_of(std::vector<CpuPlace> places, int index, int ranks);

/// This rank's share of the node's CPUs. Ranks that may run on exactly the same ones divide them, so that none wanders
/// to where another computes. The calling thread, and all threads that it starts from then on, run on the share; where
/// ranks have more threads than CPUs, anywhere as before. To keep a job off some CPUs start it under taskset; a
/// launcher that has bound each rank somewhere else leaves nothing to divide.
class CpuShare {
 public:
  /// `threads`: what the rank is to use; 0 asks for OMP_NUM_THREADS, or without that for a thread per CPU of the share.
  /// Called by all ranks.
  CpuShare(Bootstrap& bootstrap, int threads);
  /// Gives the calling thread its CPUs back.
  ~CpuShare();
  CpuShare(const CpuShare&) = delete;
  int threads() const { return threads_; }

 private:
  std::optional<cpu_set_t> before_;
  int threads_;
};

/// Asks the system to let this thread run as soon as it wakes, beside threads that compute all the time. It must work
/// in short bursts. (A short slice of Linux's scheduler, from 6.12 on; without it a thread that wakes on a busy core
/// waits some milliseconds, longer than a collective takes.)
void run_promptly();

}  // namespace shardgrad::dist
