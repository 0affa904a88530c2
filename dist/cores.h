#pragma once
// How many CPU threads a rank should use.

#include <shardgrad/dist/bootstrap.h>

namespace shardgrad::dist {

/// Cores that this process may run on.
int usable_cores();

/// Threads for this rank: OMP_NUM_THREADS when set, else its cores divided by the ranks of this node that run on the
/// same ones, at least 1. Called by all ranks.
int threads_per_rank(Bootstrap& bootstrap);

}  // namespace shardgrad::dist
