// Which thread runs a collective: of small ones between ranks that share memory whoever waits.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/transports/transport.h>
#include <shardgrad/dist/watch/control.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kSmall = 1024, kLarge = 1 << 20;

Tensor filled(int64_t n, float value) { return from_vector(std::vector<float>(size_t(n), value), {n}); }

/// Two ranks, of which one does nothing; notes the thread of each call.
class NotingTransport final : public Transport {
 public:
  struct Notes {
    bool in_memory = true;
    std::string fails_with = {};
    std::map<uint64_t, std::thread::id> threads = {};  // by number of the call
  };
  NotingTransport(Notes& notes, std::shared_ptr<Control> control)
      : Transport("noting", 0, 2, std::move(control)), notes_(notes) {}
  void all_gather(const Call& call, void*, const void*, size_t) override { note(call); }
  void reduce_scatter(const Call& call, void*, const void*, int64_t, DType) override { note(call); }
  void all_reduce(const Call& call, void*, int64_t, DType) override { note(call); }
  void broadcast(const Call& call, void*, size_t, int) override { note(call); }
  void all_to_all(const Call& call, void*, const void*, size_t) override { note(call); }
  void barrier(const Call& call) override { note(call); }
  bool meets_in_memory() const override { return notes_.in_memory; }
  int64_t invite(int) override { return 0; }
  std::unique_ptr<Transport> join(int64_t, const std::vector<int>&, int) override { return nullptr; }

 private:
  void note(const Call& call) {
    if (!notes_.fails_with.empty()) fail(notes_.fails_with);
    notes_.threads[call.sequence] = std::this_thread::get_id();
  }
  Notes& notes_;
};

struct SmallCollectives : ::testing::Test {
  Context context_{{.world_size = 2}};
  ControlPage page_ = make_private_page(2);
  std::shared_ptr<Control> control_ = std::make_shared<Control>(page_, 0);
  NotingTransport::Notes notes_;
  std::unique_ptr<ProcessGroup> group(GroupOptions options = {}) {
    return std::make_unique<ProcessGroup>(std::make_unique<NotingTransport>(notes_, control_), control_,
                                          std::vector<int>{0, 1}, 1, std::move(options));
  }
  bool ran_here(uint64_t call) { return notes_.threads.at(call) == std::this_thread::get_id(); }
};

// The group's thread takes what nobody has come for in a millisecond, and a busy machine may keep the one that waits
// for as long: so there are many tries.
TEST_F(SmallCollectives, AreRunByTheThreadThatWaits) {
  auto ranks = group();
  Tensor full = filled(kSmall, 0), shard = filled(kSmall / 2, 0);
  bool here = false;
  for (uint64_t i = 0; i < 1000 && !here; ++i) {
    ranks->all_reduce(full).host_wait();
    ranks->all_gather(full, shard).host_wait();
    ranks->reduce_scatter(shard, full).wait(context_.backend(kCpu).compute());
    ranks->barrier();
    here = ran_here(4 * i + 1) && ran_here(4 * i + 2) && ran_here(4 * i + 3) && ran_here(4 * i + 4);
  }
  EXPECT_TRUE(here);
}

TEST_F(SmallCollectives, AThreadOfTheUsersMayWaitForThem) {
  constexpr uint64_t kTries = 1000;
  auto ranks = group();
  Work work;
  std::atomic<uint64_t> asked{0}, answered{0};
  std::atomic<bool> here{false};
  std::thread user([&] {
    for (uint64_t call = 1; call <= kTries && !here; ++call) {
      while (asked != call) std::this_thread::yield();
      work.host_wait();
      here = ran_here(call);
      answered = call;
    }
  });
  for (uint64_t call = 1; call <= kTries && !here; ++call) {
    work = ranks->all_reduce(filled(kSmall, 0));
    asked = call;
    while (answered != call) std::this_thread::yield();
  }
  user.join();
  EXPECT_TRUE(here);
}

// So that they overlap with compute.
TEST_F(SmallCollectives, LargeOnesAreRunByTheGroupsThreadAndSoAreThoseThatNetworksCarry) {
  auto ranks = group();
  ranks->all_reduce(filled(kLarge, 0)).host_wait();
  EXPECT_FALSE(ran_here(1));
  auto delayed = group({.delay = fixed_delay(1us)});
  delayed->all_reduce(filled(kSmall, 0)).host_wait();
  EXPECT_FALSE(ran_here(1));
  notes_.in_memory = false;
  auto messages = group();
  messages->all_reduce(filled(kSmall, 0)).host_wait();
  EXPECT_FALSE(ran_here(1));
}

