// Two machines with a rank each, pretended in one process: what each control page says of the other's rank.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <shardgrad/dist/control.h>
#include <tests/dist/pretended_machine.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;

bool comes_true(const std::function<bool()>& what) {
  for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(10ms))
    if (what()) return true;
  return false;
}

struct TwoMachines {
  TwoMachines() {
    auto [left, right] = connected();
    links[0] = std::make_unique<PageLink>(pages[0], PretendedRank(0, hosts), far_end(std::move(left), 1, {0}));
    links[1] = std::make_unique<PageLink>(pages[1], PretendedRank(1, hosts), far_end(std::move(right), 0, {1}));
  }
  /// As if rank r ran on its machine.
  void start(int r, int pid) {
    pages[r].row(r).pid.store(pid);
    pages[r].row(r).beats.store(1);
    pages[r].row(r).state.store(RankState::running);
  }
  std::vector<std::string> hosts = {"a", "b"};
  ControlPage pages[2] = {make_private_page(2), make_private_page(2)};
  std::unique_ptr<PageLink> links[2];
};

TEST(PageLink, ARankIsSeenFromTheOtherMachine) {
  TwoMachines two;
  two.start(1, 4711);
  EXPECT_TRUE(comes_true([&] { return two.pages[0].row(1).state.load() == RankState::running; }));
  EXPECT_EQ(two.pages[0].row(1).pid.load(), 4711);
}

TEST(PageLink, ACauseIsKnownOnBothMachines) {
  for (int first : {0, 1}) {
    TwoMachines two;
    two.pages[first].claim_cause(first, 4, "label 11 of sample 5");
    EXPECT_TRUE(comes_true([&] { return two.pages[1 - first].has_cause(); }));
    EXPECT_EQ(two.pages[1 - first].cause(), "label 11 of sample 5");
    EXPECT_EQ(two.pages[1 - first].header().rank.load(), first);
  }
}

// The far machine closes its connection in both cases.
TEST(PageLink, AMachineThatSaysFarewellHasNotFailed) {
  TwoMachines two;
  two.start(1, 4711);
  two.pages[1].row(1).state.store(RankState::finished);
  two.links[1].reset();
  EXPECT_TRUE(comes_true([&] { return two.pages[0].row(1).state.load() == RankState::finished; }));
  std::this_thread::sleep_for(200ms);  // the link looks every 50 ms
  EXPECT_FALSE(two.pages[0].has_cause()) << two.pages[0].cause();
}

TEST(PageLink, AMachineThatIsGoneWithoutFarewellIsTheCause) {
  ControlPage page = make_private_page(2);
  auto [near, away] = connected();
  PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1, {0}));
  page.row(1).pid.store(4711);
  page.row(1).state.store(RankState::running);
  away = Socket();
  ASSERT_TRUE(comes_true([&] { return page.has_cause(); }));
  EXPECT_EQ(page.cause().find("rank 1 (pid 4711) on another machine died"), 0u) << page.cause();
  EXPECT_TRUE(comes_true([&] { return page.row(1).state.load() == RankState::failed; }));
}

TEST(PageLink, ADebuggerOnTheOtherMachineIsTold) {
  TwoMachines two;
  pid_t debugged = fork();
  if (debugged == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    for (;;) pause();
  }
  two.start(1, debugged);
  bool told = comes_true([&] { return two.pages[0].row(1).tracer.load() == getpid(); });
  kill(debugged, SIGKILL);
  int status = 0;
  waitpid(debugged, &status, 0);
  if (WIFEXITED(status)) GTEST_SKIP() << "no process may be debugged here";
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace shardgrad::dist::testing
