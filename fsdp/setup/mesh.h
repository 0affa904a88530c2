#pragma once
// The ranks of a model as a table: a row shares one copy of the model, split into parts; a column holds the same part
// of different copies. Four ranks in groups of two:
//
//     rank   0  1        shard group of rank 2: {2, 3}        gathers and reduce-scatters run along rows
//            2  3        replica group of rank 2: {0, 2}      reduced shards are summed along columns
//
// zero1, zero2 and zero3 are one row, ddp is one column, hybrid is the table. Rows are consecutive ranks, so for rows
// of a power of two the sum along rows and then columns is the tree sum over all ranks, bit for bit.
//
// On a device that computes by itself everything that moves bytes has a stream of its own, so that a gather waits for
// no reduction and a copy for neither. Backward of three units under zero3, with gradients in host memory:
//
//     compute       | unit 2         | unit 1         | unit 0       |
//     gathers       | unit 1         | unit 0         |
//     reductions                     | unit 2         | unit 1       | unit 0 |
//     downloads                                       | unit 2       | unit 1 | unit 0 |
//
// Groups belong to the world's group, and models that are split alike share them; the streams of copies are a model's.
//
// On a cpu copies and sums would take the cores that compute: there gathers and reductions share the group's stream.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/fsdp/setup/whole_rounds.h>
#include <shardgrad/parallel/mesh.h>

namespace shardgrad::fsdp {

using Gathers = std::vector<dist::ProcessGroup::GatherOf>;

/// Why rows of `parts` ranks cost more than they would on machines like these, by how much, and what to do: some lie on
/// more machines than a row needs. `machines`: the machine of each rank. Empty where none does.
std::string crossing_rows(const std::vector<int>& machines, int parts);

class Mesh {
 public:
  /// A collective when there are rows and columns, or streams to make.
  Mesh(dist::ProcessGroup& world, int parts);
  dist::ProcessGroup& world() const { return world_; }
  /// All ranks that hold something of the model, copies included: more than world() where the model was sharded over an
  /// axis of a larger mesh.
  dist::ProcessGroup& holders() const { return *holders_; }
  bool has_other_holders() const { return holders_ != &world_; }
  void set_holders(dist::ProcessGroup& holders) { holders_ = &holders; }
  /// The ranks that share a copy; null when every rank has one to itself. Gathers run on its stream.
  dist::ProcessGroup* shard() const { return shard_; }
  /// The same ranks, on the stream of reductions.
  dist::ProcessGroup* reductions() const { return reductions_; }
  /// The ranks that hold the same part; null when there is one copy.
  dist::ProcessGroup* replica() const { return replica_; }
  /// The `ranks` neighbours in the row that this rank is one of, in groups that begin with the row's first rank. A
  /// collective of the row when there are no such groups yet.
  dist::ProcessGroup& near(int ranks) { return shard_->kept_split(1, ranks, "regathers"); }
  /// One all-gather along the row, or in `group`; none where there is nothing to gather. Who asks has made that group's
  /// stream wait for what is sent; `which` says what these are, to ranks that might gather others.
  dist::Work gather(const Gathers& buffers, dist::Label label, const std::string& which,
                    dist::ProcessGroup* group = nullptr) const;
  int parts() const { return parts_; }
  int part() const { return world_.rank() % parts_; }
  /// Memory that shards, full parameters and gradients are sent from without a copy.
  const Ref<Allocator>& memory() const { return shard_ ? shard_->memory() : world_.memory(); }
  /// Who brings together what the ranks of a row hold parts of; null when every rank has a copy to itself.
  WholeTensors* whole_tensors() { return rounds_ ? &*rounds_ : nullptr; }
  /// In common memory so many more full parameters can be read: while there are any, ranks read each other's shards.
  void open_windows(int more) { shards_read_ |= (windows_ += more) > 0; }
  /// Called by all ranks before any of them writes its shard: nobody reads it any more.
  void before_write();
  /// Copies from host to device memory run here.
  Stream& uploads() { return made(uploads_, "uploads"); }
  /// Copies from device to host memory run here.
  Stream& downloads() { return made(downloads_, "downloads"); }
  /// The context ends: so do the streams of copies.
  void end() {
    uploads_.reset();
    downloads_.reset();
  }

 private:
  static Stream& made(std::unique_ptr<Stream>& stream, const char* name);

  dist::ProcessGroup& world_;
  dist::ProcessGroup* holders_ = &world_;
  int parts_;
  dist::ProcessGroup *shard_ = nullptr, *reductions_ = nullptr, *replica_ = nullptr;
  std::optional<parallel::Mesh> table_;  // of rows and columns, when there are both
  std::optional<WholeRounds> rounds_;
  std::unique_ptr<Stream> uploads_, downloads_;
  int windows_ = 0;
  bool shards_read_ = false;  // since the last barrier
};

}  // namespace shardgrad::fsdp