TEST_F(SmallCollectives, AFailureInTheThreadThatWaitsIsItsOwnAndTheJobsCause) {
  notes_.fails_with = "the first cause";
  auto ranks = group();
  Tensor t = filled(kSmall, 0);
  Work first = ranks->all_reduce(t), second = ranks->all_reduce(t);
  for (const Work& work : {second, first}) try {
      work.host_wait();
      FAIL() << "the failure was lost";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the first cause");
    }
  EXPECT_EQ(page_.cause(), "rank 0 failed: the first cause");
}

// Rank 1 waits in another order, and in threads of its own.
TEST(SmallCollectivesOfRanks, RunInTheirOrderWhoeverWaitsForWhich) {
  for (const char* kind : {"threads", "shared_memory"})
    run_ranks(2,
              [](ProcessGroup& world) {
                constexpr int kCalls = 300;
                std::vector<Tensor> sums;
                std::vector<Work> works;
                for (int i = 0; i < kCalls; ++i) {
                  int64_t n = i % 50 == 7 ? kLarge / 16 : 1 + i % 9;
                  sums.push_back(filled(n, float(i + world.rank())));
                  works.push_back(world.all_reduce(sums.back()));
                }
                std::array<std::thread, 3> waiters;
                for (size_t w = 0; w < waiters.size(); ++w)
                  waiters[w] = std::thread([&, w] {
                    for (size_t i = w; i < works.size(); i += waiters.size())
                      works[world.rank() == 0 ? i : works.size() - 1 - i].host_wait();
                  });
                for (std::thread& waiter : waiters) waiter.join();
                for (int i = 0; i < kCalls; ++i) EXPECT_EQ(sums[size_t(i)].to_vector<float>()[0], float(2 * i + 1));
              },
              {.group = {.kind = kind}});
}

// Rank 0 waits for what rank 1 has queued and goes on from there without waiting for it.
TEST(SmallCollectivesOfRanks, NobodyWaitsLongForARankThatDoesNotWait) {
  run_ranks(2, [](ProcessGroup& world) {
    auto pair = world.split(0, world.rank());
    Work work = world.all_reduce(filled(kSmall, 0));
    if (world.rank() == 0) work.host_wait();
    pair->barrier();
    work.host_wait();
  });
}

TEST(SmallCollectivesOfRanks, AnotherRanksFailureEndsAWaitThatRunsOneWithTheCause) {
  for (const char* kind : {"threads", "shared_memory"}) {
    std::string seen;
    auto body = [&](ProcessGroup& world) {
      if (world.rank() == 1) std::this_thread::sleep_for(20ms), fail("label 11 of sample 5");
      try {
        world.all_reduce(filled(kSmall, 0)).host_wait();
      } catch (const Error& error) {
        seen = error.what();
        throw;
      }
    };
    EXPECT_THROW(run_ranks(2, body, {.group = {.kind = kind}}), Error);
    EXPECT_EQ(seen, "rank 1 failed: label 11 of sample 5") << kind;
  }
}

// What a rank has copied stays until its peers have read it, though it has left the group. Each round allocates where
// the group before had its copies.
TEST(SmallCollectivesOfRanks, ARankMayLeaveAGroupWhileOthersReadWhatItSent) {
  run_ranks(4,
            [](ProcessGroup& world) {
              for (int round = 0; round < 30; ++round) {
                auto part = world.split(0, world.rank());
                Tensor t = filled(kSmall, float(world.rank() + round));
                part->all_reduce(t).host_wait();
                part.reset();
                Tensor other(Storage::make(size_t(1) << 20, world.memory(), {}), 0, {1 << 18}, DType::f32);
                copy_into(other, filled(1 << 18, -1));
                EXPECT_EQ(t.to_vector<float>(), std::vector<float>(kSmall, float(6 + 4 * round)));
              }
            },
            {.group = {.kind = "shared_memory"}});
}

}  // namespace
}  // namespace shardgrad::dist
