// How many steps an optimizer's parameters have been through, known on every rank.

#include <algorithm>
#include <set>

#include <shardgrad/fsdp/setup/held_parts.h>
#include <shardgrad/fsdp/state/pieces.h>
#include <shardgrad/fsdp/step/slice_sink.h>

namespace shardgrad::fsdp {

// Names of parameters of which this rank has elements.
static std::set<std::string> held_by(const optim::Optimizer& optimizer) {
  std::set<std::string> names;
  for (const NamedParameter& parameter : optimizer.parameters()) {
    const SliceSink* sink = sink_of(parameter);
    int64_t count = sink ? sink->flat().owned(sink->slice()).count : parameter.tensor.numel();
    if (count > 0) names.insert(parameter.name);
  }
  return names;
}

// A rank that holds no part of a parameter does not count its steps. Those that hold one count alike, unless some left
// out a step that others made, as those of a mesh do when each decides alone about an overflow.
std::map<std::string, int64_t> steps_of(dist::ProcessGroup& group, const optim::Optimizer& optimizer) {
  constexpr const char* kCall = "optim_state_dict";
  std::map<std::string, int64_t> steps = optimizer.steps();
  if (group.size() == 1) return steps;
  std::set<std::string> names, held = held_by(optimizer);
  for (const auto& [name, count] : steps) names.insert(name);
  check_same_names(names, group, kCall);
  std::vector<int64_t> mine;  // of each parameter the count, and the count of one who holds it, or -1
  for (const auto& [name, count] : steps) mine.insert(mine.end(), {count, held.contains(name) ? count : -1});
  std::vector<int64_t> all = group.share(mine, {"", kCall});
  size_t i = 0;
  for (auto& [name, count] : steps) {
    int64_t of_holders = -1;
    for (size_t at = i, rank = 0; at < all.size(); at += mine.size(), ++rank) {
      int64_t here = all[at + 1];
      SG_CHECK(of_holders < 0 || here < 0 || here == of_holders, kCall, ": '", name, "' has made ", here,
               " steps on rank ", group.global_rank(int(rank)), " and ", of_holders,
               " on another: the ranks have trained apart; a gradient scaler must ask all ranks that hold ",
               "something of the model (fsdp::sharded_grad_scaler(*sharded))");
      of_holders = std::max(of_holders, here);
      count = std::max(count, all[at]);
    }
    i += 2;
  }
  return steps;
}

std::map<std::string, int64_t> optim_steps(Sharded& sharded, const optim::Optimizer& optimizer) {
  return steps_of(sharded.holders(), optimizer);
}

}  // namespace shardgrad::fsdp
