#include <shardgrad/dist/bootstrap/roll_call.h>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/watch/monitor.h>
#include <tests/dist/child.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// For how long each has been still after a second of looking.
std::vector<std::chrono::milliseconds> stillness(const std::vector<pid_t>& pids) {
  std::vector<Stillness> all(pids.begin(), pids.end());
  for (auto end = Clock::now() + 1s; Clock::now() < end; std::this_thread::sleep_for(20ms))
    for (Stillness& one : all) one.look();
  std::vector<std::chrono::milliseconds> times;
  for (const Stillness& one : all) times.push_back(one.time());
  return times;
}

TEST(Stillness, IsOfAProcessThatUsesNoTimeAndThatNoDebuggerHolds) {
  Child stopped([] { raise(SIGSTOP); }), busy([] {
    while (Clock::now() > Clock::time_point()) {
    }
  });
  Child traced = Child::traced();
  auto times = stillness({stopped.pid(), busy.pid(), traced.pid()});
  EXPECT_GT(times[0], 500ms);
  EXPECT_LT(times[1], times[0]);
  EXPECT_LT(times[2], 100ms);
}

TEST(FamilyOf, IsAProcessAndItsDescendants) {
  Child shell([] { execlp("sh", "sh", "-c", "sleep 60 & (sleep 60; true)", nullptr); });
  for (auto end = Clock::now() + 10s; family_of(shell.pid()).size() < 4 && Clock::now() < end;)
    std::this_thread::sleep_for(10ms);
  std::vector<pid_t> family = family_of(shell.pid());
  EXPECT_EQ(family.size(), 4u);
  EXPECT_EQ(family[0], shell.pid());
  for (pid_t pid : family) kill(pid, SIGKILL);
}

TEST(RendezvousLimit, IsAWholeNumberOfSecondsOrRefusedByName) {
  for (const char* text : {"0", "none", "-1", "5min", ""}) {
    setenv("SHARDGRAD_RENDEZVOUS_SECONDS", text, 1);
    try {
      rendezvous_limit();
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_EQ(std::string(error.what()).find(concat("SHARDGRAD_RENDEZVOUS_SECONDS is '", text, "'")), 0u)
          << error.what();
    }
  }
  setenv("SHARDGRAD_RENDEZVOUS_SECONDS", "7", 1);
  EXPECT_EQ(rendezvous_limit(), 7s);
  unsetenv("SHARDGRAD_RENDEZVOUS_SECONDS");
  EXPECT_EQ(rendezvous_limit(), 300s);
}

TEST(RollCall, NamesAFewOfManyRanksThatDoNothingAndListsTheOthers) {
  std::vector<Child> stopped;
  RankProcesses missing;
  for (int rank = 0; rank < 7; ++rank) {
    stopped.emplace_back([] { raise(SIGSTOP); });
    missing[rank == 6 ? 9 : rank] = {stopped.back().pid()};
  }
  setenv("SHARDGRAD_RENDEZVOUS_SECONDS", "1", 1);
  RollCall roll_call;
  unsetenv("SHARDGRAD_RENDEZVOUS_SECONDS");
  std::string said;
  for (auto end = Clock::now() + 20s; said.empty() && Clock::now() < end; std::this_thread::sleep_for(20ms))
    said = roll_call.look(missing);
  std::string last =
      concat("rank 2 (pid ", stopped[2].pid(), ") has not begun and has done nothing for 1 s (stopped by a ",
             "signal), nor have ranks 3-5 and 9; the other ranks wait for it");
  EXPECT_NE(said.find(last), std::string::npos) << said;
}

TEST(Monitor, NamesARankThatStopsBeforeItsFirstHeartbeat) {
  Child stopped([] { raise(SIGSTOP); });
  Context context;
  ControlPage page = make_private_page(2);
  auto control = std::make_shared<Control>(page, 0);
  page.row(1).pid.store(stopped.pid());
  WatchOptions options;
  options.processes = true;
  options.start_limit = 300ms;
  Monitor monitor(control, options);
  for (auto end = Clock::now() + 10s; !context.aborted() && Clock::now() < end;) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(page.cause(), concat("rank 1 (pid ", stopped.pid(),
                                 ") has not begun and has done nothing for 0 s (stopped by a signal)"));
}

}  // namespace
}  // namespace shardgrad::dist::testing
