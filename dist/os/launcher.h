#pragma once
// The end of a launcher that cannot end by itself: where a machine is gone, mpirun waits for its daemon there without
// an end, and the daemon on the other side of the cut for mpirun.

#include <chrono>

namespace shardgrad::dist {

/// Leaves a process behind that kills this process's parent and all that it has started, ssh included, if the parent is
/// still there after `patience`. Only mpirun and Open MPI's daemon of one job are killed: other parents stay, as a
/// shell, SLURM, or a daemon of many jobs. To be called once the job has failed.
void end_launcher_after(std::chrono::milliseconds patience);

}  // namespace shardgrad::dist
