#include <shardgrad/dist/os/board.h>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

namespace shardgrad::dist {

static_assert(sizeof(std::atomic<uint32_t>) == 4);

/// Of a wait that has its core for itself, some 20 ns each.
static constexpr int kLeastLooks = 100, kMostLooks = 1000;

static uint32_t* word_of(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

static void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Board::Board(std::shared_ptr<void> memory, int rank, int size)
    : memory_(std::move(memory)),
      seats_(static_cast<Seat*>(memory_.get())),
      rank_(rank),
      size_(size),
      crowded_(sysconf(_SC_NPROCESSORS_ONLN) < size),
      looks_(crowded_ ? 1 : kLeastLooks) {}

void Board::arrive() const {
  Seat& seat = mine();
  seat.phase.fetch_add(1);
  if (seat.sleepers.load() > 0) syscall(SYS_futex, word_of(seat.phase), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Board::look(int rank) { return arrived(rank) || (crowded_ ? look_between_turns(rank) : look_all_the_time(rank)); }

// This core is nobody else's: two cores tell each other something in a tenth of what a sleep costs.
bool Board::look_all_the_time(int rank) {
  for (int i = 0; i < looks_; ++i) {
    relax();
    if (!arrived(rank)) continue;
    looks_ = std::min(kMostLooks, 2 * looks_);
    return true;
  }
  looks_ = std::max(kLeastLooks, looks_ / 2);
  return false;
}

// Who is waited for may need this core. Ranks that all wait take turns of a microsecond; one that computes takes as
// long as the scheduler lets it, and whoever sleeps meanwhile is woken sooner than whoever has yielded. So this is done
// while it helps, and otherwise tried now and then.
bool Board::look_between_turns(int rank) {
  using namespace std::chrono_literals;
  constexpr int kMostTrust = 3, kWaitsBetweenTries = 32;
  if (looks_ <= 0 && looks_ > -kWaitsBetweenTries) {
    --looks_;
    return false;
  }
  auto begin = std::chrono::steady_clock::now();
  auto is_soon = [begin] { return std::chrono::steady_clock::now() - begin < 50us; };
  do sched_yield();
  while (!arrived(rank) && is_soon());
  bool helped = arrived(rank) && is_soon();
  looks_ = helped ? std::clamp(looks_ + 1, 1, kMostTrust) : std::max(0, looks_ - 1);
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
