#pragma once
// When which unit was in memory: a row for each, one rank's.

#include <vector>

#include <shardgrad/core/recorder.h>
#include <shardgrad/picture/svg.h>

namespace shardgrad::picture {

/// Units that are too many for the picture are left out, and it says so.
struct Strip {
  Caption caption;
  std::vector<Record> records;  ///< of one rank, at best of one step
};

/// Throws Error(input) for a record whose time is not finite.
std::string draw(const Strip& strip);

}  // namespace shardgrad::picture
