#include <shardgrad/dist/os/rank_map.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <shardgrad/dist/os/host_name.h>

namespace shardgrad::dist {

RankMap::RankMap(const std::vector<std::string>& hosts) {
  std::vector<std::string> nodes;
  for (size_t r = 0; r < hosts.size(); ++r) {
    auto found = std::ranges::find(nodes, hosts[r]);
    int node = int(found - nodes.begin());
    if (found == nodes.end()) {
      nodes.push_back(hosts[r]);
      ranks_of_.emplace_back();
    }
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

std::string list_of(const std::vector<int>& ranks) {
  constexpr int kRanges = 20;
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  int ranges = 0;
  for (size_t i = 0, end; i < ranks.size(); i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    if (end == i + 2) end = i + 1;  // two neighbours are no range
    text << (i == 0 ? "" : ", ");
    if (ranges++ == kRanges) {
      text << "… (" << ranks.size() << " in all)";
      break;
    }
    text << ranks[i];
    if (end > i + 1) text << '-' << ranks[end - 1];
  }
  return std::move(text).str();
}

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const char* pretended = std::getenv("SHARDGRAD_MACHINE");
  return host_name() + "/" + boot + (pretended ? concat("/", pretended) : "");
}

}  // namespace shardgrad::dist
