// Two machines with a rank each, pretended in one process: what each control page says of the other's rank.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <set>

#include <shardgrad/dist/watch/control.h>
#include <shardgrad/dist/watch/monitor.h>
#include <shardgrad/dist/watch/page_wire.h>
#include <tests/dist/pretended_machine.h>
#include <tests/dist/tcp_pair.h>

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
    links[0] = std::make_unique<PageLink>(pages[0], PretendedRank(0, hosts), far_end(std::move(left), 1));
    links[1] = std::make_unique<PageLink>(pages[1], PretendedRank(1, hosts), far_end(std::move(right), 0));
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
  PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1));
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(page.has_cause()) << page.cause();
}

TEST(PageLink, AMachineThatIsGoneWithoutFarewellIsTheCause) {
  ControlPage page = make_private_page(2);
  auto [near, away] = connected();
  PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1));
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
  PageLink link(page, PretendedRank(1, {"a", "b"}), far_end(std::move(near), 0));
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
    PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1));
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
    return at == bytes.size();
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
  EXPECT_FALSE(is_taken(RowImage{.begun = 2}));
  EXPECT_FALSE(is_taken(RowImage{.stood = 2}));
  for (auto [code, possible] : {std::pair{1, true}, {255, true}, {0, false}, {256, false}})
    EXPECT_EQ(is_taken(CauseImage{0, code}), possible) << "an exit code of " << code;
}

LaneImage lane_image() {
  LaneImage image;
  std::memset(static_cast<void*>(&image), 0, sizeof(image));
  return image;
}

TEST(PageWire, TakesOnlyAPlaceThatCanBe) {
  auto is_taken_with = [&](auto&& change) {
    LaneImage image = lane_image();
    change(image);
    return is_taken(image);
  };
  EXPECT_TRUE(is_taken(lane_image()));
  for (auto [closed, possible] : {std::pair{2u, true}, {3u, false}})
    EXPECT_EQ(is_taken_with([value = closed](LaneImage& image) { image.closed = value; }), possible) << closed;
  for (auto [root, possible] : {std::pair{2, true}, {3, false}, {-1, true}, {-2, false}})
    EXPECT_EQ(is_taken_with([value = root](LaneImage& image) { image.place.root = value; }), possible) << root;
  for (auto [dtype, possible] : {std::pair{kDTypeCount - 1, true}, {kDTypeCount, false}})
    EXPECT_EQ(is_taken_with([value = dtype](LaneImage& image) { image.place.dtype = DType(value); }), possible)
        << dtype;
}

// The texts are the last of it, each after its length, which stands before them.
TEST(PageWire, TakesOnlyTextsThatFit) {
  std::string bytes;
  append(bytes, lane_image());
  const size_t lengths = bytes.size() - 10;
  const size_t rooms[] = {sizeof(Place::op), sizeof(Place::unit), sizeof(Place::phase), sizeof(Place::detail)};
  for (size_t n = 0; n < 4; ++n)
    for (size_t length : {rooms[n] - 1, rooms[n]}) {
      std::string longer = bytes + std::string(length, 'x');
      longer[lengths + n] = char(length);
      size_t at = 0;
      if (length < rooms[n])
        EXPECT_NO_THROW(take<LaneImage>(longer, at, 3));
      else
        EXPECT_THROW(take<LaneImage>(longer, at, 3), Error) << "it has no end";
      longer.pop_back();
      EXPECT_THROW(take<LaneImage>(longer, at = 0, 3), Error) << "cut off";
    }
}

TEST(PageWire, ALaneComesAsItWent) {
  LaneImage image = lane_image(), came;
  image.group = 7;
  image.finished = 4;
  image.called = 6;
  image.blocked = Blocked{12, 5}.word();
  image.closed = 1;
  image.caller = 12;
  image.place.group = 7;
  image.place.sequence = 5;
  image.place.elements = 1024;
  image.place.root = 2;
  image.place.dtype = DType::bf16;
  image.place.has_elements = true;
  std::strcpy(image.place.op, "all_reduce");
  std::strcpy(image.place.unit, "layers.0");
  std::strcpy(image.place.phase, "backward");
  std::memset(image.place.detail, 'd', sizeof(image.place.detail) - 1);
  std::string bytes;
  append(bytes, image);
  size_t at = 0;
  came = take<LaneImage>(bytes, at, 3);
  EXPECT_TRUE(came == image);
  EXPECT_EQ(at, bytes.size());
  EXPECT_LT(bytes.size(), 200u) << "texts are sent as long as they are";
}

