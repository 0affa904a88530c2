#pragma once
// Ranks as processes of this machine without MPI: launch_local starts them with a memory that they inherit
// (dist/bootstrap/forked.h), watches over them, and reports the first cause when the job fails.

#include <functional>
#include <string>
#include <vector>

#include <shardgrad/dist/launch/job.h>

namespace shardgrad::dist {

/// Runs n copies of a program (argv[0] is looked up in PATH) as the ranks of one job, and returns when all have ended.
/// SIGINT, SIGTERM and SIGHUP reach the ranks as SIGUSR1, a second one of the first two ends them. When a rank fails,
/// the others get a few seconds to end. `threads` per rank is told to them as OMP_NUM_THREADS; 0 leaves it to them.
/// Returns 0, or the failure's exit code after printing the first cause on standard error.
int launch_local(int n, const std::vector<std::string>& argv, int threads = 0);

using SpawnOptions = JobOptions;

/// Runs body on `world_size` ranks that are processes of this machine, as multiprocessing's spawn does, with no
/// launcher and no program of its own, and returns when all have ended:
///
///     int main() { dist::spawn(4, [](dist::ProcessGroup& world) { train(world); }); }
///
/// The ranks are copies of this process as it is now: what body captures they have, what they change of it this process
/// does not see. So it must not have used a GPU, nor computed with several threads. Throws the first failure with its
/// rank ("rank 2 failed: …") and its kind, after the others have ended; Error(input) inside a context, and in a process
/// that a launcher has started as one of several. Output is shared; signals are passed on as by launch_local.
void spawn(int world_size, const std::function<void(ProcessGroup&)>& body, const SpawnOptions& options = {});

}  // namespace shardgrad::dist
