#pragma once
// The end of a launcher that cannot end by itself: where a machine is gone, mpirun waits for its daemon there without
// an end, and the daemon on the other side of the cut for mpirun.

#include <chrono>

namespace shardgrad::dist {

/// Leaves a process behind that kills what has launched this process, and all that it has started, ssh included, if it
/// is still there after `patience`: the nearest mpirun or Open MPI's daemon of one job above this process. Nothing else
/// is killed: not SLURM's, nor a daemon of many jobs. To be called once the job has failed.
void end_launcher_after(std::chrono::milliseconds patience);

}  // namespace shardgrad::dist
