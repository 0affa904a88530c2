#include <gtest/gtest.h>

#include <random>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/transports/shared_heap.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist {
namespace {

constexpr size_t kMebibyte = size_t(1) << 20;

std::shared_ptr<SharedHeap> heap_of_one(size_t limit) {
  return std::make_shared<SharedHeap>(SharedMemory::create("test", SharedHeap::heap_bytes(1, limit)), 0, 1);
}

TEST(HeapRegion, PiecesNeverOverlapAndComeBackWhole) {
  auto heap = heap_of_one(64 * kMebibyte);
  HeapRegion& region = *heap->region();
  std::mt19937 random(1);
  std::map<std::byte*, size_t> taken;
  for (int i = 0; i < 3000; ++i) {
    if (taken.size() > 40 || (!taken.empty() && random() % 2)) {
      auto it = std::next(taken.begin(), std::ptrdiff_t(random() % taken.size()));
      region.give(it->first, it->second);
      taken.erase(it);
      continue;
    }
    size_t bytes = random() % 300'000 + 1;
    auto* data = static_cast<std::byte*>(region.take(bytes));
    ASSERT_TRUE(data && heap->contains(data, bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kAlignment, 0u);
    auto next = taken.lower_bound(data);
    EXPECT_TRUE(next == taken.end() || data + bytes <= next->first);
    EXPECT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= data);
    taken[data] = bytes;
  }
  for (auto [data, bytes] : taken) region.give(data, bytes);
  void* all = region.take(64 * kMebibyte);  // every piece has merged with its neighbours
  EXPECT_TRUE(all);
  EXPECT_FALSE(region.take(1));
}

// 47 bits of addresses are 128 TiB. A rank of few still may use all memory of its machine.
TEST(SharedHeap, OfManyRanksOnALargeMachineCanBeMapped) {
  constexpr size_t kTebibyte = size_t(1) << 40;
  EXPECT_EQ(SharedHeap::region_bytes(8, 2 * kTebibyte), 2 * kTebibyte);
  for (int ranks : {64, 96, 256, 1000}) {
    size_t region = SharedHeap::region_bytes(ranks, 2 * kTebibyte);
    EXPECT_GE(region, 16 * (2 * kTebibyte / size_t(ranks)) / 4096 * 4096) << ranks;
    EXPECT_NO_THROW(SharedMemory::create("test", SharedHeap::heap_bytes(ranks, region))) << ranks;
  }
}

// Not a region whose first touch kills the process.
TEST(HeapRegion, PagesThatTheSystemRefusesAreNoMemory) {
  auto memory = SharedMemory::create("test", kMebibyte);
  constexpr size_t kEnd = (size_t(1) << 63) - 4096;  // of the largest file
  EXPECT_FALSE(memory->back(kEnd, 8192));
  HeapRegion region(memory, kEnd, kMebibyte);
  EXPECT_FALSE(region.take(4096));
}

TEST(SharedHeap, RunningOutIsAnErrorWithARemedyAndPassesWhenMemoryComesBack) {
  VirtualOptions options;
  options.group.kind = "shared_memory";
  options.group.heap_limit = 8 * kMebibyte;
  run_ranks(
      2,
      [](ProcessGroup& world) {
        auto make = [&](size_t bytes) { return Storage::make(bytes, world.memory(), {}); };
        Ref<Storage> most = make(6 * kMebibyte);
        try {
          make(6 * kMebibyte);
          FAIL();
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::input);
          EXPECT_NE(std::string(error.what()).find("shared heap of this node"), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find("SHARDGRAD_GROUP=mpi"), std::string::npos) << error.what();
        }
        most = nullptr;
        EXPECT_TRUE(make(6 * kMebibyte)->resident());
      },
      options);
}

TEST(SharedHeap, GroupMemoryIsCountedByItsOwner) {
  VirtualOptions options;
  options.group.kind = "shared_memory";
  run_ranks(
      2,
      [](ProcessGroup& world) {
        Ledger& ledger = context().ledger();
        EXPECT_EQ(ledger.current(Category::communication), int64_t(kMebibyte));  // the bounce region
        auto storage = Storage::make(5000, world.memory(), {});
        EXPECT_EQ(ledger.current(Category::other), 5000);
      },
      options);
}

TEST(SharedHeap, TensorsMayOutliveTheirGroup) {
  Tensor kept;
  VirtualOptions options;
  options.group.kind = "shared_memory";
  run_ranks(
      1,
      [&](ProcessGroup& world) {
        kept = Tensor(Storage::make(16, world.memory(), {}), 0, {4}, DType::f32);
        kept.data<float>()[3] = 7;
      },
      options);
  EXPECT_EQ(static_cast<float*>(kept.storage()->data())[3], 7);
}

}  // namespace
}  // namespace shardgrad::dist
