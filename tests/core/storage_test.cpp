// Versions of values that share a storage, who is asked for memory that is not there, and what a context tells at its
// end.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

TEST(Storage, AWriteCountsForTheValuesThatItReaches) {
  Context context;
  Tensor all = empty({12}), first = all.rows(0, 4), second = all.rows(4, 8), third = all.rows(8, 12);
  copy_into(second, from_vector<float>({1, 2, 3, 4}, {4}));
  EXPECT_EQ(first.version(), 1u) << "values side by side count together";
  all.storage()->count_writes_apart({0, 16, 32});
  auto versions = [&] { return std::vector{first.version(), second.version(), third.version()}; };
  copy_into(second, first);
  EXPECT_EQ(versions(), (std::vector<uint64_t>{1, 2, 1}));
  copy_into(all.rows(3, 5), all.rows(0, 2));
  EXPECT_EQ(versions(), (std::vector<uint64_t>{2, 3, 1}));
  copy_into(all.rows(9, 10), all.rows(0, 1));
  EXPECT_EQ(versions(), (std::vector<uint64_t>{2, 3, 2}));
  copy_into(all, empty({12}));
  EXPECT_EQ(versions(), (std::vector<uint64_t>{3, 4, 3}));
  Tensor next = empty({12});
  next.storage()->succeed(*all.storage());
  EXPECT_EQ(next.version(), 5u) << "none that a value was saved at";
}

TEST(Storage, WhoeverBringsMemoryBackIsAskedWhenItIsMissing) {
  Context context;
  Tensor t = empty({4});
  Stream& compute = context.backend(kCpu).compute();
  t.storage()->release(compute);
  EXPECT_THROW(t.in(), Error);
  int asked = 0;
  t.storage()->on_missing([&] {
    if (++asked == 2) t.storage()->materialize(compute);
  });
  EXPECT_THROW(t.in(), Error) << "asked, and not brought back";
  EXPECT_NO_THROW(t.in());
  EXPECT_NO_THROW(t.in());
  EXPECT_EQ(asked, 2);
}

TEST(Storage, ValuesOnTheirWayAreNotReadAndWhoeverBringsThemIsAsked) {
  Context context;
  Tensor t = empty({4});
  t.storage()->set_arriving(true);
  EXPECT_THROW(t.in(), Error);
  t.storage()->on_missing([&] { t.storage()->set_arriving(false); });
  EXPECT_NO_THROW(t.in());
}

// As Python's garbage collector, which runs in any thread.
TEST(Storage, AThreadWithoutAContextThatDropsItWaitsForNobodyAndDisturbsNobody) {
  Context context({.device = kAcc});
  Backend& acc = context.backend(kAcc);
  auto other = acc.make_stream("other");
  std::atomic<bool> go{false}, ran{false};
  Ref<Storage> storage = Storage::make(4096, acc.memory(), {Category::other, 0});
  void* data = storage->data();
  acc.compute().run("late write", [&] {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::memset(data, 1, 4096);
  });
  std::thread([&] {
    storage = {};
    EXPECT_EQ(Context::current(), nullptr);
  }).join();
  EXPECT_EQ(context.ledger().current(), 0);
  MemoryBlock next = acc.memory()->allocate(4096, *other);
  EXPECT_EQ(next.data, data);
  other->run("use of it", [&] { ran = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(ran) << "the other stream waits for the write";
  go = true;
  other->synchronize();
  EXPECT_TRUE(ran);
  acc.memory()->free(next, *other);
}

/// Memory that says when it is given back.
class ToldMemory final : public Allocator {
 public:
  ToldMemory(Device device, std::function<void()> given_back) : Allocator(device), given_back_(std::move(given_back)) {}
  MemoryBlock allocate(size_t bytes, Stream&) override { return {std::aligned_alloc(64, bytes), bytes}; }
  void free(MemoryBlock block, Stream& stream) noexcept override {
    stream.run("free", [self = Ref<ToldMemory>(this), block] { self->discard(block); });
  }
  void discard(MemoryBlock block) noexcept override {
    given_back_();
    std::free(block.data);
  }

 private:
  std::function<void()> given_back_;
};

// A context that ends waits for its devices; what they write stays until then, also of a device beside the first.
TEST(Storage, ThatIsDroppedWhileItsContextEndsStaysUntilItsDevicesHaveEnded) {
  for (Device device : {kAcc, Device{DeviceKind::acc, 1}}) {
    std::atomic<bool> written{false}, was_written{false};
    auto context = std::make_unique<Context>();
    Ref<Allocator> memory = make_ref<ToldMemory>(device, [&] { was_written = written.load(); });
    Ref<Storage> storage = Storage::make(4096, std::move(memory), {Category::other, 0});
    std::thread drops;
    context->backend(device).compute().run("late write", [&, data = storage->data()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::memset(data, 1, 4096);
      written = true;
    });
    drops = std::thread([&storage] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      storage = {};
    });
    context.reset();
    drops.join();
    EXPECT_TRUE(was_written) << device;
  }
}

TEST(Storage, MayBeDroppedByAThreadWhoseScopeOutlivesTheContext) {
  auto context = std::make_unique<Context>();
  Ref<Storage> storage = Storage::make(4096, context->backend(kCpu).memory(), {Category::other, 0});
  std::atomic<bool> entered{false}, ended{false};
  std::thread other([&] {
    ContextScope scope(*context);
    entered = true;
    while (!ended) std::this_thread::yield();
    EXPECT_EQ(Context::current(), nullptr);
    storage = {};
  });
  while (!entered) std::this_thread::yield();
  context.reset();
  ended = true;
  other.join();
}

TEST(Storage, MayBeDroppedByAThreadWithoutAContextWhenItsOwnHasEnded) {
  Ref<Storage> storage;
  {
    Context context;
    storage = Storage::make(4096, context.backend(kCpu).memory(), {Category::other, 0});
  }
  std::thread([&] { storage = {}; }).join();
}

TEST(Context, AtItsEndItTellsWhoeverStillWantsToKnowTheLastFirst) {
  std::vector<int> told;
  std::shared_ptr<void> first, second, third;
  {
    Context context;
    first = context.at_end([&] { told.push_back(1); });
    second = context.at_end([&] { told.push_back(2); });
    third = context.at_end([&] {
      EXPECT_EQ(Context::current(), &context);
      told.push_back(3);
    });
    second.reset();
  }
  EXPECT_EQ(told, (std::vector<int>{3, 1}));
}

}  // namespace
}  // namespace shardgrad
