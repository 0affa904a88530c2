#pragma once
// N ranks as threads of one process, each with its own context and group: the whole distributed stack in a unit test or
// under one debugger, with no mpirun.
//
//     run_ranks(4, [](ProcessGroup& world) {
//       Tensor t = from_vector<float>({float(world.rank())}, {1});
//       world.all_reduce(t).host_wait();
//     });

#include <functional>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/pretended_ranks.h>
#include <shardgrad/dist/watch/watch_options.h>

namespace shardgrad::dist {

struct VirtualOptions {
  Device device = kCpu;
  uint64_t seed = 0;
  int threads = 0;             ///< CPU threads per rank; 0: cores / ranks, at least 1
  bool check_streams = false;  ///< the happens-before checker (always on for devices acc and sim)
  uint64_t delay_seed = 0;     ///< non-zero: random legal delays on every stream
  std::chrono::microseconds max_delay{200};
  /// kind: "threads" (the default), "shared_memory", "nccl" (a GPU each), or "single" (the default for one rank). Ranks
  /// that are taken to be on several machines (GroupOptions::machines) meet by that kind within each, and send messages
  /// between them: group "two_level".
  GroupOptions group;
  WatchOptions watch;
};

/// Runs body on every rank and returns when all have ended. If any failed, rethrows the failure that came first, as it
/// was thrown; the other ranks' waits ended with it.
void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body, const VirtualOptions& options = {});

/// Runs body as rank 0 of a world of `world_size` on device meta, the others of which do not exist: what one rank of
/// thousands needs and would send is known without them, where all do the same. What a transport needs itself is there
/// as `as` tells. Collectives of host memory get what the same on every rank would give. Throws what body throws, and
/// Error(input) for ProcessGroup::split, which depends on what the others say.
void run_one_of(int world_size, const std::function<void(ProcessGroup&)>& body, uint64_t seed = 0,
                const PretendedRanks& as = {});

}  // namespace shardgrad::dist
