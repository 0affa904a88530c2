#include <shardgrad/core/allocator.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/memory_apart.h>
#include <shardgrad/core/poison.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

using namespace std::chrono_literals;

TEST(CachingAllocator, BlocksAreAlignedAndReusedOnTheirOwnStream) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::when_done);
  for (size_t bytes : {1, 63, 64, 65, 1024, 1025, 5000, 1 << 20, (3 << 20) + 1}) {
    MemoryBlock block = memory->allocate(bytes, compute);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % kAlignment, 0u) << bytes;
    std::memset(block.data, 1, bytes);
    memory->free(block, compute);
    MemoryBlock again = memory->allocate(bytes, compute);
    EXPECT_EQ(again.data, block.data) << bytes;
    memory->free(again, compute);
  }
}

TEST(CachingAllocator, WorkThatRunsDoesNotGetWhatIsFreedBehindIt) {
  Context context;
  auto stream = make_thread_stream(context, "stream");
  for (Reuse reuse : {Reuse::when_done, Reuse::ordered}) {
    Ref<Allocator> memory = make_caching_allocator(kCpu, reuse);
    MemoryBlock used = memory->allocate(256, *stream), own{};
    std::atomic<bool> go{false};
    stream->run("use", [&] {
      while (!go) std::this_thread::sleep_for(1ms);
      own = memory->allocate(256, *stream);
    });
    memory->free(used, *stream);
    go = true;
    stream->synchronize();
    EXPECT_NE(own.data, used.data) << "a workspace on top of the operand";
    memory->free(own, *stream);
    stream->synchronize();
  }
}

TEST(CachingAllocator, HostMemoryInUseOnAnotherStreamIsNotReusedBeforeThatUseIsDone) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  auto busy = make_thread_stream(context, "busy");
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::when_done);
  std::atomic<bool> go{false};
  busy->run("use", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  MemoryBlock first = memory->allocate(4096, compute);
  memory->free(first, *busy);
  MemoryBlock second = memory->allocate(4096, compute);
  EXPECT_NE(second.data, first.data);
  go = true;
  busy->synchronize();
  MemoryBlock third = memory->allocate(4096, compute);
  EXPECT_EQ(third.data, first.data);
  memory->free(second, compute);
  memory->free(third, compute);
}

constexpr size_t kMiB = size_t(1) << 20;

// Neighbouring pieces of one region, counted.
class CountingMemory final : public MemorySource {
 public:
  void* take(size_t bytes) override {
    ++takes, held += bytes, taken_ += bytes;
    return region_ + taken_ - bytes;
  }
  void give(void*, size_t bytes) noexcept override { held -= bytes; }
  ~CountingMemory() override { system_memory()->give(region_, kRegion); }
  int takes = 0;
  size_t held = 0;

 private:
  static constexpr size_t kRegion = 128 * kMiB;
  std::byte* region_ = static_cast<std::byte*>(system_memory()->take(kRegion));
  size_t taken_ = 0;
};

TEST(CachingAllocator, BlocksOfDifferentSizesShareMemoryAtDifferentTimes) {
  for (Reuse reuse : {Reuse::when_done, Reuse::ordered}) {
    Context context;
    Stream& compute = context.backend(kCpu).compute();
    auto source = std::make_shared<CountingMemory>();
    {
      Ref<Allocator> memory = make_caching_allocator(kCpu, reuse, source);
      auto use = [&](size_t bytes, int count) {
        std::vector<MemoryBlock> blocks;
        for (int i = 0; i < count; ++i) blocks.push_back(memory->allocate(bytes, compute));
        for (MemoryBlock block : blocks) std::memset(block.data, 1, block.bytes);
        for (MemoryBlock block : blocks) memory->free(block, compute);
      };
      use(10 * kMiB, 6);
      int takes = source->takes;
      use(5 * kMiB, 12);
      use(20 * kMiB, 3);
      use(60 * kMiB, 1);
      EXPECT_EQ(source->takes, takes) << "sixty megabytes in any cut";
      EXPECT_EQ(source->held, 60 * kMiB);
    }
    EXPECT_EQ(source->held, 0u);
  }
}

TEST(CachingAllocator, ASmallBlockThatIsUsedAgainAndAgainCrowdsNothingOut) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  auto source = std::make_shared<CountingMemory>();
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::when_done, source);
  auto use = [&](size_t bytes) { memory->free(memory->allocate(bytes, compute), compute); };
  use(20 * kMiB);
  for (int i = 0; i < 1000; ++i) use(kMiB / 16);
  use(1024);  // new: old memory goes back where too much is kept
  int takes = source->takes;
  use(20 * kMiB);
  use(kMiB / 16);
  EXPECT_EQ(source->takes, takes) << "all of it was kept";
}

