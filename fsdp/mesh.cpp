#include <shardgrad/fsdp/mesh.h>

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
  Device device = context().default_device();
  reductions_ = shard_;
  if (!shard_ || device == kCpu || device == kMeta) return;
  reductions_ = &shard_->kept_split(1, shard_->size(), "reductions");
}

void Mesh::before_write() {
  if (std::exchange(shards_read_, false)) shard_->barrier({{"", "write"}});
}

Stream& Mesh::made(std::unique_ptr<Stream>& stream, const char* name) {
  if (!stream) stream = context().backend(context().default_device()).make_stream(name);
  return *stream;
}

}  // namespace shardgrad::fsdp
