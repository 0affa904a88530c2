#include <gtest/gtest.h>

#include <atomic>
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

// Rank 1 of a heap's two, as far as rank 0 sees it, in its `call`th call.
struct Peer {
  Seat& seat;
  void arrive(uint32_t call, uint64_t offset) {
    Offer& offer = seat.offers[call % 2];
    offer.fingerprint.store(7);
    offer.place.store(offset);
    offer.copied.store(1);
    seat.phase.store(call);
  }
};

// Two calls of which rank 1 reads neither before rank 0 has gone on, and leaves the group.
TEST(DirectTransport, WhatIsSmallIsCopiedAndNobodyWaitsUntilItIsReadButToLeave) {
  constexpr size_t kHeap = size_t(16) << 20;
  std::shared_ptr<SharedMemory> memory = SharedMemory::create("test", SharedHeap::heap_bytes(2, kHeap));
  Context context({.world_size = 2});
  auto control = std::make_shared<Control>(make_private_page(2), 0);
  int lane = control->open_lane(1, {0, 1});
  auto heap = std::make_shared<SharedHeap>(memory, 0, 2);
  auto transport = make_shared_memory_transport(heap, 0, 2, control);
  auto* theirs = static_cast<float*>(SharedHeap(memory, 1, 2).region()->take(kShard));
  std::fill_n(theirs, kShard / 4, 2.f);
  Peer peer{Board(heap->world_board(), 1, 2).mine()};
  std::vector<float> mine(kShard / 4, 1.f);
  peer.arrive(1, heap->offset_of(theirs));
  transport->all_reduce({.sequence = 1, .fingerprint = 7, .lane = lane}, mine.data(), kShard / 4, DType::f32);
  EXPECT_EQ(mine, std::vector<float>(kShard / 4, 3.f));
  peer.arrive(2, heap->offset_of(theirs));
  transport->all_reduce({.sequence = 2, .fingerprint = 7, .lane = lane}, mine.data(), kShard / 4, DType::f32);
  EXPECT_EQ(mine, std::vector<float>(kShard / 4, 5.f));
  Seat& seat = Board(heap->world_board(), 0, 2).mine();
  for (auto [call, value] : {std::pair(1, 1.f), {2, 3.f}})
    EXPECT_EQ(*reinterpret_cast<float*>(heap->at(seat.offers[call % 2].place.load())), value) << "call " << call;

  std::atomic<bool> left{false};
  std::thread leaves([&] { transport->leave(), left = true; });
  peer.seat.read.store(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(left) << "a copy is still read";
  peer.seat.read.store(2);
  leaves.join();
}

// A peer that comes late reads the copy of a rank that has given up and left.
TEST(DirectTransport, ACopyStaysWhereItIsWhenItsRankHasWithdrawn) {
  std::shared_ptr<SharedMemory> memory = SharedMemory::create("test", SharedHeap::heap_bytes(2, size_t(16) << 20));
  Context context({.world_size = 2});
  auto control = std::make_shared<Control>(make_private_page(2), 0);
  int lane = control->open_lane(1, {0, 1});
  auto heap = std::make_shared<SharedHeap>(memory, 0, 2);
  auto transport = make_shared_memory_transport(heap, 0, 2, control);
  std::vector<float> mine(kShard / 4, 1.f);
  transport->abandon();
  Call call{.sequence = 1, .fingerprint = 7, .lane = lane};
  EXPECT_THROW(transport->all_reduce(call, mine.data(), kShard / 4, DType::f32), Error);
  transport->leave();
  transport.reset();
  auto* copy = heap->at(Board(heap->world_board(), 0, 2).mine().offers[1].place.load());
  while (auto* taken = static_cast<std::byte*>(heap->region()->take(4096)))
    EXPECT_TRUE(copy < taken || copy >= taken + 4096) << "it was given away";
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