// Device sim's: what a kernel writes past the end of an operand is no other operand's.
TEST(CachingAllocator, BlocksApartHaveAMegabyteOfNobodysBetweenThemAndAreReused) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  Ref<Allocator> memory = make_allocator_apart(kCpu, Reuse::ordered);
  memory->free(memory->allocate(16 * kMiB, compute), compute);  // from which other allocators' blocks would be cut
  auto place = [](const MemoryBlock& block) { return reinterpret_cast<uintptr_t>(block.data); };
  std::vector<MemoryBlock> blocks;
  for (size_t bytes : {size_t(64), size_t(64), size_t(4096), kMiB, 2 * kMiB, 3 * kMiB + 1, kMiB}) {
    MemoryBlock block = memory->allocate(bytes, compute);
    std::memset(block.data, 1, bytes);
    memory->free(block, compute);
    EXPECT_EQ(memory->allocate(bytes, compute).data, block.data) << bytes;
    blocks.push_back(block);
  }
  std::ranges::sort(blocks, {}, place);
  for (size_t i = 1; i < blocks.size(); ++i)
    EXPECT_GE(place(blocks[i]) - place(blocks[i - 1]) - blocks[i - 1].bytes, kApart) << i;
  for (MemoryBlock block : blocks) memory->free(block, compute);
}

TEST(CachingAllocator, PiecesOfAChunkGoBackToTheSystemAndRunningOutOfMemoryIsAnError) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::when_done);
  MemoryBlock block = memory->allocate(31 * kMiB + kMiB / 2, compute);  // half a mebibyte of its chunk stays free
  EXPECT_THROW(memory->allocate(size_t(1) << 50, compute), Error);
  std::memset(block.data, 1, block.bytes);
  memory->free(block, compute);
}

// As much as it is made with, and no more.
class LimitedMemory final : public MemorySource {
 public:
  explicit LimitedMemory(size_t limit) : limit_(limit) {}
  void* take(size_t bytes) override {
    if (held + bytes > limit_) return nullptr;
    held += bytes;
    return system_->take(bytes);
  }
  void give(void* data, size_t bytes) noexcept override {
    held -= bytes;
    system_->give(data, bytes);
  }
  std::atomic<size_t> held{0};

 private:
  std::shared_ptr<MemorySource> system_ = system_memory();
  size_t limit_;
};

TEST(CachingAllocator, MemoryThatRunsOutWaitsForTheFreesThatArePending) {
  for (Reuse reuse : {Reuse::when_done, Reuse::ordered, Reuse::poisoned}) {
    Context context;
    std::unique_ptr<Stream> streams[] = {make_thread_stream(context, "a"), make_thread_stream(context, "b")};
    auto third = make_thread_stream(context, "c");
    std::atomic<bool> go{false};
    Ref<Allocator> memory = make_caching_allocator(kCpu, reuse, std::make_shared<LimitedMemory>(17 * kMiB));
    for (auto& stream : streams) {
      MemoryBlock block = memory->allocate(8 * kMiB, *stream), small = memory->allocate(1000, *stream);
      stream->run("use", [&] {
        while (!go) std::this_thread::sleep_for(1ms);
      });
      memory->free(block, *stream);
      memory->free(small, *stream);
    }
    std::jthread later([&] { std::this_thread::sleep_for(20ms), go = true; });
    MemoryBlock both = memory->allocate(16 * kMiB, *third);  // no chunk is large enough, and all are in use
    EXPECT_TRUE(go);
    std::memset(both.data, 1, both.bytes);
    memory->free(both, *third);
    third->synchronize();
  }
}

TEST(CachingAllocator, WorkThatRunsDoesNotWaitForTheFreesBehindIt) {
  Context context;
  auto stream = make_thread_stream(context, "stream");
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::ordered, std::make_shared<LimitedMemory>(16 * kMiB));
  MemoryBlock held = memory->allocate(12 * kMiB, *stream);
  std::atomic<bool> go{false};
  stream->run("use", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
    EXPECT_THROW(memory->allocate(12 * kMiB, *stream), Error);
  });
  memory->free(held, *stream);
  go = true;
  stream->synchronize();
}

TEST(CachingAllocator, ARefusedRequestDoesNotRaiseWhatIsKept) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  auto source = std::make_shared<LimitedMemory>(128 * kMiB);
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::ordered, source);
  EXPECT_THROW(memory->allocate(size_t(1) << 50, compute), Error);
  memory->free(memory->allocate(40 * kMiB, compute), compute);
  memory->free(memory->allocate(41 * kMiB, compute), compute);
  EXPECT_LE(source->held, 62 * kMiB);  // 1.1 times 41 MiB, plus 16 MiB
}

// A source that takes its time, and sees whether it is asked by two threads at once.
class WatchedMemory final : public MemorySource {
 public:
  void* take(size_t bytes) override { return system_->take(bytes); }
  void give(void* data, size_t bytes) noexcept override {
    if (inside_.exchange(true)) together = true;
    std::this_thread::sleep_for(20ms);
    system_->give(data, bytes);
    inside_ = false;
  }
  std::atomic<bool> together{false};

 private:
  std::atomic<bool> inside_{false};
  std::shared_ptr<MemorySource> system_ = system_memory();
};

