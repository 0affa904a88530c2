// Two machines with a rank each, pretended in one process: what each control page says of the other's rank.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <shardgrad/dist/watch/control.h>
#include <shardgrad/dist/watch/page_wire.h>
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

TEST(PageLink, TheCallThatARankIsInIsSeenFromTheOtherMachine) {
  Context context;
  TwoMachines two;
  two.start(1, 4711);
  Control control(two.pages[1], 1);
  Place place, seen;
  place.group = 7;
  place.sequence = 3;
  int lane = control.open_lane(7, {0, 1});
  control.enter(lane, place);
  Lane& there = two.pages[0].row(1).lanes[lane];
  EXPECT_TRUE(comes_true([&] { return there.group.load() == 7 && there.place.load(seen) && seen.group == 7; }));
  EXPECT_EQ(seen.sequence, 3u);
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

// Rank 0's heartbeat finds the connection closed before the farewell has been read.
TEST(PageLink, AFarewellIsHeardWhereNothingCanBeSentAnyMore) {
  ControlPage page = make_private_page(2);
  page.row(0).beats.store(1);
  auto [near, away] = connected();
  std::string farewell = std::string("\1\0\0\0\0\0\0\0", 8) + char(PageMessage::farewell);
  ASSERT_TRUE(away.write_some(farewell));
  away = Socket();
  PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1, {0}));
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(page.has_cause()) << page.cause();
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

TEST(PageLink, WhereRank0sMachineIsGoneTheOtherOneSaysTheCause) {
  ControlPage page = make_private_page(2);
  auto [near, away] = connected();
  PageLink link(page, PretendedRank(1, {"a", "b"}), far_end(std::move(near), 0, {1}));
  EXPECT_EQ(page.header().printed.load(), 1u) << "as long as it is there, it says it";
  away = Socket();
  ASSERT_TRUE(comes_true([&] { return page.has_cause(); }));
  EXPECT_TRUE(comes_true([&] { return page.header().printed.load() == 0; }));
}

// The other end does not close: it only announces what nobody has memory for, and says no more.
TEST(PageLink, AMessageThatCannotBeSoLongEndsTheConnection) {
  for (uint64_t length : {uint64_t(1) << 40, ~uint64_t(0), ~uint64_t(7)}) {
    ControlPage page = make_private_page(2);
    auto [near, away] = connected();
    PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1, {0}));
    std::string bytes;
    append(bytes, length);
    ASSERT_TRUE(away.write_some(bytes));
    EXPECT_TRUE(comes_true([&] { return page.has_cause(); })) << length;
  }
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

template <class T> bool is_taken(const T& value, int ranks = 3) {
  std::string bytes;
  append(bytes, value);
  size_t at = 0;
  try {
    take<T>(bytes, at, ranks);
    return at == sizeof(T);
  } catch (const Error&) {
    return false;
  }
}

TEST(PageWire, TakesOnlyWhatCanBe) {
  for (auto [lane, possible] : {std::pair{0, true}, {Row::kLanes - 1, true}, {Row::kLanes, false}, {-1, false}})
    EXPECT_EQ(is_taken(int32_t(lane)), possible) << lane;
  for (auto [rank, possible] : {std::pair{0, true}, {2, true}, {3, false}, {-1, false}, {100000000, false}}) {
    EXPECT_EQ(is_taken(RowImage{.rank = rank}), possible) << rank;
    EXPECT_EQ(is_taken(CauseImage{rank, 4}), possible) << rank;
  }
  for (auto [lanes, possible] : {std::pair{Row::kLanes, true}, {Row::kLanes + 1, false}, {-1, false}})
    EXPECT_EQ(is_taken(RowImage{.lanes = lanes}), possible) << lanes;
  EXPECT_FALSE(is_taken(RowImage{.state = RankState(4)}));
  for (auto [code, possible] : {std::pair{1, true}, {255, true}, {0, false}, {256, false}})
    EXPECT_EQ(is_taken(CauseImage{0, code}), possible) << "an exit code of " << code;
}

TEST(PageWire, TakesOnlyAPlaceThatCanBe) {
  LaneImage whole{};
  EXPECT_TRUE(is_taken(whole));
  auto is_taken_with = [&](const auto& member, auto value) {
    LaneImage image = whole;
    size_t at = size_t(reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(&whole));
    std::memcpy(reinterpret_cast<char*>(&image) + at, &value, sizeof(value));
    return is_taken(image);
  };
  const Place& place = whole.place;
  EXPECT_TRUE(is_taken_with(whole.closed, uint32_t(2)));
  EXPECT_FALSE(is_taken_with(whole.closed, uint32_t(3)));
  EXPECT_TRUE(is_taken_with(place.root, 2));
  EXPECT_FALSE(is_taken_with(place.root, 3));
  EXPECT_FALSE(is_taken_with(place.root, -2));
  EXPECT_TRUE(is_taken_with(place.dtype, uint8_t(kDTypeCount - 1)));
  EXPECT_FALSE(is_taken_with(place.dtype, uint8_t(kDTypeCount)));
  EXPECT_TRUE(is_taken_with(place.has_elements, char(1)));
  EXPECT_FALSE(is_taken_with(place.has_elements, char(2)));
  for (const char* text_end : {std::end(place.op), std::end(place.unit), std::end(place.phase), std::end(place.detail)})
    EXPECT_FALSE(is_taken_with(text_end[-1], 'x')) << "a text without an end";
}

}  // namespace
}  // namespace shardgrad::dist::testing
