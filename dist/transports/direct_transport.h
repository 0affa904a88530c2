#pragma once
// Collectives for ranks that can read each other's memory: threads of one process, or processes of one node with a
// shared heap. Nobody sends anything. A rank offers its buffer, meets the others, reads what it needs out of theirs,
// and meets them again before anybody's buffer changes:
//
//     reduce_scatter:  offer(full) · meet · shard = tree sum of slice[rank] over all ranks' full · meet
//     all_gather within common memory:  offer(shard) · meet
//
// A buffer that peers cannot read in place is staged: it goes through a small bounce region in as many rounds as it
// takes, and then everybody takes part in the rounds. A small one is copied there whole, in one of two slots in turn,
// and then nobody waits until it is read: whoever comes to the next call has read it, and the one after it uses the
// slot.
//
//     all_reduce of little:  copy to slot · offer(slot) · meet · everybody sums all

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <shardgrad/dist/os/board.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist {

class DirectTransport : public Transport {
 public:
  DirectTransport(std::string kind, std::shared_ptr<void> board, int rank, int size, std::shared_ptr<Control> control);
  /// Of a part of a group, whose lane it uses: the ranks in that group of those here. Unset: they are all of it.
  void set_members(std::vector<int> members) { members_ = std::move(members); }
  int lane() const { return lane_; }  ///< of the last call

  void all_gather(const Call& call, void* full, const void* shard, size_t bytes) override;
  void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) override;
  void all_reduce(const Call& call, void* data, int64_t n, DType dtype) override;
  void broadcast(const Call& call, void* data, size_t bytes, int root) override;
  void all_to_all(const Call& call, void* out, const void* in, size_t bytes) override;
  void barrier(const Call& call) override;
  bool meets_in_memory() const override { return true; }
  void leave() override;

  /// For collectives that are made of more than this: every rank's buffer of `total` bytes as `parts` parts that begin
  /// `stride` bytes apart, of which bytes [begin, end) are looked at. `shown`: the parts of `mine` that peers look at.
  struct View {
    const void* mine;
    int parts;
    size_t stride, total;
    size_t begin, end;
    std::span<const int> shown;
  };
  /// Where bytes [from, to) of part `part` of `peer`'s buffer are, for the time of the call.
  using Piece = std::function<const std::byte*(int peer, int part)>;
  using Visit = std::function<void(const Piece& piece, size_t from, size_t to)>;
  /// Calls visit for [begin, end), or for pieces of it one after the other. Returns when `view.mine` may change
  /// again: all ranks have seen all, or have a copy to see.
  void look(const Call& call, const View& view, const Visit& visit);

 protected:
  /// True when peers can read these bytes in place; then `place` tells them where.
  virtual bool offer(const void* data, size_t bytes, uint64_t& place) const = 0;
  /// Where this process sees what `peer` offered at `place`.
  virtual const std::byte* resolve(int peer, uint64_t place) const = 0;
  /// The region that `peer` stages in; bounce_bytes() long.
  virtual std::byte* bounce(int) const { return nullptr; }
  virtual size_t bounce_bytes() const { return 0; }
  /// The longest buffer that is copied.
  static constexpr size_t kSlotBytes = size_t(16) << 10;
  /// Room for two such that peers can read in place, on all ranks or on none. It is free when this rank has left,
  /// unless it has withdrawn: then a peer may come to read it at any time.
  void use_slots(std::byte* slots) { slots_ = slots; }
  bool has_withdrawn() const { return board_.mine().withdrawn.load() != 0; }
  const Board& board() const { return board_; }

 private:
  /// The part of a collective in which bytes [begin, end) of every part move.
  struct Round {
    size_t begin, end;
  };
  template <class Read> void rounds(const Call& call, const View& view, Read&& read, uint64_t whole = 0);
  template <class Read>
  void rounds(const Call& call, const void* mine, int parts, size_t bytes, Read&& read, uint64_t whole = 0) {
    rounds(call, {mine, parts, bytes, size_t(parts) * bytes, 0, bytes, {}}, read, whole);
  }
  void stage(const View& view, Round round) const;
  bool open(const Call& call, const void* mine, size_t bytes, uint64_t whole = 0);
  size_t slot_bytes() const { return slots_ ? kSlotBytes : 0; }
  std::byte* my_slot() const { return slots_ + calls_ % 2 * kSlotBytes; }
  uint64_t whole_of(const void* full, const void* shard, size_t bytes) const;
  void meet();
  void withdraw() noexcept;  // a collective ends early: returns when no peer reads this rank's memory
  template <class Over> void await_readers(Over&& over) const noexcept;
  void begin_reading();
  [[noreturn]] void await_cause();
  void end_reading() { board_.mine().reading.store(0); }
  /// Bytes [round.begin, round.end) of part `part` of `peer`'s buffer.
  const std::byte* piece(int peer, int part, Round round) const;

  Board board_;
  std::byte* slots_ = nullptr;
  uint32_t calls_ = 0, copied_call_ = 0;  // so far, and the last in which all copied
  std::vector<int> members_;
  // The collective in progress, or the last one.
  int lane_ = 0;
  std::vector<const std::byte*> sources_;  // by rank; null: staged
  bool all_in_place_ = false;              // every rank's buffer is where every rank wants it
  bool all_copied_ = false;                // every rank offers a copy
  size_t part_bytes_ = 0;
  std::vector<const void*> pieces_;
};

}  // namespace shardgrad::dist
