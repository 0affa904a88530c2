// A rank that fails ends the others' waits, and what it failed at is what the job ends by.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include <shardgrad/dist/watch/control.h>
#include <tests/dist/group/failing_ranks.h>

namespace shardgrad::dist {
namespace {

TEST(VirtualRanks, I45_B30_TheFirstFailureIsRethrownAndEndsTheOthersWaits) {
  std::atomic<int> ended{0};
  auto body = [&](ProcessGroup& world) {
    if (world.rank() == 2) throw std::out_of_range("label 11 of sample 5 is out of range");
    try {
      world.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::rank_failed);
      EXPECT_STREQ(error.what(), "rank 2 failed: label 11 of sample 5 is out of range");
      ++ended;
      throw;
    }
  };
  EXPECT_THROW(run_ranks(4, body), std::out_of_range);
  EXPECT_EQ(ended, 3);
}

TEST(VirtualRanks, AFailureEndsCollectivesThatAreQueuedAndNotWaitedFor) {
  EXPECT_EQ(failure(2,
                    [](ProcessGroup& world) {
                      Tensor t = ones(100);
                      if (world.rank() == 1) fail("stop");
                      for (int i = 0; i < 10; ++i) world.all_reduce(t);
                    }),
            "stop");
}

TEST(VirtualRanks, WhatTheDeviceFailsAtAfterTheBodyHasReturnedIsAFailure) {
  for (int size : {1, 2}) {
    auto body = [](ProcessGroup& world) {
      auto work = [fails = world.rank() == world.size() - 1] {
        if (fails) fail("index 99 is outside");
      };
      context().backend(kAcc).compute().run("work", work);
    };
    EXPECT_EQ(failure(size, body, {.device = kAcc}), "index 99 is outside") << size;
  }
}

TEST(VirtualRanks, AnExceptionInsideASplitGroupsScopeDoesNotHang) {
  EXPECT_EQ(failure(2,
                    [](ProcessGroup& world) {
                      auto part = world.split(0, 0);
                      Tensor t = ones(100);
                      if (world.rank() == 1) {
                        part->all_reduce(t);
                        part->all_reduce(t);
                        fail("stop");
                      }
                      part->all_reduce(t).host_wait();
                      world.barrier();
                    }),
            "stop");
}

// Rank 1 queues two collectives and leaves by an exception, which takes a moment more; rank 0 comes to them meanwhile.
// That they cannot end is a consequence, whoever sees it.
TEST(VirtualRanks, I45_AnExceptionIsTheCauseThoughCollectivesThatItLeavesUnfinishedEndBeforeIt) {
  struct Slow {
    bool is_slow;
    ~Slow() {
      if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  };
  for (auto [device, kind] : {std::pair(kCpu, "threads"), {kCpu, "shared_memory"}, {kAcc, "threads"}}) {
    VirtualOptions options;
    options.device = device;
    options.group.kind = kind;
    auto body = [](ProcessGroup& world) {
      Slow slow{world.rank() == 1};
      auto part = world.split(0, 0);
      Tensor t = ones(100);
      if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      Work first = part->all_reduce(t), second = part->all_reduce(t);
      if (world.rank() == 1) fail("label 11 of sample 5");
      second.host_wait();
      world.barrier();
    };
    EXPECT_EQ(failure(2, body, options), "label 11 of sample 5");
  }
}

// It is not waited for, as the job has failed, and begins while the group goes.
TEST(VirtualRanks, ACollectiveMayBeginWhileItsGroupGoes) {
  auto leave = [](ProcessGroup& world) {
    std::atomic<bool> begins{false};
    std::jthread later([&] {  // goes after the group, also where the other rank has ended the job before this one calls
      usleep(150'000);
      begins = true;
    });
    auto group = world.split(0, 0);
    group->stream().run("what comes before", [&] {
      while (!begins) usleep(1000);
    });
    Tensor t = ones(4);
    group->all_reduce(t);
    world.control().end_job("no more");
    group.reset();
  };
  EXPECT_EQ(failure(2, leave), "no more");
}

// A rank that leaves a group in the middle of a call is one that has diverged, unless an exception is on its way.
TEST(VirtualRanks, AnExceptionOnItsWayThroughAGroupIsTheCauseThoughThatTakesAMoment) {
  struct Slow {
    bool is_slow;
    ~Slow() {
      if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  };
  std::string text = failure(2, [](ProcessGroup& world) {
    Slow slow{world.rank() == 0};
    auto half = world.split(0, world.rank());
    if (world.rank() == 0) fail("label 11 of sample 5");
    half->barrier();
  });
  EXPECT_EQ(text, "label 11 of sample 5");
}

}  // namespace
}  // namespace shardgrad::dist
