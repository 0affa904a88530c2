// Ranks that wait for one another in vain are named with what they wait in; those that are late only are warned of.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/control.h>
#include <tests/dist/child.h>
#include <tests/dist/group/failing_ranks.h>

namespace shardgrad::dist {
namespace {

TEST(VirtualRanks, ARankThatLeavesAGroupByAnExceptionItCatchesIsNamedSomewhatLater) {
  VirtualOptions options;
  options.watch.left_limit = std::chrono::milliseconds(300);
  auto body = [](ProcessGroup& world) {
    auto half = world.split(0, world.rank());
    if (world.rank() == 0) {
      try {
        auto mine = std::move(half);
        fail("label 11 of sample 5");
      } catch (const Error&) {
        world.barrier();
      }
    }
    half->barrier();
  };
  std::string text = failure(2, body, options);
  EXPECT_TRUE(says(text, "the ranks have diverged")) << text;
  EXPECT_TRUE(says(text, "rank 1 in barrier #1")) << text;
}

TEST(VirtualRanks, ARankThatLeavesACollectiveUnfinishedByAnExceptionItCatchesIsNamedSomewhatLater) {
  VirtualOptions options;
  options.watch.left_limit = std::chrono::milliseconds(300);
  auto body = [](ProcessGroup& world) {
    auto half = world.split(0, world.rank());
    if (world.rank() == 0) {
      try {
        auto mine = std::move(half);
        mine->all_reduce(ones(4));
        fail("label 11 of sample 5");
      } catch (const Error&) {
        world.barrier();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    half->all_reduce(ones(4)).host_wait();
  };
  std::string text = failure(2, body, options);
  EXPECT_TRUE(says(text, "rank 0 out of the group, which it left in all_reduce #1 (4 f32)")) << text;
}

// The merged sentence names each rank, its collective, and the unit.
TEST(VirtualRanks, I23_DifferentOperationsAreNamed) {
  std::string text = failure(3, [](ProcessGroup& world) {
    Tensor full = ones(12), shard = ones(4);
    if (world.rank() == 1)
      world.reduce_scatter(shard, full, Label{"layers.1", "backward"}).host_wait();
    else
      world.all_gather(full, shard, Label{"layers.0", "forward"}).host_wait();
  });
  EXPECT_TRUE(says(text, "rank 1 in reduce_scatter #1 of unit 'layers.1' in backward (12 f32)")) << text;
  EXPECT_TRUE(says(text, " in all_gather #1 of unit 'layers.0' in forward (12 f32)")) << text;
}

TEST(VirtualRanks, I23_DifferentCountsDtypesAndUnitsAreNamed) {
  std::string counts = failure(2, [](ProcessGroup& world) { world.all_reduce(ones(5 + world.rank())).host_wait(); });
  EXPECT_TRUE(says(counts, "(5 f32)") && says(counts, "(6 f32)")) << counts;
  std::string dtypes = failure(
      2, [](ProcessGroup& world) { world.all_reduce(empty({8}, world.rank() ? DType::f32 : DType::i32)).host_wait(); });
  EXPECT_TRUE(says(dtypes, "(8 i32)") && says(dtypes, "(8 f32)")) << dtypes;
  std::string units = failure(2, [](ProcessGroup& world) {
    world.all_reduce(ones(8), Label{world.rank() ? "b" : "a", "forward"}).host_wait();
  });
  EXPECT_TRUE(says(units, "unit 'a'") && says(units, "unit 'b'")) << units;
  std::string long_units = failure(2, [](ProcessGroup& world) {
    world.all_reduce(ones(8), Label{std::string(80, 'u') + (world.rank() ? "b" : "a"), "forward"}).host_wait();
  });
  EXPECT_TRUE(says(long_units, "uuu... #")) << long_units;
  std::string roots = failure(2, [](ProcessGroup& world) { world.broadcast(ones(8), world.rank()).host_wait(); });
  EXPECT_TRUE(says(roots, "root 0") && says(roots, "root 1")) << roots;
}

TEST(VirtualRanks, I23_ARankThatLeavesEarlyIsNamed) {
  std::string text = failure(3, [](ProcessGroup& world) {
    world.all_reduce(ones(4)).host_wait();
    if (world.rank() != 1) world.all_reduce(ones(8), Label{"head", "backward"}).host_wait();
  });
  EXPECT_TRUE(says(text, "rank 1 finished with its program, last in all_reduce #1 (4 f32)")) << text;
  EXPECT_TRUE(says(text, " in all_reduce #2 of unit 'head' in backward (8 f32)")) << text;
}

TEST(VirtualRanks, I23_ARankThatDropsASplitGroupEarlyIsNamed) {
  std::string text = failure(2, [](ProcessGroup& world) {
    auto part = world.split(0, 0);
    if (world.rank() == 0) part->all_reduce(ones(4)).host_wait();
    part.reset();
    world.barrier();
  });
  EXPECT_TRUE(says(text, "rank 1 out of the group")) << text;
}

TEST(VirtualRanks, I23_RanksThatWaitForEachOtherInDifferentGroupsAreNamed) {
  std::string two = failure(2, [](ProcessGroup& world) {
    auto first = world.split(0, 0), second = world.split(0, 0);
    if (world.rank() == 1) std::swap(first, second);
    first->all_reduce(ones(4 + world.rank()), Label{"norm", "step"}).host_wait();
    second->barrier();
  });
  EXPECT_EQ(two,
            "the ranks wait for each other in different groups: "
            "rank 0 in all_reduce #1 of unit 'norm' in step (4 f32) of the group of ranks 0 and 1, for rank 1; "
            "rank 1 in all_reduce #1 of unit 'norm' in step (5 f32) of the group of ranks 0 and 1, for rank 0. "
            "Every rank must make the calls of all its groups in the same order");
  std::string ring = failure(3, [](ProcessGroup& world) {
    std::vector<std::unique_ptr<ProcessGroup>> pairs;  // pair r: rank r and the next
    for (int r = 0; r < 3; ++r) pairs.push_back(world.split(world.rank() == (r + 2) % 3, 0));
    pairs[size_t(world.rank())]->barrier();
    pairs[size_t(world.rank() + 2) % 3]->barrier();
  });
  for (const char* part : {"rank 0 in barrier #1 of the group of ranks 0 and 1, for rank 1",
                           "rank 1 in barrier #1 of the group of ranks 1 and 2, for rank 2",
                           "rank 2 in barrier #1 of the group of ranks 0 and 2, for rank 0"})
    EXPECT_TRUE(says(ring, part)) << ring;
}

TEST(VirtualRanks, GroupsThatOverlapAreNotTakenForADeadlock) {
  VirtualOptions options;
  options.watch.beat = std::chrono::milliseconds(5);
  options.watch.deadlock_after = std::chrono::milliseconds(20);
  auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  auto body = [&](ProcessGroup& world) {
    auto a = world.split(0, 0), b = world.split(0, 0);
    bool late = world.rank() == 1;
    Tensor t = ones(4), u = ones(4);
    {  // queued in different orders, waited for afterwards
      Work first = late ? b->all_reduce(u) : a->all_reduce(t);
      if (late) pause();
      Work second = late ? a->all_reduce(t) : b->all_reduce(u);
      first.host_wait();
      second.host_wait();
    }
    {  // one rank waits for a collective of one group before it calls the other's
      Work other = late ? Work() : a->all_reduce(t);
      b->all_reduce(u).host_wait();
      if (late) pause();
      (late ? a->all_reduce(t) : other).host_wait();
    }
    if (late) {  // a thread of its own for one of the groups
      std::latch taken(1);
      std::thread thread([&, &mine = context()] {
        ContextScope scope(mine);
        a->take_over();
        taken.count_down();
        pause();
        a->barrier();
      });
      taken.wait();
      b->barrier();
      thread.join();
    } else {
      a->barrier();
      b->barrier();
    }
  };
  run_ranks(2, body, options);
}

TEST(VirtualRanks, ALateRankIsNamedInWarningsAndHarmless) {
  std::mutex mutex;
  std::vector<std::string> warnings;  // when two ranks wait
  std::atomic<int> heard{0};
  VirtualOptions options;
  options.watch.beat = std::chrono::milliseconds(10);
  options.watch.warn_after = std::chrono::milliseconds(100);
  options.watch.warn_again = std::chrono::milliseconds(100);
  options.watch.warn = [&](const std::string& text) {
    std::lock_guard lock(mutex);
    if (!says(text, "ranks 0 and 1 in ")) return;
    warnings.push_back(text);
    EXPECT_EQ(context().rank(), 0) << "one rank speaks for all";
    ++heard;
  };
  auto body = [&](int enough) {
    return [&, enough](ProcessGroup& world) {
      world.all_reduce(ones(4), Label{"layers.0", "forward"}).host_wait();
      for (int i = 0; i < 30000 && world.rank() == 2 && heard < enough; ++i) {
        context().check_abort();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      world.all_reduce(ones(8), Label{"layers.1", "forward"}).host_wait();
    };
  };
  run_ranks(3, body(2), options);
  ASSERT_GE(warnings.size(), 2u) << "again and again";
  for (const std::string& warning : warnings) {
    EXPECT_TRUE(says(warning, "ranks 0 and 1 in all_reduce #2 of unit 'layers.1'")) << warning;
    EXPECT_TRUE(says(warning, "rank 2 computing, last in all_reduce #1 of unit 'layers.0'")) << warning;
  }

  options.watch.stall_limit = std::chrono::milliseconds(200);
  std::string text = failure(3, body(1000000), options);
  EXPECT_TRUE(says(text, "stall_limit") && says(text, "rank 2 computing")) << text;
}

TEST(VirtualRanks, AWaitThatWasWarnedOfEndsAtTheStallLimit) {
  std::atomic<int> warnings{0};
  VirtualOptions options;
  options.watch.beat = std::chrono::milliseconds(10);
  options.watch.warn_after = std::chrono::milliseconds(50);
  options.watch.warn_again = std::chrono::minutes(1);
  options.watch.stall_limit = std::chrono::milliseconds(300);
  options.watch.warn = [&](const std::string&) { ++warnings; };
  auto body = [](ProcessGroup& world) {
    for (int i = 0; i < 10000 && world.rank() == 1; ++i) {
      context().check_abort();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    world.barrier();
  };
  std::string text = failure(2, body, options);
  EXPECT_TRUE(says(text, "stall_limit is reached")) << text;
  EXPECT_EQ(warnings, 1);
}

// Its heartbeats go on where the debugger holds one of its threads only.
TEST(VirtualRanks, ALateRankUnderADebuggerIsNotJudged) {
  testing::Child traced = testing::Child::traced();
  if (tracer_of(traced.pid()) == 0) GTEST_SKIP() << "this system permits no debugger";
  std::atomic<int> warnings{0};
  VirtualOptions options;
  options.watch.beat = std::chrono::milliseconds(10);
  options.watch.warn_after = std::chrono::milliseconds(50);
  options.watch.stall_limit = std::chrono::milliseconds(100);
  options.watch.warn = [&](const std::string& text) {
    EXPECT_TRUE(says(text, concat("rank 1 (pid ", traced.pid(), ") is under a debugger"))) << text;
    ++warnings;
  };
  auto body = [&](ProcessGroup& world) {
    if (world.rank() == 1) {
      world.control().page().row(1).pid.store(traced.pid());
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    world.barrier();
  };
  EXPECT_EQ(failure(2, body, options), "");
  EXPECT_GE(warnings, 1);
}

// Three ranks wait for one that is slow, and their process stands still meanwhile for longer than all limits.
TEST(VirtualRanks, DoNotJudgeOneAnotherWhereTheirProcessStoodStill) {
  int begun[2];
  ASSERT_EQ(pipe(begun), 0);
  testing::Child child([&] {
    VirtualOptions options;
    options.watch.beat = std::chrono::milliseconds(20);
    options.watch.gap = std::chrono::milliseconds(300);
    options.watch.silence_limit = options.watch.warn_after = std::chrono::milliseconds(100);
    options.watch.stall_limit = std::chrono::milliseconds(1000);
    options.watch.deadlock_after = std::chrono::milliseconds(0);
    std::string text = failure(
        4,
        [&](ProcessGroup& world) {
          world.barrier();
          if (world.rank() == 3) {
            if (write(begun[1], "b", 1) != 1) _exit(2);
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
          }
          world.barrier();
        },
        options);
    if (!text.empty()) std::fprintf(stderr, "%s\n", text.c_str());
    _exit(text.empty() ? 7 : 1);
  });
  char byte;
  ASSERT_EQ(read(begun[0], &byte, 1), 1);
  kill(child.pid(), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  kill(child.pid(), SIGCONT);
  int status = 0;
  waitpid(child.pid(), &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(VirtualRanks, AreNotJudgedByTheirHeartbeatsForAThreadCannotStopAlone) {
  VirtualOptions options;
  options.watch.silence_limit = std::chrono::milliseconds(1);
  EXPECT_EQ(failure(
                2, [](ProcessGroup&) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }, options),
            "");
}

}  // namespace
}  // namespace shardgrad::dist
