// What a machine tells of its control page and when, in a time that the tests make: nothing here waits or is timed.

#include <gtest/gtest.h>
#include <malloc.h>

#include <map>
#include <set>

#include <shardgrad/dist/watch/control.h>
#include <shardgrad/dist/watch/page_news.h>
#include <tests/dist/pretended_machine.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;
using Clock = PageNews::Clock;
using Rows = std::map<int, std::pair<bool, std::vector<int>>>;  // of a rank, whether it stood, and its lanes

/// What a message of rows says.
Rows rows_in(const std::string& body, int ranks) {
  Rows rows;
  for (size_t at = 0; at < body.size();) {
    auto image = take<RowImage>(body, at, ranks);
    std::vector<int> lanes;
    for (int i = 0; i < image.lanes; ++i) {
      lanes.push_back(take<int32_t>(body, at, ranks));
      take<LaneImage>(body, at, ranks);
    }
    rows[image.rank] = {image.stood, lanes};
  }
  return rows;
}

/// A machine's page and what it tells machine `to`, in steps of 50 ms.
struct Teller {
  Teller(std::vector<std::string> hosts, int rank, int to)
      : map(hosts), page(make_private_page(map.world_size())), news(page, map, rank), to(to) {
    news.look(now);
    tell();
  }
  void wait(std::chrono::milliseconds time) {
    for (auto end = now + time; now < end; news.look(now)) now += 50ms;
  }
  Rows tell() {
    Rows all;
    while (news.has_more(told)) all.merge(rows_in(news.since(told, to), map.world_size()));
    return all;
  }
  void begin(int rank) {
    page.row(rank).beats.fetch_add(1);
    page.row(rank).state.store(RankState::running);
  }
  /// Rank r has made one more call in a lane, and is in it.
  void call(int rank, int lane) {
    Place place;
    place.group = uint64_t(7 + lane);
    place.sequence = ++calls;
    page.row(rank).use(lane);
    page.row(rank).lanes[lane].group.store(place.group);
    page.row(rank).lanes[lane].called.store(calls);
    page.row(rank).lanes[lane].place.store(place);
  }
  RankMap map;
  ControlPage page;
  PageNews news;
  int to;
  Clock::time_point now{std::chrono::hours(1)};
  PageNews::Told told;
  uint64_t calls = 0;
};

TEST(PageNews, WhoBeginsOrEndsIsToldAtOnceWithItsLastCall) {
  Teller teller(machines_of(2, 2), 2, 0);
  teller.begin(3);
  teller.wait(50ms);
  EXPECT_EQ(teller.tell(), (Rows{{3, {true, {}}}}));
  teller.call(3, 4);
  teller.page.row(3).state.store(RankState::finished);
  teller.wait(50ms);
  EXPECT_EQ(teller.tell(), (Rows{{3, {false, {4}}}}));
}

TEST(PageNews, ARowIsToldOnceItStandsAndOnlyTheLanesThatAreNew) {
  Teller teller(machines_of(2, 2), 2, 0);
  for (int lane : {0, 1}) teller.call(2, lane);
  teller.wait(300ms);
  EXPECT_EQ(teller.tell(), Rows{});
  teller.wait(50ms);
  EXPECT_EQ(teller.tell(), (Rows{{2, {true, {0, 1}}}}));
  teller.call(2, 1);
  teller.wait(350ms);
  EXPECT_EQ(teller.tell(), (Rows{{2, {true, {1}}}}));
  teller.wait(10s);
  EXPECT_EQ(teller.tell(), Rows{}) << "it still stands";
}

// Its lanes may never have been like this at one time.
TEST(PageNews, OfARowThatGoesOnOnlyRank0HearsOnceASecond) {
  for (int rank : {0, 2}) {
    Teller teller(machines_of(2, 2), rank, rank == 0 ? 1 : 0);
    int told = 0;
    for (int i = 0; i < 200; ++i) {
      teller.call(rank, i % 2);
      teller.wait(50ms);
      Rows rows = teller.tell();
      for (const auto& [whose, row] : rows) EXPECT_FALSE(row.first);
      told += int(rows.size());
    }
    EXPECT_EQ(told, rank == 0 ? 0 : 9);
  }
}

TEST(PageNews, Rank0PassesOnWhatStandsButNotToWhoseItIs) {
  Teller teller(machines_of(3, 1), 0, 2);
  Teller source(machines_of(3, 1), 1, 0);
  source.call(1, 0);
  auto hear = [&](std::chrono::milliseconds after) {
    source.wait(after);
    std::string body = source.news.since(source.told, 0);
    for (size_t at = 0; at < body.size();)
      teller.news.heard(take_row(body, at, teller.page, [](int rank) { return rank == 1; }), teller.now);
  };
  hear(350ms);
  teller.wait(950ms);
  EXPECT_EQ(teller.tell(), Rows{});
  PageNews::Told told_1 = teller.told;
  teller.wait(50ms);
  EXPECT_EQ(teller.tell(), (Rows{{1, {true, {0}}}}));
  EXPECT_EQ(teller.news.since(told_1, 1), "");

  source.call(1, 0);  // and goes on: rank 0 hears, the others do not
  for (int i = 0; i < 40; ++i, source.call(1, 0)) hear(50ms);
  teller.wait(10s);
  EXPECT_EQ(teller.tell(), Rows{});
}

