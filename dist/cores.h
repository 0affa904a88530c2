#pragma once
// Which CPU cores a rank runs on, and how many threads it uses.

#include <sched.h>

#include <shardgrad/dist/bootstrap.h>

namespace shardgrad::dist {

/// This rank's share of the node's cores: ranks that may run on the same ones divide them, those of one package side by
/// side, so that no rank's threads land on a core where another rank computes. The calling thread, and all threads that
/// it starts from then on, run on the share; where there are more threads than cores, anywhere as before. Keep a job
/// off some cores with taskset, or divide them otherwise with the launcher's own binding: only cores in common are
/// divided.
class CoreShare {
 public:
  /// `threads`: what the rank is to use; 0 asks for OMP_NUM_THREADS, or without that for a thread per core of the
  /// share. Called by all ranks.
  CoreShare(Bootstrap& bootstrap, int threads);
  /// Gives the calling thread its cores back.
  ~CoreShare();
  CoreShare(const CoreShare&) = delete;
  int threads() const { return threads_; }

 private:
  cpu_set_t before_;
  int threads_;
};

/// Asks the system to let this thread run as soon as it wakes, beside threads that compute all the time. It must work
/// in short bursts. (A short slice of Linux's scheduler, from 6.12 on; without it a thread that wakes on a busy core
/// waits some milliseconds, longer than a collective takes.)
void run_promptly();

}  // namespace shardgrad::dist
