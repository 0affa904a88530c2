#include <shardgrad/fsdp/setup/mesh.h>

namespace shardgrad::fsdp {

Mesh::Mesh(dist::ProcessGroup& world, int parts) : world_(world), parts_(parts) {
  if (parts == world.size()) {
    shard_ = parts > 1 ? &world : nullptr;
  } else if (parts == 1) {
    replica_ = &world;
  } else {
    table_.emplace(world, std::vector<parallel::Axis>{{"replicas", world.size() / parts}, {"gathers", parts}});
    shard_ = &table_->group("gathers");
    replica_ = &table_->group("replicas");
  }
  reductions_ = shard_;
  bool computes_by_itself = !context().backend(context().default_device()).compute().is_inline();
  if (shard_ && computes_by_itself) reductions_ = &shard_->kept_split(1, shard_->size(), "reductions");
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
