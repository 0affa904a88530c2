#pragma once
// Ranks as processes of this node without MPI: launch_local starts them with a shared memory they inherit and the
// environment below, watches over them, and reports the first cause when the job fails.
//   SHARDGRAD_RANK, SHARDGRAD_WORLD_SIZE   who this process is
//   SHARDGRAD_JOB_FD                       the descriptor of the job's memory: bootstrap, then control page

#include <memory>
#include <string>
#include <vector>

#include <shardgrad/dist/bootstrap.h>

namespace shardgrad::dist {

/// The bootstrap of a process that launch_local started, or null.
std::unique_ptr<Bootstrap> forked_bootstrap_from_environment();

/// Runs n copies of a program (argv[0] is looked up in PATH) as the ranks of one job, and returns when all have ended.
/// SIGINT, SIGTERM and SIGHUP reach the ranks as SIGUSR1, a second one of the first two ends them. When a rank fails,
/// the others get a few seconds to end. `threads` per rank is told to them as OMP_NUM_THREADS; 0 leaves it to them.
/// Returns 0, or the failure's exit code after printing the first cause on standard error.
int launch_local(int n, const std::vector<std::string>& argv, int threads = 0);

}  // namespace shardgrad::dist
