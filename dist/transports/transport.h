#pragma once
// How bytes move between the ranks of one group. All calls are made by the group's stream, one after the other, with
// addresses that the host may use (staged_transport.cpp sees to that for a GPU); arguments have been checked. A
// transport waits only in loops that call check(), so every wait ends when the job does. One file per implementation.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/device.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/dist/transports/common_memory.h>
#include <shardgrad/dist/watch/control.h>

namespace shardgrad::Category {
inline constexpr Kind communication = named<"communication">;  ///< what transports and reductions need on the way
}

namespace shardgrad::dist {

/// This rank leaves a group by an exception, with collectives unfinished: what ends them is a consequence of that
/// exception, which is on its way and will be the job's cause unless the program catches it.
class Abandoned : public Error {
 public:
  explicit Abandoned(const std::string& kind)
      : Error(ErrorKind::rank_failed, "this rank leaves its " + kind + " group with collectives unfinished") {}
};

/// One collective as all ranks see it.
struct Call {
  uint64_t sequence = 0;     ///< the group's how-manieth call, from 1
  uint64_t fingerprint = 0;  ///< equal on all ranks when they make the same call
  int lane = 0;              ///< the group's lane of the control channel
  Stream* stream = nullptr;  ///< the group's stream
  Device device;             ///< of the tensors
  const Place* place = nullptr;
};

/// One buffer of an all-gather: full (size · bytes) = all shards; shard may be its own slice.
struct GatherPart {
  void* full;
  const void* shard;
  size_t bytes;
};

class Transport {
 public:
  Transport(std::string kind, int rank, int size, std::shared_ptr<Control> control)
      : kind_(std::move(kind)), rank_(rank), size_(size), control_(std::move(control)) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;

  const std::string& kind() const { return kind_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// full (size · bytes) = all shards; shard may be its own slice.
  virtual void all_gather(const Call& call, void* full, const void* shard, size_t bytes) = 0;
  /// Several of them as one call.
  virtual void gather_parts(const Call& call, std::span<const GatherPart> parts) {
    for (const GatherPart& part : parts) all_gather(call, part.full, part.shard, part.bytes);
  }
  /// shard (n elements) = the tree sum of slice rank() of every rank's full; shard may be its own slice.
  virtual void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) = 0;
  virtual void all_reduce(const Call& call, void* data, int64_t n, DType dtype) = 0;
  virtual void broadcast(const Call& call, void* data, size_t bytes, int root) = 0;
  /// out and in hold size() parts of `bytes` each.
  virtual void all_to_all(const Call& call, void* out, const void* in, size_t bytes) = 0;
  virtual void barrier(const Call& call) = 0;

  /// True when calls queue what they do on call.stream, which may then be a stream of a GPU. The others move bytes
  /// themselves, in a thread of the host.
  virtual bool queues() const { return false; }
  /// True when it tells the control channel itself which call it is in, because calls end later than they return.
  virtual bool tracks() const { return false; }
  /// True when calls move bytes by memory that ranks share alone, in whichever thread makes them.
  virtual bool meets_in_memory() const { return false; }
  /// The group's stream has done all it was given, and this rank is about to leave the group. When this returns no peer
  /// reads this rank's memory, and one that tracks has told the control channel of every call: the others would miss
  /// this rank in those it has not told of.
  virtual void leave() {}

  /// Memory that this transport sends from without a copy.
  virtual Ref<Allocator> memory(Device device);

  /// Common memory (dist/transports/common_memory.h): one rank lends it, its word reaches the others, each opens it. 0:
  /// it has none.
  virtual bool has_common_memory() const { return false; }
  /// Whether the other ranks are only pretended to be there: calls on device meta reach it, to say what they would
  /// need.
  virtual bool is_pretended() const { return false; }
  /// What they would compute on, then; meta: nobody has said.
  virtual Device stands_for() const { return kMeta; }
  virtual int64_t lend(size_t) { return 0; }
  virtual std::shared_ptr<CommonMemory> borrow(int64_t, size_t) { return nullptr; }

  /// Splitting: rank 0 of the new group calls invite(), its word reaches the members, each calls join().
  virtual int64_t invite(int size) = 0;
  virtual std::unique_ptr<Transport> join(int64_t invitation, const std::vector<int>& members, int rank) = 0;

  /// Calls in flight and later ones end with Abandoned: this rank leaves without finishing them.
  virtual void abandon() { abandoned_.store(true, std::memory_order_release); }

 protected:
  /// Throws when waiting has become pointless.
  void check() const;
  Control& control() const { return *control_; }
  const std::shared_ptr<Control>& shared_control() const { return control_; }

 private:
  std::string kind_;
  int rank_, size_;
  std::shared_ptr<Control> control_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace shardgrad::dist
