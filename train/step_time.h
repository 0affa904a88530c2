#pragma once
// How long a training step will take on any number of ranks, and how much of that it only sends.
//
// What a rank computes is timed here, by a rank alone that takes the step of so many samples (zeros): each call of a
// unit, each backward, the update. What it sends takes `latency` and its bytes over `bandwidth`. Both are put into the
// order in which the engine queues them, and waits for them, on `ranks` ranks, which device meta records without
// computing anything (picture/replay.h). Of two units on 2 ranks under zero3:
//
//     timed       forward a 2 ms, b 2 ms; backward b 4 ms, a 4 ms; step 2 ms, of which each of 2 ranks has half
//     sent        each unit's gather 1 ms, its reduction 1 ms
//     replayed    gather a 0-1, forward a 1-3 (gather b 1-2), forward b 3-5,
//                 backward b 5-9, backward a 9-13 (reduce b 9-10), reduce a 13-14, step 14-15
//
// That is 15 ms, of which the first gather and the last reduction, 2 ms, are exposed.
//
// The ranks are taken to be as fast as the one that was timed, and as far. What ranks say to each other in host memory
// takes a latency, copies between device and host take no time.

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <shardgrad/core/recorder.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/plan.h>

namespace shardgrad::train {

/// Seconds of a rank's step.
struct StepTime {
  double step = 0;
  double computing = 0;
  double sending = 0;  ///< all of it, which goes through one network
  double exposed = 0;  ///< of the step, in which something is sent and nothing computed
};

/// One rank's step, piece by piece: seconds of each "forward UNIT", "backward UNIT", …, one after another, with what
/// came before it.
using Pieces = std::map<std::string, std::vector<double>>;
/// `records`: of one rank alone, which began at `begin` and ended at `end`.
Pieces pieces_of(std::vector<Record> records, double begin, double end);
/// Of an odd number of steps of the same pieces, each piece's median: whatever else the machine does meanwhile holds up
/// single ones.
Pieces medians_of(const std::vector<Pieces>& steps);
/// Of all parameters, how many this rank updates: 1 is all of them.
double updated_share(fsdp::Sharded& sharded);
/// `records`: of one rank of several on meta, of which `share` of the parameters are this rank's to update. Throws
/// Error(input) where they compute something else than the pieces.
StepTime step_time(std::vector<Record> records, const Pieces& pieces, double share, const Rates& network);

/// Times steps of a configuration on this machine, and replays them.
class StepClock {
 public:
  /// `of_machine`: ranks that a machine has, which are timed side by side, each with a step of its own, for they share
  /// its memory. `threads`: of a rank on the CPU; 0: this machine's, shared out.
  /// Throws Error(input) for more of them than this machine's cores can work on.
  StepClock(Config config, data::Outline data, Device device, int of_machine, int threads);
  /// Of rank 0, which has most samples. Throws Error(input) for what cannot be, or does not fit in this machine's
  /// memory.
  StepTime of(const std::string& strategy, int ranks, const Rates& network);

 private:
  using Timed = std::tuple<std::string, int64_t, int64_t, int>;  // strategy, samples, parts of these, side by side
  const Pieces& timed(const std::string& strategy, int ranks);
  Config config_;
  data::Outline data_;
  Device device_;
  int of_machine_, threads_;
  std::map<Timed, Pieces> timed_;
};

}  // namespace shardgrad::train
