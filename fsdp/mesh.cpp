#include <shardgrad/fsdp/mesh.h>

namespace shardgrad::fsdp {

Mesh::Mesh(dist::ProcessGroup& world, int parts) : world_(world), parts_(parts) {
  if (parts == world.size()) {
    shard_ = parts > 1 ? &world : nullptr;
  } else if (parts == 1) {
    replica_ = &world;
  } else {
    shard_ = (row_ = world.split(world.rank() / parts, world.rank(), "gathers")).get();
    replica_ = (column_ = world.split(world.rank() % parts, world.rank(), "replicas")).get();
  }
  Device device = context().default_device();
  reductions_ = shard_;
  if (!shard_ || device == kCpu || device == kMeta) return;
  row_for_reductions_ = shard_->split(0, shard_->rank(), "reductions");
  reductions_ = row_for_reductions_.get();
}

void Mesh::before_write() {
  if (std::exchange(shards_read_, false)) shard_->barrier({{"", "write"}});
}

Stream& Mesh::made(std::unique_ptr<Stream>& stream, const char* name) {
  if (!stream) stream = context().backend(context().default_device()).make_stream(name);
  return *stream;
}

}  // namespace shardgrad::fsdp
