#include <shardgrad/core/stream.h>

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {
namespace {

using namespace std::chrono_literals;

TEST(ThreadStream, RunsWorkInOrder) {
  Context context;
  auto stream = make_thread_stream(context, "s");
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream->run("push", [&order, i] { order.push_back(i); });
  stream->synchronize();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

// What goes with it may ask the stream, as freed memory does.
TEST(ThreadStream, DropsWhatWorkHoldsBeforeTheWorkCountsAsDone) {
  Context context;
  auto stream = make_thread_stream(context, "s");
  Event after;
  std::future<bool> asked;
  bool answered = false;
  std::atomic<bool> go{false};
  auto drop = [&](int* number) {
    delete number;
    asked = std::async(std::launch::async, [&] { return after.done(); });
    answered = asked.wait_for(5s) == std::future_status::ready;
  };
  stream->run("use", [held = std::shared_ptr<int>(new int(1), drop), &go] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  after = stream->record();
  go = true;
  stream->synchronize();
  EXPECT_TRUE(answered) << "it is dropped where nobody can ask the stream";
  EXPECT_FALSE(asked.get());
}

// The default of threads is what `ulimit -s` said when the program started.
TEST(ThreadStream, HasALargeStackWhereTheDefaultIsSmall) {
  Context context;
  pthread_attr_t before, small, own;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 128 << 10);
  pthread_setattr_default_np(&small);
  size_t size = 0;
  {
    auto stream = make_thread_stream(context, "s");
    stream->run("look", [&] {
      pthread_getattr_np(pthread_self(), &own);
      pthread_attr_getstacksize(&own, &size);
      pthread_attr_destroy(&own);
    });
    stream->synchronize();
  }
  pthread_setattr_default_np(&before);
  EXPECT_GE(size, size_t(8) << 20);
}

TEST(Stream, ATimerTimesWhatIsQueuedBetweenStartAndStop) {
  Context context;
  for (auto make : {make_inline_stream, make_thread_stream}) {
    auto stream = make(context, "s");
    auto timer = stream->make_timer();
    std::chrono::steady_clock::time_point before, after;
    stream->run("before", [&] { std::this_thread::sleep_for(20ms), before = std::chrono::steady_clock::now(); });
    timer->start();
    stream->run("timed", [] { std::this_thread::sleep_for(20ms); });
    timer->stop();
    stream->run("after", [&] { after = std::chrono::steady_clock::now(), std::this_thread::sleep_for(20ms); });
    double seconds = timer->seconds();
    EXPECT_GE(seconds, 0.02);
    EXPECT_LE(seconds, std::chrono::duration<double>(after - before).count());
  }
}

TEST(ThreadStream, AnEventOrdersTwoStreams) {
  Context context;
  auto first = make_thread_stream(context, "first"), second = make_thread_stream(context, "second");
  std::atomic<int> value{0};
  int seen = -1;
  first->run("slow write", [&] { std::this_thread::sleep_for(20ms), value = 7; });
  second->wait(first->record());
  second->run("read", [&] { seen = value; });
  second->synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(ThreadStream, AFailureSkipsLaterWorkAndReachesEveryWait) {
  Context context;
  auto stream = make_thread_stream(context, "s");
  bool ran = false;
  stream->run("fails", [] { fail("the first cause"); });
  stream->run("later", [&] { ran = true; });
  for (int i = 0; i < 2; ++i) {
    try {
      stream->synchronize();
      FAIL() << "the failure was lost";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the first cause");
    }
  }
  EXPECT_FALSE(ran);
}

TEST(ThreadStream, AFailureTravelsAlongAnEventToAnotherStream) {
  Context context;
  auto first = make_thread_stream(context, "first"), second = make_thread_stream(context, "second");
  first->run("fails", [] { fail("the first cause"); });
  second->wait(first->record());
  EXPECT_THROW(second->synchronize(), Error);
}

TEST(ThreadStream, AFailureTravelsAlongAnEventThatIsLongOver) {
  Context context;
  auto first = make_thread_stream(context, "first"), second = make_thread_stream(context, "second");
  first->run("fails", [] { fail("the first cause"); });
  Event event = first->record();
  EXPECT_THROW(first->synchronize(), Error);
  second->wait(event);
  EXPECT_THROW(second->synchronize(), Error);
}

TEST(ThreadStream, AbortEndsAHostWaitWithinAMoment) {
  Context context;
  auto stream = make_thread_stream(context, "s");
  std::atomic<bool> release{false};
  stream->run("stuck", [&] {
    while (!release) std::this_thread::sleep_for(1ms);
  });
  std::thread killer([&] {
    std::this_thread::sleep_for(20ms);
    context.abort(std::make_exception_ptr(Error(ErrorKind::rank_failed, "rank 3 died")));
  });
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  killer.join();
  release = true;
}

TEST(ThreadStream, CarriesItsMakersContext) {
  Context context;
  auto stream = make_thread_stream(context, "s");
  Context* seen = nullptr;
  stream->run("look", [&] { seen = Context::current(); });
  stream->synchronize();
  EXPECT_EQ(seen, &context);
}

TEST(Context, AThreadWithoutOneIsRefused) {
  Context mine;
  std::thread([] { EXPECT_THROW(context(), Error); }).join();
}

struct Checked : ::testing::Test {
  Context context_{Context::Options{.check_streams = true}};
  std::unique_ptr<Stream> a = make_thread_stream(context_, "a"), b = make_thread_stream(context_, "b");
  char memory[64] = {};
  void write(Stream& stream, size_t begin, size_t bytes) {
    Access access{memory + begin, bytes, true};
    stream.run("write", [] {}, {&access, 1});
  }
  void read(Stream& stream, size_t begin, size_t bytes) {
    Access access{memory + begin, bytes, false};
    stream.run("read", [] {}, {&access, 1});
  }
};

TEST_F(Checked, AMissingWaitIsReportedWhateverTheTiming) {
  write(*a, 0, 64);
  EXPECT_THROW(read(*b, 32, 8), Error);
}

TEST_F(Checked, AHostWaitOrdersEverythingQueuedLater) {
  write(*a, 0, 64);
  a->synchronize();
  read(*b, 0, 64);
}

TEST_F(Checked, AnEventWaitMakesItLegal) {
  write(*a, 0, 64);
  b->wait(a->record());
  read(*b, 0, 64);
  a->wait(b->record());
  write(*a, 0, 64);
}

TEST_F(Checked, ReadsDoNotConflictWithReadsAndDisjointRangesDoNotConflict) {
  read(*a, 0, 64);
  read(*b, 0, 64);
  a->synchronize();
  b->synchronize();
  write(*a, 0, 32);
  write(*b, 32, 32);
}

TEST_F(Checked, WritingWhatAnotherStreamStillReadsIsReported) {
  read(*a, 8, 8);
  EXPECT_THROW(write(*b, 0, 64), Error);
}

// Its destructor has waited for it.
TEST_F(Checked, WhatAStreamDidThatIsGoneComesBeforeEverythingQueuedLater) {
  write(*a, 0, 64);
  a.reset();
  write(*b, 0, 64);
}

TEST_F(Checked, TheMessageNamesBothPiecesOfWorkAndBothStreams) {
  write(*a, 0, 64);
  try {
    read(*b, 0, 1);
    FAIL();
  } catch (const Error& error) {
    std::string what = error.what();
    EXPECT_NE(what.find("'read' on stream b"), std::string::npos) << what;
    EXPECT_NE(what.find("'write' on stream a"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace shardgrad
