#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/os/board.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/watch/control.h>
#include <tests/dist/child.h>

namespace shardgrad::dist {
namespace {

constexpr size_t kShard = 64;

std::shared_ptr<void> board_of_two() {
  size_t bytes = Board::board_bytes(2);
  std::shared_ptr<void> memory(std::aligned_alloc(alignof(Seat), bytes), std::free);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// How often two ranks meet when each gathers its shard into where `whole_of` says.
uint32_t meetings_of_a_gather(const std::function<std::byte*(int rank, std::byte* common, std::byte* own)>& whole_of) {
  std::shared_ptr<void> memory = board_of_two();
  ControlPage page = make_private_page(2);
  std::vector<std::byte> common(2 * kShard);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      Context context({.rank = rank, .world_size = 2});
      auto transport = make_threads_transport(memory, rank, 2, std::make_shared<Control>(page, rank));
      std::vector<std::byte> own(2 * kShard);
      std::byte* shard = common.data() + size_t(rank) * kShard;
      std::fill_n(shard, kShard, std::byte(rank + 1));
      std::byte* whole = whole_of(rank, common.data(), own.data());
      transport->all_gather({.sequence = 1, .fingerprint = 7}, whole, shard, kShard);
      for (size_t i = 0; i < 2 * kShard; ++i) EXPECT_EQ(int(whole[i]), i < kShard ? 1 : 2) << "rank " << rank;
    });
  for (std::thread& rank : ranks) rank.join();
  return Board(memory, 0, 2).seat(0).phase.load();
}

TEST(DirectTransport, RanksMeetOnceToGatherWhatIsInPlaceForAll) {
  EXPECT_EQ(meetings_of_a_gather([](int, std::byte* common, std::byte*) { return common; }), 1u);
}

TEST(DirectTransport, RanksMeetAgainWhenAnyOfThemCopies) {
  EXPECT_EQ(meetings_of_a_gather([](int, std::byte*, std::byte* own) { return own; }), 2u);
  EXPECT_EQ(meetings_of_a_gather([](int rank, std::byte* common, std::byte* own) { return rank ? own : common; }), 2u);
}

// Whoever reads this rank's memory is waited for, but not a process that is dead or stopped in the middle of it.
TEST(DirectTransport, ARankThatIsLostWhileItReadsIsNotWaitedFor) {
  for (int signal : {SIGKILL, SIGSTOP}) {
    testing::Child reader([] { pause(); });
    kill(reader.pid(), signal);
    std::shared_ptr<void> memory = board_of_two();
    Board(memory, 1, 2).mine().reading.store(1);
    ControlPage page = make_private_page(2);
    page.row(1).pid.store(reader.pid());
    Context context({.world_size = 2});
    auto control = std::make_shared<Control>(page, 0);
    int lane = control->open_lane(1, {0, 1});
    auto transport = make_threads_transport(memory, 0, 2, control);
    page.claim_cause(1, 4, "rank 1 died");
    EXPECT_THROW(transport->barrier({.sequence = 1, .fingerprint = 7, .lane = lane}), Error);
  }
}

// Rank 1 has arrived and given up while it waited: what it offered may be gone.
TEST(DirectTransport, MemoryOfARankThatHasWithdrawnIsNotRead) {
  std::shared_ptr<void> memory = board_of_two();
  std::vector<std::byte> theirs(kShard, std::byte(2)), mine(kShard, std::byte(1)), whole(2 * kShard);
  Seat& seat = Board(memory, 1, 2).mine();
  seat.offers[1].fingerprint.store(7);
  seat.offers[1].place.store(reinterpret_cast<uintptr_t>(theirs.data()));
  seat.phase.store(1);
  seat.withdrawn.store(1);
  ControlPage page = make_private_page(2);
  page.claim_cause(1, 4, "label 11 of sample 5");
  Context context({.world_size = 2});
  auto control = std::make_shared<Control>(page, 0);
  int lane = control->open_lane(1, {0, 1});
  auto transport = make_threads_transport(memory, 0, 2, control);
  Call call{.sequence = 1, .fingerprint = 7, .lane = lane};
  EXPECT_THROW(transport->all_gather(call, whole.data(), mine.data(), kShard), Error);
  EXPECT_EQ(whole, std::vector<std::byte>(2 * kShard));
}

}  // namespace
}  // namespace shardgrad::dist
