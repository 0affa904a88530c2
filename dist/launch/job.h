#pragma once
// The guard around a program's top level. It finds the ranks, makes the rank's context and the group of all ranks, runs
// the body, and ends well or badly:
//
//     int main(int argc, char** argv) {
//       return dist::run_job([](dist::Job& job) { return train(job.world()); });
//     }
//
// A process that a launcher has started runs one job. Under launch its standard input is empty; under mpirun rank 0 has
// mpirun's.
//
// When a rank fails, its sentence reaches the others, their waits end, the first cause is printed once, last, and the
// whole job ends with its exit code. Nothing else in the library ends its process, but forked children that could
// not become their program (tests/repo/layers.py looks), and the monitor, which raises a SIGTERM again that a rank
// which only computes has not followed.

#include <functional>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/watch/watch_options.h>

namespace shardgrad::dist {

/// What signals mean that ask a program to end, to one that has ranks.
enum class WhenTold {
  asks,   ///< SIGUSR1 and SIGINT ask (Job::stop_requested), SIGTERM ends the job as a failure
  saves,  ///< SIGTERM and SIGHUP ask, too, unless a launcher of this library hears them for the ranks
  ends,   ///< each of them ends the job: the body has nothing to save
};

struct JobOptions {
  /// Rank and world size are filled in; threads 0: the node's cores over its ranks, at least 1.
  Context::Options context;
  GroupOptions group;
  WatchOptions watch;
  bool takes_interrupts = true;  ///< false: SIGINT stays the program's
  WhenTold when_told = WhenTold::asks;
};

class Job {
 public:
  Job(const Bootstrap& bootstrap, ProcessGroup& world) : bootstrap_(bootstrap), world_(world) {}
  const Bootstrap& bootstrap() const { return bootstrap_; }
  ProcessGroup& world() const { return world_; }
  /// True once somebody has asked the program to save and end: SIGUSR1 (from shardgrad launch or a batch system) or
  /// SIGINT, and with WhenTold::saves SIGTERM or SIGHUP. The ranks may learn it at different times: agree before acting
  /// on it.
  bool stop_requested() const;

 private:
  const Bootstrap& bootstrap_;
  ProcessGroup& world_;
};

/// Runs body on this rank and returns the exit code for main: the body's, or that of the job's first failure.
/// `configure` runs first, under the same guard: an error in it (a bad option or file) is printed once for all ranks.
int run_job(const std::function<int(Job&)>& body, const std::function<JobOptions(const Bootstrap&)>& configure = {});

}  // namespace shardgrad::dist