TEST(PageWire, ABitForEachRankAndNoMore) {
  for (int ranks : {1, 8, 11}) {
    std::string all(size_t(ranks + 7) / 8, '\xff'), some = all;
    some.back() = char((1 << ((ranks - 1) % 8 + 1)) - 1);
    EXPECT_NO_THROW(RankBits(ranks, some));
    EXPECT_EQ(ranks % 8 == 0, some == all);
    if (ranks % 8 != 0) {
      EXPECT_THROW(RankBits(ranks, all), Error) << "of a rank that there is not";
    }
    EXPECT_THROW(RankBits(ranks, some + '\0'), Error);
    EXPECT_THROW(RankBits(ranks, some.substr(1)), Error);
  }
}

// A peer may say what ranks of its machine do, and no more.
TEST(PageLink, HeartbeatsOfOtherMachinesRanksAreNotTaken) {
  for (int rank : {1, 2}) {
    ControlPage page = make_private_page(3);
    auto [near, away] = connected();
    PageLink link(page, PretendedRank(0, {"a", "b", "c"}), far_end(std::move(near), 1));
    RankBits beats(3);
    beats.set(rank);
    std::string bytes;
    append(bytes, uint64_t(2));
    bytes += char(PageMessage::beats) + beats.bytes();
    ASSERT_TRUE(away.write_some(bytes));
    EXPECT_TRUE(comes_true([&] { return rank == 1 ? page.row(1).beats.load() == 1 : page.has_cause(); })) << rank;
    EXPECT_EQ(page.row(2).beats.load(), 0u);
  }
}

// Where the queue of a machine heeds it, as Linux's does by default, they do not wait behind data.
TEST(PageLink, HeartbeatsLeaveTheirMachineFirst) {
  for (const char* address : {"127.0.0.2", "::1"}) {
    if (address == std::string("::1") && !has_ipv6()) continue;
    TcpPair pair(address);
    int descriptor = pair.here.descriptor(), priority = 0;
    socklen_t length = sizeof(priority);
    PageLink link(make_private_page(2), PretendedRank(0, {"a", "b"}), far_end(std::move(pair.here), 1));
    ASSERT_EQ(getsockopt(descriptor, SOL_SOCKET, SO_PRIORITY, &priority, &length), 0);
    EXPECT_EQ(priority, 6) << address << ": TC_PRIO_INTERACTIVE";
  }
}

void send_beat_of(int rank, int ranks, const Socket& socket) {
  RankBits beats(ranks);
  beats.set(rank);
  std::string bytes;
  append(bytes, uint64_t(1 + beats.bytes().size()));
  bytes += char(PageMessage::beats) + beats.bytes();
  ASSERT_TRUE(socket.write_some(bytes));
}

void send_data_for(std::chrono::seconds time, const Socket& socket) {
  std::string data;
  for (int i = 0; i < 10 * time.count(); ++i, std::this_thread::sleep_for(100ms))
    ASSERT_TRUE(socket.write_some(data = "data"));
}

// A slow cable: heartbeats stand in line behind data, of which some arrive.
TEST(PageLinkSlow, DataThatGoOnCountAsTheHeartbeatsThatAreLate) {
  ControlPage page = make_private_page(3);
  TcpPair link_to_it("127.0.0.2"), of_its_mpi("127.0.0.2");
  page.row(0).pid.store(getpid());
  PageLink link(page, PretendedRank(0, {"a", "b", "b"}), far_end(std::move(link_to_it.here), 1), {"127.0.0.2"});
  send_beat_of(2, 3, link_to_it.there);
  send_data_for(8s, of_its_mpi.there);
  uint64_t heard = page.row(2).beats.load();
  EXPECT_GE(heard, 3u) << "in 8 seconds, of which three are no reason for doubt";
  EXPECT_EQ(page.row(1).beats.load(), 0u) << "of this rank there was none before";
  std::this_thread::sleep_for(4s);
  EXPECT_LE(page.row(2).beats.load(), heard + 1) << "nothing comes any more";
  EXPECT_FALSE(page.has_cause()) << page.cause();
}

/// Rank 0's machine, as it sees those of ranks 1 and 2.
struct AsRank0SeesTwo {
  AsRank0SeesTwo() {
    page.row(0).pid.store(getpid());
    std::vector<PageLink::Far> far;
    for (int r : {1, 2}) far.push_back({std::move(links[r - 1].here), r});
    link = std::make_unique<PageLink>(page, PretendedRank(0, machines_of(3, 1)), std::move(far),
                                      std::set<std::string>{"127.0.0.2", "127.0.0.3"});
  }
  void beat(int rank) { send_beat_of(rank, 3, links[rank - 1].there); }
  uint64_t heard_of(int rank) { return page.row(rank).beats.load(); }
  ControlPage page = make_private_page(3);
  TcpPair links[2] = {TcpPair("127.0.0.2"), TcpPair("127.0.0.3")};
  std::unique_ptr<PageLink> link;
};

