#pragma once
// What every rank of a group has for every other one goes there by the fewest bytes on a cable: on each machine the
// carrier of a rank's part makes of it what the machine can, the sums of its parts of the tree, and sends that to the
// rank, which has then one message from each machine for every part of the tree there. Done in segments, so that memory
// is bounded.

#include <functional>
#include <map>
#include <span>
#include <vector>

#include <shardgrad/dist/transports/direct_transport.h>
#include <shardgrad/dist/transports/kept_room.h>
#include <shardgrad/dist/transports/two_level/link.h>
#include <shardgrad/dist/transports/two_level/routes.h>
#include <shardgrad/dist/transports/two_level/subtree_sum.h>

namespace shardgrad::dist::two_level {

/// How many bytes a rank keeps of what it receives, and of what it sends, at a time; more where a group is so large
/// that 64 elements of each value are more.
inline constexpr size_t kBoxBytes = size_t(4) << 20;

class Exchange {
 public:
  /// `sums`: over ranks, as far as machines can make them; `values`: each rank's by itself.
  enum class What { sums, values };
  Exchange(const RankMap& map, int rank, DType dtype, What what);

  /// Gets bytes [from, to) of this rank's part: all parts of the tree in ascending order, each where its bytes `from`
  /// are.
  using Take = std::function<void(std::span<const Summed> parts, size_t from, size_t to)>;
  void run(const Call& call, DirectTransport& inner, Link& link, const void* full, Cut cut, KeptRoom& room,
           const Check& check, const Take& take);
  /// How many bytes of the room that takes.
  size_t bytes(Cut cut) const { return (width_ + carried_.size() * my_width_) * size_t(segment_of(cut)); }

 private:
  /// A part of the tree, whose machine makes it, and how far its place in a box is: in bytes per element of the
  /// segment.
  struct Value {
    Subtree part;
    int machine;
    size_t offset;
  };
  int64_t segment_of(Cut cut) const;
  std::byte* inbox(const Value& value) const;
  std::byte* outbox(size_t carried, const Value& value) const;
  void make(const DirectTransport::Piece& piece, Cut cut, size_t from, size_t to, size_t begin);
  void post(const Call& call, Link& link, Cut cut, size_t begin, size_t end);

  const RankMap& map_;
  int rank_;
  DType dtype_;
  std::vector<int> carried_;   // parts that this rank makes for other machines
  std::vector<Value> values_;  // of all machines, in ascending order
  size_t width_ = 0;           // bytes of an inbox per element
  std::vector<size_t> mine_;   // of these, the ones that this machine makes
  size_t my_width_ = 0;
  int64_t longest_segment_;  // elements of a part that are exchanged at a time: the same number on all ranks
  int64_t segment_ = 0;      // of the call that runs
  std::byte* boxes_ = nullptr;
};

/// The exchanges of a rank, each made when it is first asked for, for making one looks at all ranks: at most one for
/// each dtype of what is summed, and one for values.
class Exchanges {
 public:
  Exchanges(const RankMap& map, int rank) : map_(map), rank_(rank) {}
  Exchange& of(DType dtype, Exchange::What what) {
    return made_.try_emplace({what, dtype}, map_, rank_, dtype, what).first->second;
  }

 private:
  const RankMap& map_;
  int rank_;
  std::map<std::pair<Exchange::What, DType>, Exchange> made_;
};

}  // namespace shardgrad::dist::two_level
