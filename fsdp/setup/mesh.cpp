#include <shardgrad/fsdp/setup/mesh.h>

#include <algorithm>
#include <map>
#include <set>

#include <shardgrad/core/warning.h>

namespace shardgrad::fsdp {

std::string crossing_rows(const std::vector<int>& machines, int parts) {
  std::map<int, int> ranks_of;
  for (int machine : machines) ++ranks_of[machine];
  int largest = 0, crossing = 0, rows = int(machines.size()) / parts;
  for (auto [machine, ranks] : ranks_of) largest = std::max(largest, ranks);
  int needed = (parts + largest - 1) / largest, most = 0;
  for (int row = 0; row < rows; ++row) {
    auto begin = machines.begin() + row * parts;
    int used = int(std::set<int>(begin, begin + parts).size());
    crossing += used > needed;
    most = std::max(most, used);
  }
  if (crossing == 0) return "";
  return concat("hybrid: ", crossing, " of ", rows, " rows of ", parts, " ranks lie on ", most, " machines each, not ",
                needed, ", so what they gather crosses between machines ", most - 1, most == 2 ? " time" : " times",
                ", where ", needed - 1,
                " would do; choose fsdp.shard_ranks (Config::shard_ranks) that divides every machine's ranks, and ",
                "give ranks of a machine neighbouring numbers");
}

static std::vector<int> machines_of(const dist::ProcessGroup& world) {
  std::vector<int> machines;
  for (int rank = 0; rank < world.size(); ++rank) machines.push_back(world.machine_of(rank));
  return machines;
}

Mesh::Mesh(dist::ProcessGroup& world, int parts) : world_(world), parts_(parts) {
  if (parts == world.size()) {
    shard_ = parts > 1 ? &world : nullptr;
  } else if (parts == 1) {
    replica_ = &world;
  } else {
    if (std::string cost = crossing_rows(machines_of(world), parts); !cost.empty()) warn(cost);
    table_.emplace(world, std::vector<parallel::Axis>{{"replicas", world.size() / parts}, {"gathers", parts}});
    shard_ = &table_->group("gathers");
    replica_ = &table_->group("replicas");
  }
  if (shard_) rounds_.emplace(*shard_);
  reductions_ = shard_;
  if (shard_ && computes_by_itself(world.computes_on()))
    reductions_ = &shard_->kept_split(1, shard_->size(), "reductions");
}

dist::Work Mesh::gather(const Gathers& buffers, dist::Label label, const std::string& which,
                        dist::ProcessGroup* group) const {
  dist::CollectiveOptions options{std::move(label), Event()};
  options.detail = which;
  options.counts_as_write = false;
  return buffers.empty() ? dist::Work() : (group ? group : shard_)->all_gather(buffers, options);
}

void Mesh::before_write() {
  if (std::exchange(shards_read_, false)) shard_->barrier({{"", "write"}});
}

Stream& Mesh::made(std::unique_ptr<Stream>& stream, const char* name) {
  if (!stream) stream = context().backend(context().default_device()).make_stream(name);
  return *stream;
}

}  // namespace shardgrad::fsdp
