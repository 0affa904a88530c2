// Virtual ranks: what each has of its own, what they share, the groups they make, and one of them alone.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>

#include <shardgrad/dist/group/together.h>
#include <tests/dist/group/failing_ranks.h>

namespace shardgrad::dist {
namespace {

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

template <class T> ProcessGroup::GatherOf gather_of(int64_t n, T value) {
  return {from_vector(std::vector<T>(size_t(3 * n)), {3 * n}), from_vector(std::vector<T>(size_t(n), value), {n})};
}

TEST(VirtualRanks, SeveralGathersAreOneCallWhateverTheirSizesAndDtypes) {
  run_ranks(3, [](ProcessGroup& group) {
    for (size_t count : {1, 2, 3}) {
      std::vector<ProcessGroup::GatherOf> buffers{gather_of(2, float(group.rank())),
                                                  gather_of(3, 10. + double(group.rank())),
                                                  gather_of(4, 20 + float(group.rank()))};
      buffers.resize(count);
      size_t before = context().recorder().records().size();
      group.all_gather(buffers).host_wait();
      EXPECT_EQ(context().recorder().records().size(), before + 1);
      for (size_t i = 0; i < count; ++i)
        for (int64_t r = 0, n = int64_t(i) + 2; r < 3; ++r)
          EXPECT_EQ(buffers[i].full.alias_rows(r * n, r * n + 1).item(), double(10 * i) + double(r)) << count;
    }
  });
}

TEST(VirtualRanks, WhatANoteSaysIsComparedByTheNextCollective) {
  std::string what = failure(2, [](ProcessGroup& group) {
    group.note(group.rank() == 0 ? "three" : "four");
    group.all_reduce(ones(4)).host_wait();
  });
  EXPECT_TRUE(says(what, "diverged") && says(what, "three") && says(what, "four")) << what;
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
