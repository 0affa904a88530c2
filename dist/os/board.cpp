#include <shardgrad/dist/os/board.h>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace shardgrad::dist {

static_assert(sizeof(std::atomic<uint32_t>) == 4);

static uint32_t* word_of(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

static void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Looks of a wait, some 20 ns each or, where ranks share cores, a turn of the others.
struct Looks {
  int least, most;
};
static constexpr Looks kAlone{100, 1000}, kCrowded{1, 64};

Board::Board(std::shared_ptr<void> memory, int rank, int size)
    : memory_(std::move(memory)),
      seats_(static_cast<Seat*>(memory_.get())),
      rank_(rank),
      size_(size),
      crowded_(sysconf(_SC_NPROCESSORS_ONLN) < size),
      looks_(crowded_ ? kCrowded.least : kAlone.least) {}

void Board::arrive() const {
  Seat& seat = mine();
  seat.phase.fetch_add(1);
  if (seat.sleepers.load() > 0) syscall(SYS_futex, word_of(seat.phase), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Board::look(int rank) {
  if (arrived(rank)) return true;
  auto [least, most] = crowded_ ? kCrowded : kAlone;
  for (int i = 0; i < looks_; ++i) {
    crowded_ ? void(sched_yield()) : relax();
    if (!arrived(rank)) continue;
    looks_ = std::min(most, 2 * looks_);
    return true;
  }
  looks_ = std::max(least, looks_ / 2);
  if (!crowded_) sched_yield();
  return arrived(rank);
}

void Board::sleep(int rank) const {
  Seat& seat = seats_[rank];
  uint32_t seen = seat.phase.load();
  if (arrived(rank)) return;
  timespec limit{0, 10'000'000};
  syscall(SYS_futex, word_of(seat.phase), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace shardgrad::dist
