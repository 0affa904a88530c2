#pragma once
// The ranks of a model as a table: a row shares one copy of the model, split into parts; a column holds the same part
// of different copies. Four ranks in groups of two:
//
//     rank   0  1        shard group of rank 2: {2, 3}        gathers and reduce-scatters run along rows
//            2  3        replica group of rank 2: {0, 2}      reduced shards are summed along columns
//
// zero1, zero2 and zero3 are one row, ddp is one column, hybrid is the table. Rows are consecutive ranks, so for rows
// of a power of two the sum along rows and then columns is the tree sum over all ranks, bit for bit.

#include <memory>

#include <shardgrad/dist/process_group.h>

namespace shardgrad::fsdp {

class Mesh {
 public:
  /// A collective when there are both rows and columns.
  Mesh(dist::ProcessGroup& world, int parts) : world_(world), parts_(parts) {
    if (parts == world.size()) {
      shard_ = parts > 1 ? &world : nullptr;
    } else if (parts == 1) {
      replica_ = &world;
    } else {
      shard_ = (row_ = world.split(world.rank() / parts, world.rank())).get();
      replica_ = (column_ = world.split(world.rank() % parts, world.rank())).get();
    }
  }
  dist::ProcessGroup& world() const { return world_; }
  /// The ranks that share a copy; null when every rank has one to itself.
  dist::ProcessGroup* shard() const { return shard_; }
  /// The ranks that hold the same part; null when there is one copy.
  dist::ProcessGroup* replica() const { return replica_; }
  int parts() const { return parts_; }
  int part() const { return world_.rank() % parts_; }
  /// Memory that shards, full parameters and gradients are sent from without a copy.
  const Ref<Allocator>& memory() const { return shard_ ? shard_->memory() : world_.memory(); }
  /// What common memory holds has been gathered: ranks read each other's shards from now on.
  void reading_shards() { shards_read_ = true; }
  /// Called by all ranks before any of them writes its shard: nobody reads it any more.
  void before_write() {
    if (std::exchange(shards_read_, false)) shard_->barrier({{"", "write"}});
  }
  /// Copies between device and host memory run here, beside compute and communication.
  Stream& copies() {
    Device device = context().default_device();
    if (!copies_) copies_ = context().backend(device).make_stream("copies");
    return *copies_;
  }

 private:
  dist::ProcessGroup& world_;
  int parts_;
  dist::ProcessGroup *shard_ = nullptr, *replica_ = nullptr;
  std::unique_ptr<dist::ProcessGroup> row_, column_;
  std::unique_ptr<Stream> copies_;
  bool shards_read_ = false;
};

}  // namespace shardgrad::fsdp