// Of four machines that gather in a line, two never send each other anything.
TEST(PageLinkSlow, DataOfAnyOtherMachineCountForAll) {
  AsRank0SeesTwo machines;
  TcpPair of_2s_mpi("127.0.0.3");
  for (int r : {1, 2}) machines.beat(r);
  send_data_for(6s, of_2s_mpi.there);
  for (int r : {1, 2}) EXPECT_GE(machines.heard_of(r), 2u);
}

// Where the others go on without it, it is judged all the same, after a minute.
TEST(PageLinkSlow, DataOfOthersCountForAMachineForAMinute) {
  AsRank0SeesTwo machines;
  TcpPair of_2s_mpi("127.0.0.3");
  machines.beat(1);
  send_data_for(64s, of_2s_mpi.there);
  uint64_t heard = machines.heard_of(1);
  EXPECT_GE(heard, 50u);
  EXPECT_LE(heard, 62u);
  send_data_for(4s, of_2s_mpi.there);
  EXPECT_EQ(machines.heard_of(1), heard);
}

// Heartbeats of one machine are none of another, and what the ranks of this one exchange says nothing of others.
TEST(PageLinkSlow, HeartbeatsAndDataOfTheOwnMachineCountForNoOther) {
  AsRank0SeesTwo machines;
  TcpPair within_this_machine("127.0.0.1");
  machines.beat(1);
  for (int i = 0; i < 6; ++i) {
    machines.beat(2);
    send_data_for(1s, within_this_machine.there);
  }
  EXPECT_EQ(machines.heard_of(1), 1u);
  EXPECT_EQ(machines.heard_of(2), 6u);
}

// Of its own machine nobody judges it here, as if that had stopped as a whole. Its last heartbeat comes by way of rank
// 0 up to two seconds late, and may be looked at half a second later.
TEST(PageLinkSlow, ARankThatStopsIsNamedOnEveryMachineWithin12Seconds) {
  const int machines = 4;
  std::vector<std::string> hosts = machines_of(machines, 2);
  Context context;
  std::vector<ControlPage> pages;
  std::vector<std::unique_ptr<PageLink>> links;
  std::vector<std::unique_ptr<Monitor>> monitors;
  std::vector<PageLink::Far> far;
  for (int m = 0; m < machines; ++m) pages.push_back(make_private_page(2 * machines));
  for (int m = 1; m < machines; ++m) {
    auto [near, away] = connected();
    far.push_back({std::move(near), 2 * m});
    links.push_back(
        std::make_unique<PageLink>(pages[size_t(m)], PretendedRank(2 * m, hosts), far_end(std::move(away), 0)));
  }
  links.push_back(std::make_unique<PageLink>(pages[0], PretendedRank(0, hosts), std::move(far)));
  for (int m = 0; m < machines; ++m) {
    WatchOptions options;
    for (int r = 0; r < 2 * machines; ++r)
      if (r / 2 != m) options.elsewhere.push_back(r);
    Control second(pages[size_t(m)], 2 * m + 1);
    monitors.push_back(std::make_unique<Monitor>(std::make_shared<Control>(pages[size_t(m)], 2 * m), options));
  }
  auto stops = std::chrono::steady_clock::now() + 3s, end = stops + 30s;
  auto named = [&] { return std::ranges::all_of(pages, [](const ControlPage& page) { return page.has_cause(); }); };
  for (; !named() && std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(50ms))
    for (int m = 0; m < machines; ++m)
      if (m < machines - 1 || std::chrono::steady_clock::now() < stops)
        pages[size_t(m)].row(2 * m + 1).beats.fetch_add(1);
  EXPECT_LT(std::chrono::steady_clock::now() - stops, 12s);
  for (const ControlPage& page : pages) EXPECT_NE(page.cause().find("rank 7 (pid "), std::string::npos) << page.cause();
}

// Others would take it for a rank that has left for no reason.
TEST(PageLink, TheCauseComesBeforeTheStateOfWhoFailed) {
  ControlPage page = make_private_page(2);
  auto [near, away] = connected();
  page.row(0).pid.store(4711);
  page.claim_cause(0, 4, "label 11 of sample 5");
  page.row(0).state.store(RankState::failed);
  std::string bytes;
  { PageLink link(page, PretendedRank(0, {"a", "b"}), far_end(std::move(near), 1)); }
  while (away.read_some(bytes, 1 << 16)) wait_readable(away);
  EXPECT_EQ(PageMessage(bytes.at(8)), PageMessage::cause);
}

}  // namespace
}  // namespace shardgrad::dist::testing
