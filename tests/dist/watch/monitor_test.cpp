// How a monitor judges a rank on another machine, of which only the control page tells.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include <shardgrad/dist/watch/control.h>
#include <shardgrad/dist/watch/monitor.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Rank 0, watched over by a monitor, and rank 1 on another machine, whose row the test writes; or more of them.
struct Watched {
  explicit Watched(WatchOptions options, int elsewhere = 1) : page(make_private_page(1 + elsewhere)) {
    for (int rank = 1; rank <= elsewhere; ++rank) {
      Row& row = page.row(rank);
      row.pid.store(4710 + rank);
      row.beats.store(1);
      row.state.store(RankState::running);
      options.elsewhere.push_back(rank);
    }
    options.warn = [this](const std::string& text) { warned.set_value(text); };
    monitor = std::make_unique<Monitor>(control, std::move(options));
  }
  Context context;
  ControlPage page;
  std::shared_ptr<Control> control = std::make_shared<Control>(page, 0);
  std::promise<std::string> warned;
  std::unique_ptr<Monitor> monitor;
};

WatchOptions impatient() {
  WatchOptions options;
  options.beat = 20ms;
  options.silence_limit = 300ms;
  return options;
}

TEST(Monitor, ARankElsewhereWithoutHeartbeatsEndsTheJob) {
  Watched watched(impatient());
  for (int i = 0; i < 500 && !watched.page.has_cause(); ++i) std::this_thread::sleep_for(20ms);
  EXPECT_EQ(watched.page.cause().find("rank 1 (pid 4711) has stopped: no heartbeat for"), 0u) << watched.page.cause();
}

TEST(Monitor, RanksElsewhereThatAreMissedTogetherAreNamedTogether) {
  WatchOptions options = impatient();
  options.silence_limit = 1s;
  Watched watched(options, 4);
  auto& page = watched.page;
  for (int i = 0; i < 500 && !page.has_cause(); ++i) {
    page.row(3).beats.fetch_add(1);
    std::this_thread::sleep_for(20ms);
  }
  watched.monitor.reset();  // whose look is over then
  EXPECT_EQ(page.cause().find("ranks 1, 2 and 4 have stopped: no heartbeat for"), 0u) << page.cause();
  for (int rank : {1, 2, 4}) EXPECT_EQ(page.row(rank).state.load(), RankState::failed) << rank;
  EXPECT_EQ(page.row(3).state.load(), RankState::running);
}

TEST(Monitor, ARankElsewhereUnderADebuggerIsNotJudged) {
  WatchOptions options = impatient();
  Watched watched(options);
  watched.page.row(1).tracer.store(815);
  std::future<std::string> warning = watched.warned.get_future();
  ASSERT_EQ(warning.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(warning.get(), "rank 1 (pid 4711) is under a debugger (pid 815): nobody judges how long it takes");
  std::this_thread::sleep_for(2 * options.silence_limit);
  EXPECT_FALSE(watched.page.has_cause()) << watched.page.cause();
}

// Here the launcher is a process between this one and the rank.
TEST(Monitor, ARankWhoseLauncherHasDiedEndsTheJob) {
  int begun[2], said[2];
  ASSERT_EQ(pipe(begun) + pipe(said), 0);
  pid_t launcher = fork();
  if (launcher == 0) {
    if (fork() == 0) {
      WatchOptions options;
      options.processes = options.parent = true;
      Watched watched(options);
      close(begun[1]);
      for (int i = 0; i < 500 && !watched.page.has_cause(); ++i) std::this_thread::sleep_for(20ms);
      std::string cause = watched.page.cause();
      _exit(::write(said[1], cause.data(), cause.size()) < 0);
    }
    close(begun[1]);
    char none;
    _exit(read(begun[0], &none, 1) != 0);
  }
  for (int end : {begun[0], begun[1], said[1]}) close(end);
  int status = -1;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(status, 0);
  char text[200];
  ssize_t length = read(said[0], text, sizeof text);
  close(said[0]);
  EXPECT_EQ(std::string(text, size_t(std::max<ssize_t>(0, length))),
            concat("the launcher (pid ", launcher, ") died, which ends its ranks"));
}

// Only rank 0 has come to a collective.
TEST(Monitor, ALimitOfForEverIsForEver) {
  WatchOptions options = impatient();
  options.warn_after = 50ms;
  options.warn_again = options.stall_limit = options.silence_limit = std::chrono::milliseconds::max();
  Watched watched(options);
  std::future<std::string> warning = watched.warned.get_future();
  Place place;
  place.group = 7;
  place.sequence = 1;
  watched.page.row(1).use(0);
  watched.page.row(1).lanes[0].group.store(7);
  int lane = watched.control->open_lane(7, {0, 1});
  watched.control->enter(lane, place);
  ASSERT_EQ(warning.wait_for(10s), std::future_status::ready);
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(watched.page.has_cause()) << watched.page.cause();
}

/// Rank 0 waits in group 7 for rank 1, which waits in group 9 for rank 0.
struct Crossed {
  explicit Crossed(Watched& watched) : control(*watched.control), row(watched.page.row(1)) {
    first = control.open_lane(7, {0, 1});
    second = control.open_lane(9, {0, 1});
    control.call(first, 1);
    control.enter(first, place(7));
    waiting = std::make_unique<Control::Waiting>(control, first, 1);
    for (int i : {0, 1}) row.lanes[i].caller.store(1);
    row.lanes[1].called.store(1);
    row.lanes[1].place.store(place(9));
    row.lanes[1].blocked.store(Blocked{1, 1}.word());
    row.use(1);
    row.lanes[0].group.store(7);
    row.lanes[1].group.store(9);
  }
  static Place place(uint64_t group) {
    Place place;
    place.group = group;
    place.sequence = 1;
    return place;
  }
  /// Rank 1's collective is over: what rank 0 saw was a page in the middle of a change.
  void resolve() {
    row.lanes[1].finished.store(1);
    row.lanes[1].blocked.store(0);
  }
  Control& control;
  Row& row;
  int first, second;
  std::unique_ptr<Control::Waiting> waiting;
};

TEST(Monitor, ADeadlockWithARankElsewhereIsBelievedOnceItStays) {
  WatchOptions options;
  options.deadlock_after = 0ms;
  Watched watched(options);
  Crossed crossed(watched);
  for (int i = 0; i < 500 && !watched.page.has_cause(); ++i) {
    watched.page.row(1).beats.fetch_add(1);
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(watched.page.cause().find("the ranks wait for each other in different groups: "), 0u)
      << watched.page.cause();
}

// Rows of other machines come up to a few tenths of a second late, so a cycle may be seen that never was. One that
// lasts for three beats is not believed; where all ranks share a page, one beat is enough.
TEST(Monitor, ADeadlockWithARankElsewhereIsNotBelievedAtOnce) {
  WatchOptions options;
  options.deadlock_after = 0ms;
  for (int attempt = 0; attempt < 5; ++attempt) {
    Watched watched(options);
    Crossed crossed(watched);
    auto begin = Clock::now();
    std::this_thread::sleep_for(3 * options.beat);
    crossed.resolve();
    if (Clock::now() - begin > 4 * options.beat) continue;  // this machine was too busy to tell
    std::this_thread::sleep_for(7 * options.beat);
    EXPECT_FALSE(watched.page.has_cause()) << watched.page.cause();
    return;
  }
  GTEST_SKIP() << "the machine is too busy";
}

}  // namespace
}  // namespace shardgrad::dist
