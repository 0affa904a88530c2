#pragma once
// Where the ranks of a group meet: a seat for each, in memory that all of them share. A rank says how far it is by
// counting its phase up; peers that need it wait on that one word. They look at it for a while, and then sleep in the
// kernel (futex), so that waiting does not take the core from whoever is being waited for: longer where looking has
// helped lately, and where ranks share cores they yield between two looks. Works between threads and processes.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace shardgrad::dist {

/// What a rank offers its peers in one collective.
struct Offer {
  std::atomic<uint64_t> fingerprint{0};
  std::atomic<uint64_t> place{0};   ///< where its buffer is, in the transport's terms
  std::atomic<uint64_t> whole{0};   ///< where it wants all ranks' buffers, if its own already lies there; else 0
  std::atomic<uint32_t> staged{0};  ///< the buffer cannot be read in place: its pieces come through a bounce region
  std::atomic<uint32_t> copied{0};  ///< what it offers is a copy, which stays until the call after the next
};

struct alignas(128) Seat {
  std::atomic<uint32_t> phase{0};      ///< grows by one at each meeting; wraps around
  std::atomic<uint32_t> sleepers{0};   ///< ranks that sleep until phase changes
  std::atomic<uint32_t> reading{0};    ///< this rank reads its peers' memory now
  std::atomic<uint32_t> withdrawn{0};  ///< this rank has given up: its memory must not be read any more
  std::atomic<uint64_t> bounce{0};     ///< where this rank stages, in the transport's terms
  Offer offers[2];  ///< by parity of the call: a fast rank's next call must not overwrite what a slow one still reads
  alignas(128) std::atomic<uint32_t> read{0};  ///< the last call whose copies this rank has read; seldom looked at
};

class Board {
 public:
  /// `memory` is zeroed when new, and board_bytes(size) long.
  Board(std::shared_ptr<void> memory, int rank, int size);
  static size_t board_bytes(int size) { return size_t(size) * sizeof(Seat); }
  Seat& seat(int rank) const { return seats_[rank]; }
  Seat& mine() const { return seats_[rank_]; }

  /// Counts this rank's phase up and wakes who sleeps on it.
  void arrive() const;
  /// True when `rank` has arrived as often as this rank.
  bool arrived(int rank) const {
    return int32_t(seats_[rank].phase.load(std::memory_order_acquire) - mine().phase.load(std::memory_order_relaxed)) >=
           0;
  }
  /// Waits for `rank` to arrive; calls check() again and again, which may throw.
  template <class Check> void await(int rank, Check&& check) {
    if (look(rank)) return;
    Sleeper sleeper(seats_[rank]);
    while (!arrived(rank)) {
      check();
      sleep(rank);
    }
  }
  /// arrive(), then await everybody.
  template <class Check> void meet(Check&& check) {
    arrive();
    for (int r = 0; r < size_; ++r)
      if (r != rank_) await(r, check);
  }

 private:
  struct Sleeper {
    explicit Sleeper(Seat& seat) : seat(seat) { seat.sleepers.fetch_add(1); }
    ~Sleeper() { seat.sleepers.fetch_sub(1); }
    Seat& seat;
  };
  bool look(int rank);
  bool look_all_the_time(int rank);
  bool look_between_turns(int rank);
  void sleep(int rank) const;  // until the phase changes, or some milliseconds
  std::shared_ptr<void> memory_;
  Seat* seats_;
  int rank_, size_;
  bool crowded_;  // there are fewer cores than ranks
  int looks_;     // of a wait before it sleeps; where ranks share cores, how far yielding helps
};

}  // namespace shardgrad::dist
