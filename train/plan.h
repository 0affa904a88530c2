#pragma once
// `shardgrad plan`: what the training step of a configuration will need, before anything is trained.

#include <string>
#include <vector>

#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {

/// The plan of the rank with the most samples, each of `fields`, from two steps on `device`: meta predicts, with one
/// rank of `ranks` where `group` is empty; on any other, `ranks` virtual ranks measure. `group` is how the ranks
/// communicate (dist::VirtualOptions): with "shared_memory", device cpu gathers without memory. Throws Error(input) for
/// a sharding that cannot work, and a task that does not fit the fields.
fsdp::Plan plan(const Config& config, const std::vector<data::Field>& fields, int ranks, Device device,
                const std::string& group = "");

/// One rank's step under another strategy, on another number of ranks.
struct Offer {
  std::string strategy;
  int ranks = 1;
  int64_t peak = 0, bytes_sent = 0;
  std::string why_not;  ///< instead of numbers: why this cannot be
};
/// Every strategy (hybrid where fsdp.shard_ranks says how many ranks share) on each of these numbers of ranks, which
/// share each batch.
std::vector<Offer> offers(const Config& config, const std::vector<data::Field>& fields, const std::vector<int>& ranks);

}  // namespace shardgrad::train
