#include <shardgrad/dist/os/rank_map.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/host_name.h>

namespace shardgrad::dist {

RankMap::RankMap(const std::vector<std::string>& hosts) {
  std::unordered_map<std::string_view, int> nodes;
  for (size_t r = 0; r < hosts.size(); ++r) {
    auto [found, is_new] = nodes.try_emplace(hosts[r], int(nodes.size()));
    int node = found->second;
    if (is_new) ranks_of_.emplace_back();
    node_of_.push_back(node);
    local_of_.push_back(int(ranks_of_[size_t(node)].size()));
    ranks_of_[size_t(node)].push_back(int(r));
  }
}

std::vector<int> RankMap::by_node() const {
  std::vector<int> ranks;
  for (const std::vector<int>& here : ranks_of_) ranks.insert(ranks.end(), here.begin(), here.end());
  return ranks;
}

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string list_of(const std::vector<int>& ranks) {
  constexpr size_t kRanges = 20;
  std::vector<std::string> ranges;
  for (size_t i = 0, end; i < ranks.size() && ranges.size() <= kRanges; i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    if (end == i + 2) end = i + 1;  // two neighbours are no range
    ranges.push_back(end > i + 1 ? concat(ranks[i], '-', ranks[end - 1]) : std::to_string(ranks[i]));
  }
  if (ranges.size() > kRanges) ranges.back() = concat("… (", ranks.size(), " in all)");
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranges.size(); ++i) {
    bool last = i + 1 == ranges.size() && i < kRanges;
    text += concat(i == 0 ? "" : last ? " and " : ", ", ranges[i]);
  }
  return text;
}

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const char* pretended = std::getenv("SHARDGRAD_MACHINE");
  return host_name() + "/" + boot + (pretended ? concat("/", pretended) : "");
}

}  // namespace shardgrad::dist