// A machine whose connection is slow is told what is there when it can be told. What has changed since its row stood,
// and is not told yet, makes it no image of one time.
TEST(PageNews, AnImageThatIsOlderThanItsLanesHasNotStood) {
  for (auto moment : {50ms, 100ms}) {  // it has changed; it stands, but for a moment only
    Teller teller(machines_of(2, 1), 1, 0);
    teller.call(1, 0);
    teller.call(1, 1);
    teller.wait(350ms);
    for (int lane : {1, 2}) teller.call(1, lane);
    teller.wait(moment);
    EXPECT_EQ(teller.tell(), (Rows{{1, {false, {0, 1}}}}));
    teller.wait(350ms);
    EXPECT_EQ(teller.tell(), (Rows{{1, {true, {1, 2}}}}));
  }
}

TEST(PageNews, MessagesEndAfterAFewRowsAndGoOnThere) {
  Teller teller(machines_of(2, 300), 300, 0);
  for (int r = 300; r < 600; ++r) teller.call(r, 0);
  teller.wait(350ms);
  int messages = 0;
  size_t rows = 0;
  for (; teller.news.has_more(teller.told); ++messages) {
    std::string body = teller.news.since(teller.told, 0);
    EXPECT_LE(body.size(), longest_message(600));
    EXPECT_LE(body.size(), kRowsInAMessage + 200);
    rows += rows_in(body, 600).size();
  }
  EXPECT_EQ(rows, 300u);
  EXPECT_GT(messages, 3);
}

// Rank 300's first lane has older news than the rows before it in what is to be told.
TEST(PageNews, ALaneIsNotForgottenWhereItsRowComesInALaterMessage) {
  Teller teller(machines_of(2, 300), 300, 0);
  teller.call(300, 0);
  teller.wait(350ms);
  for (int r = 301; r < 600; ++r) teller.call(r, 1);
  teller.wait(350ms);
  teller.call(300, 1);
  teller.wait(350ms);
  std::set<int> lanes;
  while (teller.news.has_more(teller.told)) {
    Rows rows = rows_in(teller.news.since(teller.told, 0), 600);
    if (rows.contains(300)) lanes.insert(rows.at(300).second.begin(), rows.at(300).second.end());
  }
  EXPECT_EQ(lanes, (std::set<int>{0, 1}));
}

// 128 machines of 8 ranks that all wait, for ten seconds: nothing but heartbeats crosses, a bit for each rank and
// second.
TEST(PageNews, AnIdleJobSendsAKilobitASecond) {
  const int machines = 128;
  Teller rank_0(machines_of(machines, 8), 0, 1);
  for (int r = 0; r < 8 * machines; ++r) {
    rank_0.begin(r);
    rank_0.call(r, 0);
  }
  rank_0.wait(2s);
  rank_0.news.look_at_states();
  rank_0.tell();
  size_t rows = 0, beats = 0;
  for (int second = 0; second < 10; ++second) {
    for (int i = 0; i < 10; ++i)
      for (int r = 0; r < 8 * machines; ++r) rank_0.page.row(r).beats.fetch_add(1);
    rank_0.wait(1s);
    beats += rank_0.news.beats().bytes().size();
    for (PageNews::Told told = rank_0.told; rank_0.news.has_more(told);) rows += rank_0.news.since(told, 1).size();
  }
  EXPECT_EQ(rows, 0u);
  EXPECT_EQ(beats, 10u * 1024 / 8);
}

TEST(PageNews, HeartbeatsAreABitForEachRankThatHadOne) {
  Teller teller(machines_of(2, 2), 2, 0);
  for (int r : {0, 3, 3}) teller.page.row(r).beats.fetch_add(1);
  RankBits beats = teller.news.beats();
  for (int r = 0; r < 4; ++r) EXPECT_EQ(beats.get(r), r == 3) << "rank 0 is none of its own";
  EXPECT_FALSE(teller.news.beats().any());
}

// docs/scale.md has the sizes at larger numbers of ranks.
TEST(PageNews, MemoryGrowsWithTheRanksAndNotWithTheMachines) {
  EXPECT_EQ(sizeof(Lane), 256u);
  EXPECT_EQ(sizeof(Row), 64 + Row::kLanes * sizeof(Lane));
  EXPECT_EQ(ControlPage::page_bytes(1024), 2112 + 1024 * sizeof(Row));
  for (int machines : {8, 128}) {
    RankMap map(machines_of(machines, 1024 / machines));
    ControlPage page = make_private_page(1024);
    auto in_use = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    size_t before = in_use();
    auto rank_0 = std::make_unique<PageNews>(page, map, 0);
    size_t mine = size_t(map.local_size(0)) * sizeof(LaneImage) * Row::kLanes;
    EXPECT_LE(in_use() - before, 1024 * 512 + mine * 3 / 2) << machines << " machines";
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
