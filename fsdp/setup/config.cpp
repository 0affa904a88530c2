#include <shardgrad/fsdp/setup/config.h>

#include <algorithm>
#include <cctype>

namespace shardgrad::fsdp {

const char* name_of(Strategy strategy) {
  constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3", "hybrid"};
  return names[int(strategy)];
}

namespace {

struct Name {
  std::string_view name;
  Strategy strategy;
};
constexpr Name kNames[] = {{"zero3", Strategy::zero3},
                           {"full_shard", Strategy::zero3},
                           {"fsdp", Strategy::zero3},
                           {"fsdp_native", Strategy::zero3},
                           {"ddp_fully_sharded", Strategy::zero3},
                           {"fairscale", Strategy::zero3},
                           {"zero2", Strategy::zero2},
                           {"shard_grad_op", Strategy::zero2},
                           {"sharded_ddp", Strategy::zero2},
                           {"ddp_sharded", Strategy::zero2},
                           {"ddp_sharded_spawn", Strategy::zero2},
                           {"ddp_sharded_find_unused_parameters_false", Strategy::zero2},
                           {"ddp_sharded_spawn_find_unused_parameters_false", Strategy::zero2},
                           {"zero1", Strategy::zero1},
                           {"oss", Strategy::zero1},
                           {"ddp", Strategy::ddp},
                           {"dp", Strategy::ddp},
                           {"no_shard", Strategy::ddp},
                           {"hybrid", Strategy::hybrid},
                           {"hybrid_shard", Strategy::hybrid},
                           {"hsdp", Strategy::hybrid}};

std::string plain(std::string_view name) {
  std::string letters;
  for (char c : name)
    if (c != '-' && c != '_') letters += char(std::tolower(uint8_t(c)));
  return letters;
}

}  // namespace

Strategy parse_strategy(std::string_view name) {
  std::string list;
  for (const Name& known : kNames) {
    if (plain(known.name) == plain(name)) return known.strategy;
    list += concat(list.empty() ? "" : ", ", known.name);
  }
  fail("unknown strategy '", name, "'; choose one of ", list);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Name& known : kNames) names.emplace_back(known.name);
  return names;
}

int Config::parts(int world_size) const {
  if (strategy == Strategy::ddp) return 1;
  return strategy == Strategy::hybrid ? shard_ranks : world_size;
}

}  // namespace shardgrad::fsdp
