#include <shardgrad/core/work_queue.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>

namespace shardgrad {
namespace {

using namespace std::chrono_literals;

struct Queued : ::testing::Test {
  Context context_;
  std::unique_ptr<Stream> stream_ = make_thread_stream(context_, "s");
  /// Work for whoever waits.
  template <class Work> Event leave(Work&& work) {
    stream_->run("work", std::forward<Work>(work), {}, Begin::when_waited_for);
    return stream_->record();
  }
};

// The stream's thread takes what nobody has come for in a millisecond, and a busy machine may keep the one that waits
// for as long: so there are many tries.
template <class Try> bool sometimes(Try&& attempt) {
  for (int i = 0; i < 1000; ++i)
    if (attempt()) return true;
  return false;
}

TEST_F(Queued, WhoeverWaitsRunsTheWorkAsTheStreamWould) {
  EXPECT_TRUE(sometimes([&] {
    std::thread::id ran;
    Event done = leave([&] {
      ran = std::this_thread::get_id();
      EXPECT_EQ(running_stream(), stream_.get());
    });
    done.host_wait();
    EXPECT_EQ(running_stream(), nullptr);
    return ran == std::this_thread::get_id();
  }));
}

TEST_F(Queued, AThreadOfTheUsersMayWaitThoughItHasNoContext) {
  std::thread user([&] {
    EXPECT_TRUE(sometimes([&] {
      std::thread::id ran;
      Event done = leave([&] {
        ran = std::this_thread::get_id();
        EXPECT_EQ(Context::current(), &context_);
      });
      done.host_wait();
      EXPECT_EQ(Context::current(), nullptr);
      return ran == std::this_thread::get_id();
    }));
  });
  user.join();
}

// Its own abort would not end such work.
TEST_F(Queued, AThreadOfAnotherContextLeavesTheWorkToTheStreams) {
  std::thread::id ran;
  Event done = leave([&] { ran = std::this_thread::get_id(); });
  std::thread([&] {
    Context other;
    done.host_wait();
    EXPECT_NE(ran, std::this_thread::get_id());
  }).join();
}

TEST_F(Queued, AnotherStreamThatWaitsForTheWorkLeavesItToTheStreamsThread) {
  auto other = make_thread_stream(context_, "other");
  std::thread::id ran, others;
  Event done = leave([&] { ran = std::this_thread::get_id(); });
  other->wait(done);
  other->run("look", [&] { others = std::this_thread::get_id(); });
  other->synchronize();
  EXPECT_NE(ran, others);
  EXPECT_NE(ran, std::this_thread::get_id());
}

TEST_F(Queued, WorkThatNobodyWaitsForRunsInTheStreamsThreadSoon) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 20; ++i) leave([&] { ++ran; });
  auto begin = std::chrono::steady_clock::now();
  while (ran < 20 && std::chrono::steady_clock::now() - begin < 20s) std::this_thread::sleep_for(100us);
  EXPECT_EQ(ran, 20);
}

TEST_F(Queued, WorkThatWaitsForWorkOfAnotherQueueWhichNobodyWaitsForGoesOn) {
  std::atomic<bool> other_ran{false};
  auto other = make_thread_stream(context_, "other");
  other->run(
      "other", [&] { other_ran = true; }, {}, Begin::when_waited_for);
  Event done = leave([&] {
    auto begin = std::chrono::steady_clock::now();
    while (!other_ran && std::chrono::steady_clock::now() - begin < 20s) std::this_thread::sleep_for(100us);
  });
  done.host_wait();
  EXPECT_TRUE(other_ran);
}

// Of every kind, while several threads wait for several pieces.
TEST_F(Queued, OnePieceRunsAtATimeInTheOrderInWhichTheyWereQueuedWhoeverWaits) {
  constexpr int kPieces = 2000, kWaiters = 4;
  std::vector<int> order;  // no lock: what the test is about
  std::vector<Event> done;
  std::atomic<bool> begin{false};
  stream_->run("gate", [&] {
    while (!begin) std::this_thread::sleep_for(100us);
  });
  for (int i = 0; i < kPieces; ++i) {
    stream_->run(
        "piece", [&order, i] { order.push_back(i); }, {}, i % 7 ? Begin::when_waited_for : Begin::at_once);
    done.push_back(stream_->record());
  }
  std::vector<std::thread> waiters;
  for (int w = 0; w < kWaiters; ++w)
    waiters.emplace_back([&, w] {
      for (int i = w; i < kPieces; i += kWaiters) done[size_t(i)].host_wait();
    });
  begin = true;
  for (std::thread& waiter : waiters) waiter.join();
  ASSERT_EQ(order.size(), size_t(kPieces));
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST_F(Queued, AFailureInAWaitersThreadSkipsLaterWorkAndReachesEveryWait) {
  bool ran = false;
  Event first = leave([] { fail("the first cause"); });
  Event later = leave([&] { ran = true; });
  for (const Event& event : {later, first, later}) try {
      event.host_wait();
      FAIL() << "the failure was lost";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the first cause");
    }
  EXPECT_FALSE(ran);
}

TEST_F(Queued, TheStreamMayGoWhileAThreadRunsItsWork) {
  std::atomic<bool> inside{false}, ran{false};
  Event done = leave([&] {
    inside = true;
    std::this_thread::sleep_for(20ms);
    ran = true;
  });
  std::thread waiter([&] { done.host_wait(); });
  while (!inside) std::this_thread::sleep_for(100us);
  stream_.reset();
  EXPECT_TRUE(ran);
  waiter.join();
}

// How often a thread of this process has stopped to wait.
static int waits_of(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string word; status >> word;)
    if (word == "voluntary_ctxt_switches:") {
      int count = 0;
      status >> count;
      return count;
    }
  return -1;
}

TEST_F(Queued, ABurstOfWorkThatIsWaitedForWakesNoThreadButNowAndThen) {
  pid_t thread = 0;
  stream_->run("who", [&] { thread = gettid(); });
  stream_->synchronize();
  constexpr int kPieces = 20'000;
  int before = waits_of(thread);
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kPieces; ++i) leave([] {}).host_wait();
  auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(waits_of(thread) - before, 2 * (took / WorkQueue::kPatience) + 4) << kPieces << " pieces";
}

}  // namespace
}  // namespace shardgrad
