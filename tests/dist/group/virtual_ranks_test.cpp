#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/control.h>
#include <tests/dist/child.h>

namespace shardgrad::dist {
namespace {

/// What run_ranks throws for this body.
std::string failure(int size, const std::function<void(ProcessGroup&)>& body, const VirtualOptions& options = {}) {
  try {
    run_ranks(size, body, options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Tensor ones(int64_t n) { return from_vector(std::vector<float>(size_t(n), 1.f), {n}); }

TEST(VirtualRanks, EachHasItsOwnContextLedgerAndRecorder) {
  run_ranks(3, [](ProcessGroup& world) {
    Context& ctx = context();
    EXPECT_EQ(ctx.rank(), world.rank());
    EXPECT_EQ(ctx.world_size(), 3);
    Tensor mine = empty({100 * (world.rank() + 1)});
    EXPECT_EQ(ctx.ledger().current(), 400 * (world.rank() + 1));
    world.barrier();
    EXPECT_EQ(ctx.recorder().records().size(), 1u);
  });
}

TEST(VirtualRanks, HaveTheThreadsThatTheEnvironmentGivesEach) {
  auto threads = [](VirtualOptions options) {
    int found = 0;
    run_ranks(
        2,
        [&](ProcessGroup& group) {
          if (group.rank() == 1) found = context().threads();
        },
        options);
    return found;
  };
  const char* before = std::getenv("OMP_NUM_THREADS");
  std::string kept = before ? before : "";
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(threads({}), 3);
  EXPECT_EQ(threads({.threads = 2}), 2) << "what the program says";
  before ? setenv("OMP_NUM_THREADS", kept.c_str(), 1) : unsetenv("OMP_NUM_THREADS");
}

TEST(VirtualRanks, ACollectiveIsRecordedWithItsGroupAndNumberWhichAreTheSameOnAllItsRanks) {
  using Call = std::tuple<std::string, uint64_t, uint64_t>;
  std::array<std::vector<Call>, 3> calls;
  run_ranks(3, [&](ProcessGroup& world) {
    auto pair = world.split(world.rank() < 2 ? 0 : 1, world.rank(), "pair");
    for (int i = 0; i < 2; ++i) pair->barrier();
    world.barrier();
    for (const Record& record : context().recorder().records())
      calls[size_t(world.rank())].push_back({record.lane, record.group, record.number});
  });
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_NE(std::get<1>(calls[0].at(calls[0].size() - 2)), std::get<1>(calls[2].at(calls[2].size() - 2)))
      << "the groups of a split are two";
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (const auto& [lane, group, number] : calls[0]) {
    EXPECT_GE(number, 1u) << lane;
    EXPECT_TRUE(seen.emplace(group, number).second) << lane << " " << number << " is there twice";
  }
}

TEST(VirtualRanks, ABarrierKeepsThemApartOnMetaToo) {
  std::atomic<int> arrived{0};
  run_ranks(3,
            [&](ProcessGroup& group) {
              std::this_thread::sleep_for(std::chrono::milliseconds(20 * group.rank()));
              ++arrived;
              group.barrier();
              EXPECT_EQ(arrived, 3);
            },
            {.device = kMeta});
}

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

TEST(VirtualRanks, WhatACollectiveReceivesCountsAsWrittenUnlessItOnlyComesBack) {
  run_ranks(2, [](ProcessGroup& group) {
    Tensor full = ones(4), part = ones(2), other = ones(4);
    CollectiveOptions same_again;
    same_again.counts_as_write = false;
    group.all_gather(full, part, same_again).host_wait();
    EXPECT_EQ(full.version(), 0u);
    group.all_gather(full, part).host_wait();
    group.reduce_scatter(part, full).host_wait();
    group.all_to_all(other, full).host_wait();
    group.all_reduce(other).host_wait();
    EXPECT_EQ(full.version(), 1u);
    EXPECT_EQ(part.version(), 1u);
    EXPECT_EQ(other.version(), 2u);
  });
}

TEST(VirtualRanks, KeptGroupsMustDivideTheRanks) {
  run_ranks(4, [](ProcessGroup& group) {
    for (auto [stride, size] : {std::pair(0, 2), {3, 2}, {1, 3}, {1, 0}, {-1, 2}})
      EXPECT_THROW(group.kept_split(stride, size, ""), Error);
    EXPECT_EQ(group.kept_split(2, 2, "").size(), 2);
  });
}

// The world is one of the 32 that a rank's row has places for.
TEST(VirtualRanks, A33rdGroupAtATimeIsRefusedAndThereMayBeAnotherOnceOneIsGone) {
  run_ranks(2, [](ProcessGroup& world) {
    auto refusal = [&](const auto& make) -> std::string {
      try {
        make();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        return error.what();
      }
      return "none";
    };
    auto split = [&] { return world.split(0, world.rank()); };
    std::vector<std::unique_ptr<ProcessGroup>> groups;
    for (int i = 0; i < 30; ++i) groups.push_back(split());
    ProcessGroup& kept = world.kept_split(1, 2, "31st");
    EXPECT_TRUE(says(refusal(split), "at most 32 process groups at a time; destroy those"));
    EXPECT_TRUE(says(refusal([&] { world.kept_split(1, 2, "another"); }), "kept_split gives the same group"));
    EXPECT_EQ(&world.kept_split(1, 2, "31st"), &kept);
    groups.pop_back();
    Tensor sum = ones(3);
    split()->all_reduce(sum).host_wait();
    EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  });
}

// What every rank gives alike is what each would hear of the others.
TEST(VirtualRanks, OneOfThemHearsWhatItSays) {
  run_one_of(6, [](ProcessGroup& world) {
    EXPECT_EQ(world.rank(), 0);
    EXPECT_EQ(world.size(), 6);
    EXPECT_EQ(world.share<int64_t>({7, 8}, {}), (std::vector<int64_t>{7, 8, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8}));
    EXPECT_EQ(same_text(world, {}, "mine", 3), "mine");
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32})
      dispatch(dtype, [&]<class T>() {
        Tensor t = from_vector(std::vector<T>(2, T(3.f)), {2}, {dtype, kCpu});
        world.all_reduce(t).host_wait();
        for (T value : t.to_vector<T>()) EXPECT_EQ(float(value), 18) << dtype;
      });
    ProcessGroup& pairs = world.kept_split(1, 2, "pairs");
    EXPECT_EQ(pairs.size(), 2);
    EXPECT_EQ(pairs.global_rank(1), 1);
    EXPECT_EQ(world.kept_split(2, 3, "across").global_rank(2), 4);
    EXPECT_THROW(world.split(world.rank() / 2, 0), Error) << "the others' colours are not known";
    Tensor whole = empty({12}), part = empty({2});
    EXPECT_TRUE(whole.device() == kMeta);
    world.all_gather(whole, part).host_wait();
    EXPECT_EQ(context().recorder().records().back().bytes_sent, 5 * 8);
  });
  EXPECT_THROW(run_one_of(2, [](ProcessGroup&) { throw std::out_of_range("mine"); }), std::out_of_range);
}

TEST(VirtualRanks, TheyComputeOnTheirDeviceOrOnTheOneThatTheyPretend) {
  for (Device device : {kCpu, kAcc, kMeta})
    run_ranks(2, [&](ProcessGroup& world) { EXPECT_EQ(world.computes_on(), device); }, {.device = device});
  for (Device device : {kCpu, kCuda, kMeta})
    run_one_of(6,
               [&](ProcessGroup& world) {
                 EXPECT_EQ(world.computes_on(), device);
                 EXPECT_EQ(world.kept_split(1, 2, "pairs").computes_on(), device);
                 EXPECT_EQ(empty({1}).device(), kMeta);
               },
               0, {device});
}

TEST(VirtualRanks, TheFakeNetworkDelaysCollectivesNotTheHost) {
  constexpr std::chrono::milliseconds kDelay(50), kTick(1);
  std::atomic<int> seen{0};  // hosts that have looked at their call
  VirtualOptions options;
  options.group.delay = [&](int64_t) {
    for (int i = 0; i < 10000 && seen < 2; ++i) std::this_thread::sleep_for(kTick);
    return kDelay;
  };
  run_ranks(
      2,
      [&](ProcessGroup& world) {
        Tensor t = ones(10);
        auto begin = std::chrono::steady_clock::now();
        Work work = world.all_reduce(t);
        EXPECT_FALSE(work.done());
        ++seen;
        work.host_wait();
        EXPECT_GE(std::chrono::steady_clock::now() - begin, kDelay);
      },
      options);
}

TEST(VirtualRanks, CollectivesStartAfterComputeUnlessToldOtherwise) {
  VirtualOptions options;
  options.device = kAcc;
  options.delay_seed = 3;
  auto body = [](ProcessGroup& world, bool ordered) {
    for (int i = 0; i < 10; ++i) {
      Tensor t = empty({64}), source = from_vector(std::vector<float>(64, float(i)), {64}, {DType::f32, kAcc});
      copy_into(t, source);  // queued on the compute stream
      CollectiveOptions collective;
      if (!ordered) collective.after = Event();
      world.all_reduce(t, collective).wait(context().backend(kAcc).compute());
      EXPECT_EQ(t.to_vector<float>(), std::vector<float>(64, 2.f * float(i)));
    }
  };
  run_ranks(
      2, [&](ProcessGroup& world) { body(world, true); }, options);
  std::string text = failure(
      2, [&](ProcessGroup& world) { body(world, false); }, options);
  EXPECT_TRUE(says(text, "race: 'all_reduce'")) << text;
}

}  // namespace
}  // namespace shardgrad::dist
