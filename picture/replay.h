#pragma once
// Records at the times that costs say, instead of a clock's: the same on every machine. What is real is the order in
// which a rank queued its work, and what waits for what; how long each piece takes is said. Of one layer, 2 s to gather
// and 3 s to compute:
//
//     queued      all_gather, wait for it, forward, reshard
//     replayed    all_gather 0-2, wait 0-2, forward 2-5, reshard at 5
//
// Computation runs in the order of its records, and so does each stream of communication, and so do the collectives of
// a unit, such as the sum of a gradient's parts over copies of a model after that over the ranks that share one. A
// collective or a copy begins when computation has come to where it was queued, as where the host computes; where a
// device does, and the host is ahead, it may begin sooner. The other ranks are taken to be as far.

#include <functional>
#include <vector>

#include <shardgrad/core/recorder.h>

namespace shardgrad::picture {

/// Seconds that a record takes: a call or a backward without another one in it, a step, a collective, a copy.
using Cost = std::function<double(const Record&)>;

/// `records`: one rank's of a traced step, all of them ended. They come back in the same order; those that contain
/// others last as long as these. Throws Error(input) for a cost that is negative or no number.
std::vector<Record> replayed(std::vector<Record> records, const Cost& cost);

}  // namespace shardgrad::picture
