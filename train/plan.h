#pragma once
// `shardgrad plan`: what the training step of a configuration will need, before anything is trained.

#include <algorithm>
#include <string>
#include <vector>

#include <shardgrad/dist/transports/pretended_ranks.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {

/// The plan of rank 0, which has the most samples of each batch, from two steps and an evaluation of the largest
/// batches that `data` has, on `device`: meta predicts, with one rank of `ranks`; on any other, `ranks` virtual ranks
/// measure. `as`: what the ranks compute on and talk by, which are only pretended on meta.
/// Throws Error(input) for a sharding that cannot work, and a task that does not fit the data. A task whose evaluation
/// fails where tensors have no values is planned without.
fsdp::Plan plan(const Config& config, const data::Outline& data, int ranks, Device device,
                const dist::PretendedRanks& as = {});

/// Says what ranks say to each other beside steps: agreements, and what a checkpoint's tensors come to. A group keeps
/// room for the largest that was ever said, so that said at the beginning it is no matter of chance, and planned. A
/// collective.
void speak_once(dist::ProcessGroup& world, nn::Module& model, fsdp::Sharded& sharded,
                const SavedOptimizers& optimizers);

/// Rank 0's part of the largest batch of `samples`; 0: an unknown number of samples.
int64_t most_samples(const Config& config, int64_t samples, int ranks);

/// What a rank can do, to hold a plan against. 0: not known, and taken to need no time.
struct Rates {
  double flops = 0;      ///< floating-point operations in a second
  double bandwidth = 0;  ///< bytes that it sends in a second
  double latency = 0;    ///< seconds that a collective takes, however little it sends
};
/// Seconds that a step takes at least. Nothing is added for what memory limits, nor for waiting.
struct LeastTime {
  double computing = 0, sending = 0;
  /// Where all that is shorter hides behind the longer.
  double step() const { return std::max(computing, sending); }
};
/// computing = flops / rate; sending = bytes_sent / bandwidth + collectives · latency.
LeastTime least_time(const fsdp::Plan& plan, const Rates& rates);

/// The configuration under another strategy, without what only its own takes.
Config with_strategy(Config config, const std::string& strategy);
/// Those that a configuration can have; hybrid where fsdp.shard_ranks says how many ranks share.
std::vector<std::string> strategies_for(const Config& config);

/// One rank's step under another strategy, on another number of ranks.
struct Offer {
  std::string strategy;
  int ranks = 1;
  fsdp::Plan plan = {};
  std::string why_not;  ///< instead of numbers: why this cannot be
};
/// Every one of strategies_for on each of these numbers of ranks, which share each batch.
std::vector<Offer> offers(const Config& config, const data::Outline& data, const std::vector<int>& ranks,
                          const dist::PretendedRanks& as = {});

}  // namespace shardgrad::train
