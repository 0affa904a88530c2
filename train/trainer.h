#pragma once
// The training job of a configuration: data, task, sharding, optimizer, the loop over steps, evaluation. Every rank
// runs it; rank 0 alone prints and writes. The task knows nothing of ranks but the part of each batch that it is given:
// batches are cut by the loader, losses are divided by the global count, and sharding is a policy laid over the module.

#include <ostream>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::train {

/// Trains and evaluates. `out` gets rank 0's lines; on a `terminal` some are written over.
/// The run is saved when it ends or is stopped (checkpoint/checkpoint.h).
/// Throws Error(input) before the first step, and before the run's folder is made, for data that cannot be read or does
/// not fit the task, and when ranks have different configurations or data, or do not all see the run's folder. One that
/// another job writes, that has no room on its disk, or whose checkpoint is damaged is refused before it shows
/// anything.
Result train(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal = {});

}  // namespace shardgrad::train
