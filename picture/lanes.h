#pragma once
// Who computed and who sent, when: two lanes for each rank, and how much of the sending cost no time. Streams of
// communication that run at the same time have a lane each.

#include <vector>

#include <shardgrad/core/recorder.h>
#include <shardgrad/picture/svg.h>

namespace shardgrad::picture {

/// What a rank's recorder kept, at best of one step and while it was tracing: else there is no computation in it.
struct RankRecords {
  int rank = 0;
  std::vector<Record> records;
  /// Second 0 of the records by a clock that all these ranks share: Recorder::zero() on one machine.
  double zero = 0;
};

/// Ranks that are too many for the picture are left out, and it says so.
struct Lanes {
  Caption caption;
  std::vector<RankRecords> ranks;
};

/// Throws Error(input) for a record whose time is not finite.
std::string draw(const Lanes& lanes);

}  // namespace shardgrad::picture
