#pragma once
// A rank is one number, 0 … W-1, and also a pair (node, local rank on that node). The two map one to one, for nodes
// with unequal numbers of ranks and for ranks dealt out to nodes in any order.

#include <string>
#include <utility>
#include <vector>

namespace shardgrad::dist {

class RankMap {
 public:
  /// hosts[r] names the machine of rank r. Nodes are numbered by first appearance, local ranks by global order.
  explicit RankMap(const std::vector<std::string>& hosts);
  int world_size() const { return int(node_of_.size()); }
  int node_count() const { return int(ranks_of_.size()); }
  int node_rank(int global) const { return node_of_.at(size_t(global)); }
  int local_rank(int global) const { return local_of_.at(size_t(global)); }
  int local_size(int node) const { return int(ranks_of(node).size()); }
  int global_rank(int node, int local) const { return ranks_of(node).at(size_t(local)); }
  const std::vector<int>& ranks_of(int node) const { return ranks_of_.at(size_t(node)); }
  /// The ranks in an order in which those of a node are neighbours.
  std::vector<int> by_node() const;

 private:
  std::vector<int> node_of_, local_of_;
  std::vector<std::vector<int>> ranks_of_;
};

/// What each rank has, in another order of the ranks.
template <class T> std::vector<T> in_order(std::vector<T> of, const std::vector<int>& order) {
  std::vector<T> ordered;
  for (int r : order) ordered.push_back(std::move(of[size_t(r)]));
  return ordered;
}
/// 0 … count - 1.
std::vector<int> all_ranks(int count);
/// "rank 3", "ranks 0-3, 7 and 12-1023": for sentences, which stay readable for a thousand ranks. In ascending order.
std::string list_of(const std::vector<int>& ranks);

/// The machine this process runs on: host and boot. Names repeat between clusters of containers, boot ids do not. And
/// SHARDGRAD_MACHINE, where it is set: processes of one machine that differ in it are taken to be on several.
std::string this_machine();

}  // namespace shardgrad::dist
