#pragma once
// How many CPU threads a rank should use.

#include <shardgrad/dist/bootstrap.h>

namespace shardgrad::dist {

/// Threads for this rank: OMP_NUM_THREADS when set, else its cores divided by the ranks of this node that run on the
/// same ones, at least 1. Called by all ranks.
int threads_per_rank(Bootstrap& bootstrap);

/// Asks the system to let this thread run as soon as it wakes, beside threads that compute all the time. It must work
/// in short bursts. (A short slice of Linux's scheduler, from 6.12 on; without it a thread that wakes on a busy core
/// waits some milliseconds, longer than a collective takes.)
void run_promptly();

}  // namespace shardgrad::dist
