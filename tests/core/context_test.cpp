// A thread's context, and what it sets for its own work.

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

constexpr Tag kActivation{Category::activation, 0}, kOther{Category::other, 0};

TEST(ThreadSettings, AHelperThreadChangesNothingForOthers) {
  Context context;
  TagScope other(Category::other);
  std::thread([&] {
    ContextScope scope(context);
    EXPECT_EQ(context.tag(), kActivation);
    TagScope mine(Category::pinned_host);
    std::thread([&] {
      ContextScope scope(context);
      TagScope its(Category::other);
    }).join();
    EXPECT_EQ(context.tag().category, Category::pinned_host);
  }).join();
  EXPECT_EQ(context.tag(), kOther);
}

inline constinit thread_local ThreadSetting<int> loudness{1};

TEST(ThreadSettings, ALayerAboveDeclaresItsOwnWhichAnotherContextOfTheThreadHasForItself) {
  Context context;
  ThreadSetting<int>::Scope loud(loudness, 9);
  {
    Context inner;
    EXPECT_EQ(loudness.of(inner), 1);
    auto two = std::make_unique<ThreadSetting<int>::Scope>(loudness, 2);
    auto three = std::make_unique<ThreadSetting<int>::Scope>(loudness, 3);
    {
      ContextScope back(context);
      EXPECT_EQ(loudness.of(shardgrad::context()), 9) << "what this thread has set for it";
    }
    two.reset();
    EXPECT_EQ(loudness.of(inner), 3) << "the scope that is left counts";
    three.reset();
    EXPECT_EQ(loudness.of(inner), 1);
    EXPECT_EQ(loudness.of(context), 9);
  }
}

TEST(Abort, TheFirstErrorIsTheOneThatEveryWaitThrows) {
  Context context;
  context.check_abort();
  for (const char* text : {"rank 3 died", "its connection was closed"})
    context.abort(std::make_exception_ptr(Error(ErrorKind::rank_failed, text)));
  try {
    context.check_abort();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 3 died");
  }
}

struct Tally {
  int count = 0;
  std::shared_ptr<int> kept = {};
};

TEST(Slots, AContextKeepsOneOfEachTypeForAllItsThreads) {
  auto context = std::make_unique<Context>();
  auto kept = std::make_shared<int>();
  Tally& tally = context->slot<Tally>();
  tally = {1, kept};
  std::thread([&] {
    ContextScope scope(*context);
    EXPECT_EQ(&shardgrad::context().slot<Tally>(), &tally);
  }).join();
  EXPECT_EQ(context->slot<int>(), 0);
  EXPECT_EQ(context->slot<Tally>().count, 1);
  Context other;
  EXPECT_EQ(other.slot<Tally>().count, 0);
  context.reset();
  EXPECT_EQ(kept.use_count(), 1) << "it goes with its context";
}

struct Holds {
  Tensor tensor = {};
};

TEST(Context, FurtherDevicesOfAKindAreApartAndGoAfterWhatIsKeptOnThem) {
  constexpr Device second{DeviceKind::acc, 1};
  Context context;
  EXPECT_NE(&context.backend(second), &context.backend(kAcc));
  EXPECT_EQ(&context.backend(second), &context.backend(second));
  EXPECT_NE(context.backend(second).memory(), context.backend(kAcc).memory());
  context.slot<Holds>().tensor = empty({4}, {DType::f32, second});
  try {
    context.backend({DeviceKind::cpu, 1});
    ADD_FAILURE() << "there is one";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "device cpu:1: there is one cpu");
  }
}

// What core/device.h says of a device is what it does.
TEST(Context, DevicesAreLikeWhatIsSaidOfThem) {
  auto works = [](const auto& call) {
    try {
      call();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (Device device : {kCpu, kAcc, kMeta}) {
    Context context({.device = device});
    Tensor x = empty({2});
    EXPECT_EQ(computes_by_itself(device), !context.backend(device).compute().is_inline()) << device;
    EXPECT_EQ(has_values(device), works([&] { x.to_vector<float>(); })) << device;
    EXPECT_EQ(has_own_memory(device), !works([&] { x.data<float>(); })) << device;
  }
}

// As kernels do, whose results nobody has waited for.
TEST(Context, WhatItsDevicesStillRunAtItsEndTakesMemoryOfTheHost) {
  bool taken = false;
  {
    Context context({.device = kAcc});
    auto take = [&] {
      Ref<Storage> memory = Storage::make(1 << 21, context.backend(kCpu).memory(), kOther);
      taken = memory->data() != nullptr;
    };
    take();
    taken = false;
    context.backend(kAcc).compute().run("late", [take] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      take();
    });
  }
  EXPECT_TRUE(taken);
}

TEST(Context, ComputesOnAllCoresUnlessToldOtherwise) {
  std::optional<std::string> before;
  if (const char* set = std::getenv("OMP_NUM_THREADS")) before = set;
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(Context().threads(), usable_cores());
  for (auto [told, threads] : {std::pair("5", 5), {"0", usable_cores()}, {"many", usable_cores()}}) {
    setenv("OMP_NUM_THREADS", told, 1);
    EXPECT_EQ(Context().threads(), threads) << told;
    EXPECT_EQ(Context({.threads = 3}).threads(), 3);
  }
  before ? setenv("OMP_NUM_THREADS", before->c_str(), 1) : unsetenv("OMP_NUM_THREADS");

  Context context({.threads = 3});
  context.set_threads(2);
  EXPECT_EQ(context.threads(), 2);
  EXPECT_THROW(context.set_threads(0), Error);
}

TEST(Context, TheLastOneLeftIsCurrentInWhateverOrderTheyGo) {
  auto a = std::make_unique<Context>(), b = std::make_unique<Context>(), c = std::make_unique<Context>();
  EXPECT_EQ(Context::current(), c.get());
  a.reset();
  EXPECT_EQ(Context::current(), c.get());
  c.reset();
  EXPECT_EQ(Context::current(), b.get());
  Tensor works = empty({4});
  works = Tensor();
  b.reset();
  EXPECT_EQ(Context::current(), nullptr);
}

TEST(Context, AScopeThatOutlivesItsContextLeavesNoneBehind) {
  Context outer;
  auto inner = std::make_unique<Context>();
  {
    ContextScope scope(*inner);
    inner.reset();
    EXPECT_EQ(Context::current(), nullptr);
    EXPECT_THROW(context(), Error);
  }
  EXPECT_EQ(Context::current(), &outer);
}

}  // namespace
}  // namespace shardgrad
