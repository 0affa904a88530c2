#pragma once
// Ranks as processes of this machine without MPI: launch_local starts them with a memory that they inherit
// (dist/bootstrap/forked.h), watches over them, and reports the first cause when the job fails.

#include <string>
#include <vector>

namespace shardgrad::dist {

/// Runs n copies of a program (argv[0] is looked up in PATH) as the ranks of one job, and returns when all have ended.
/// SIGINT, SIGTERM and SIGHUP reach the ranks as SIGUSR1, a second one of the first two ends them. When a rank fails,
/// the others get a few seconds to end. `threads` per rank is told to them as OMP_NUM_THREADS; 0 leaves it to them.
/// Returns 0, or the failure's exit code after printing the first cause on standard error.
int launch_local(int n, const std::vector<std::string>& argv, int threads = 0);

}  // namespace shardgrad::dist
