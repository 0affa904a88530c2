#pragma once
// Collectives of ranks on several machines. The ranks of a machine read each other's memory (direct_transport.h);
// between machines messages go, by a link (link.h), and every byte crosses a cable once for each machine that needs it,
// whatever the number of ranks there. Rank r's part of a buffer crosses by way of r's carriers (machines.h), so all
// ranks of a machine send side by side.
//
// Example: ranks 0, 1, 2 on machine A and 3, 4 on B. The one order of sums is ((0 + 1) + (2 + 3)) + 4. A can sum 0 + 1
// by itself; nobody has both 2 and 3. So A's parts of the tree are {0, 1} and {2}, B's are {3} and {4}. Carriers of A's
// ranks 0, 1, 2 on B are ranks 3, 4, 3; of B's ranks 3, 4 on A they are 0, 1. An all_reduce of five slices, of which
// slice r is rank r's to sum:
//
//     1. Each rank reads, in its machine's memory, its own slice and those it carries, and sums what its machine can:
//          0: slices 0, 3    1: slices 1, 4    2: slice 2    3: slices 3, 0, 2    4: slices 4, 1
//     2. It sends those it carries to the rank whose slice it is:
//          0 to 3: of slice 3 the values 0 + 1 and 2         3 to 0: of slice 0 the values 3 and 4
//          1 to 4: of slice 4 the values 0 + 1 and 2         4 to 1: of slice 1 the values 3 and 4
//                                                            3 to 2: of slice 2 the values 3 and 4
//     3. Rank r has 0 + 1, 2, 3 and 4 of its slice now, and joins them as the tree says: (0 + 1) + (2 + 3), then + 4.
//        Every addition of the order above was made, by somebody, of the same two numbers: the same bits.
//     4. Slices are gathered: 0 sends its slice to 3, 1 to 4, 2 to 3; 3 sends to 0, 4 to 1. The ranks of a machine read
//        from each other what came.
//
// With ranks 0 to 3 on one machine and 4 to 7 on the other each has one part of the tree: a cable carries half of the
// buffer in each direction for the sums, and half for the gather. Ranks dealt out in turn (0, 2, 4, 6 and 1, 3, 5, 7)
// make four parts a machine, and sums cost four times as much, which cost_of_mapping tells.
//
// Sums are made in segments (exchange.h), so that what waits to be joined is bounded.

#include <functional>
#include <memory>

#include <shardgrad/dist/transports/direct_transport.h>
#include <shardgrad/dist/transports/kept_room.h>
#include <shardgrad/dist/transports/two_level/exchange.h>

namespace shardgrad::dist::two_level {

class TwoLevelTransport final : public Transport {
 public:
  /// `inner`: the calling rank's machine; `map`: of the group's ranks; `last_group`: the last number that this rank has
  /// given a group, which no other rank gives, nor the world has.
  TwoLevelTransport(std::unique_ptr<DirectTransport> inner, std::unique_ptr<Link> link, RankMap map, int rank,
                    std::shared_ptr<int64_t> last_group, std::shared_ptr<Control> control);

  void all_gather(const Call& call, void* full, const void* shard, size_t bytes) override;
  void gather_parts(const Call& call, std::span<const GatherPart> parts) override;
  void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) override;
  void all_reduce(const Call& call, void* data, int64_t n, DType dtype) override;
  void broadcast(const Call& call, void* data, size_t bytes, int root) override;
  void all_to_all(const Call& call, void* out, const void* in, size_t bytes) override;
  void barrier(const Call& call) override;

  Ref<Allocator> memory(Device device) override { return inner_->memory(device); }
  int64_t invite(int size) override;
  std::unique_ptr<Transport> join(int64_t invitation, const std::vector<int>& members, int rank) override;
  void leave() override { inner_->leave(); }
  void abandon() override;

 private:
  struct Buffer {
    std::byte* data;
    Cut cut;
  };
  int machine() const { return map_.node_rank(rank()); }
  void follow(const Call& call, std::span<const std::vector<Step>> routes, std::span<const Buffer> buffers);
  void gather(const Call& call, std::span<const Buffer> buffers);
  void read_from_carriers(const Call& call, const Buffer& buffer, int parts,
                          const std::function<int(int part)>& carrier);
  void reduce(const Call& call, void* out, const void* full, Cut cut, DType dtype);

  std::unique_ptr<DirectTransport> inner_;
  std::unique_ptr<Link> link_;
  RankMap map_;
  Exchanges exchanges_;
  std::shared_ptr<int64_t> last_group_;
  KeptRoom room_{Category::communication};
};

}  // namespace shardgrad::dist::two_level