// As of tensors that two threads have kept past the end of their run.
TEST(CachingAllocator, BlocksThatOutliveTheContextMayEndOnAnyThread) {
  auto source = std::make_shared<WatchedMemory>();
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::when_done, source);
  std::vector<MemoryBlock> blocks;
  {
    Context context;
    for (int i = 0; i < 4; ++i) blocks.push_back(memory->allocate(1000, context.backend(kCpu).compute()));
  }
  {
    std::vector<std::jthread> threads;
    for (MemoryBlock block : blocks) threads.emplace_back([&memory, block] { memory->discard(block); });
  }
  EXPECT_FALSE(source->together);
}

TEST(CachingAllocator, ALargeBlockStillInUseElsewhereIsLeftAloneUntilThatUseIsDone) {
  Context context;
  Stream& compute = context.backend(kCpu).compute();
  auto busy = make_thread_stream(context, "busy");
  Ref<Allocator> memory = make_caching_allocator(kCpu, Reuse::when_done);
  std::atomic<bool> go{false};
  busy->run("use", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  MemoryBlock first = memory->allocate(8 * kMiB, compute);
  memory->free(first, *busy);
  MemoryBlock second = memory->allocate(8 * kMiB, compute);
  EXPECT_NE(second.data, first.data);
  go = true;
  busy->synchronize();
  MemoryBlock third = memory->allocate(8 * kMiB, compute);
  EXPECT_EQ(third.data, first.data);
  memory->free(second, compute);
  memory->free(third, compute);
}

TEST(CachingAllocator, AnAsynchronousDeviceReusesAtOnceAndTheStreamWaits) {
  for (size_t bytes : {size_t(4096), 8 * kMiB}) {
    Context context({.device = kAcc});
    Backend& acc = context.backend(kAcc);
    auto other = acc.make_stream("other");
    std::atomic<bool> go{false};
    other->run("use", [&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
    MemoryBlock first = acc.memory()->allocate(bytes, *other);
    acc.memory()->free(first, *other);
    MemoryBlock second = acc.memory()->allocate(bytes, acc.compute());
    EXPECT_EQ(second.data, first.data) << bytes;
    std::atomic<bool> ran{false};
    acc.compute().run("after", [&] { ran = true; });
    std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(ran) << bytes;
    go = true;
    acc.compute().synchronize();
    EXPECT_TRUE(ran);
    acc.memory()->free(second, acc.compute());
  }
}

TEST(CachingAllocator, FreedMemoryOfAnAsynchronousDeviceIsPoisoned) {
  Context context({.device = kAcc});
  Backend& acc = context.backend(kAcc);
  MemoryBlock block = acc.memory()->allocate(64, acc.compute());
  acc.compute().run("write", [block] { std::memset(block.data, 0, 64); });
  acc.memory()->free(block, acc.compute());
  acc.compute().synchronize();
  EXPECT_EQ(static_cast<uint16_t*>(block.data)[31], kUnwritten);
}

TEST(AccDevice, TheHostMayNotReadDirectlyButCopiesWork) {
  Context context({.device = kAcc});
  Tensor x = from_vector<float>({1, 2, 3}, {3});
  EXPECT_EQ(x.device(), kAcc);
  EXPECT_THROW(x.data<float>(), Error);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(AccDevice, ReleasingWhileAnotherStreamStillReadsIsReported) {
  Context context({.device = kAcc});
  auto other = context.backend(kAcc).make_stream("other");
  Tensor x = from_vector<float>({1, 2, 3}, {3});
  Access access{x.in().data, x.bytes(), false};
  other->run("early read", [] {}, {&access, 1});
  x.storage()->release(context.backend(kAcc).compute());
  EXPECT_TRUE(context.aborted());
  try {
    context.check_abort();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("early read"), std::string::npos);
  }
}

// Each round's stream comes to lie where the last one's was, and gets the blocks that that one has freed.
TEST(AccDevice, StreamsMayComeAndGo) {
  Context context({.device = kAcc});
  Backend& acc = context.backend(kAcc);
  for (size_t bytes : {size_t(4096), size_t(1) << 20})
    for (int round = 0; round < 50; ++round) {
      auto stream = acc.make_stream("copies");
      MemoryBlock block = acc.memory()->allocate(bytes, *stream);
      Access access{block.data, block.bytes, true};
      stream->run("copy", [] {}, {&access, 1});
      acc.memory()->free(block, *stream);
    }
  context.check_abort();
}

TEST(Meta, HasShapesAndLedgerButNoMemory) {
  Context context({.device = kMeta});
  Tensor x = empty({1 << 20, 1 << 15});
  EXPECT_EQ(context.ledger().current(), int64_t(4) << 35);
  EXPECT_EQ(x.rows(0, 2).shape(), (Shape{2, 1 << 15}));
  EXPECT_THROW(x.to_vector<float>(), Error);
}

}  // namespace
}  // namespace shardgrad
