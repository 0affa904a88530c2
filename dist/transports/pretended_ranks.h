#pragma once
// Ranks that do not exist, of which one is pretended to be there (run_one_of).

#include <string>
#include <vector>

#include <shardgrad/core/device.h>

namespace shardgrad::dist {

/// What they would compute on, and how they would talk: for the memory that this needs.
struct PretendedRanks {
  /// On the CPU host memory is the device's own; meta: any device with memory of its own.
  Device device = kMeta;
  /// ProcessGroup::kind(): "shared_memory", "two_level" and "mpi" need memory to send, and the first one's ranks gather
  /// without copying on the CPU; others are taken to need nothing.
  std::string group{};
  /// The machine of each rank, for "two_level"; empty: all are on one.
  std::vector<int> machines{};
};

}  // namespace shardgrad::dist
