// Who is taken to wait for each other for ever, where what is known of ranks on other machines is old.

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include <shardgrad/dist/watch/deadlock.h>
#include <shardgrad/dist/watch/page_news.h>
#include <tests/dist/pretended_machine.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;
using Clock = PageNews::Clock;

/// A group's lane of a rank, by the group's number.
Lane& lane_of(const ControlPage& page, int rank, int group) {
  page.row(rank).use(group);
  Lane& lane = page.row(rank).lanes[group];
  lane.group.store(uint64_t(7 + group));
  lane.caller.store(1);
  return lane;
}

/// A rank has called collective `sequence`; is in it.
void call(const ControlPage& page, int rank, int group, uint64_t sequence) {
  lane_of(page, rank, group).called.store(sequence);
}
void enter(const ControlPage& page, int rank, int group, uint64_t sequence) {
  Place place;
  place.group = uint64_t(7 + group);
  place.sequence = sequence;
  lane_of(page, rank, group).place.store(place);
}
/// It has called it, is in it, and waits for it.
void wait_in(const ControlPage& page, int rank, int group, uint64_t sequence) {
  call(page, rank, group, sequence);
  enter(page, rank, group, sequence);
  lane_of(page, rank, group).blocked.store(Blocked{1, sequence}.word());
}

std::vector<int> ranks_of(const std::vector<Stuck>& cycle) {
  std::vector<int> ranks;
  for (const Stuck& stuck : cycle) ranks.push_back(stuck.rank);
  return ranks;
}

/// Rank 0 waits in group 0 before it has called group 1's, rank 1 the other way round.
ControlPage crossed() {
  ControlPage page = make_private_page(2);
  for (int r : {0, 1}) {
    lane_of(page, r, 0);
    lane_of(page, r, 1);
    wait_in(page, r, r, 1);
  }
  return page;
}

TEST(Deadlock, IsFoundByEachOfItsRanks) {
  for (int r : {0, 1}) EXPECT_EQ(ranks_of(find_deadlock(crossed(), r, r)), (std::vector<int>{0, 1}));
}

TEST(Deadlock, IsFoundByARankThatOnlyWaitsForOne) {
  ControlPage page = make_private_page(3);
  for (int r : {0, 1})
    for (int group : {0, 1}) lane_of(page, r, group);
  for (int r : {0, 1}) wait_in(page, r, r, 1);
  lane_of(page, 0, 2);
  wait_in(page, 2, 2, 1);
  EXPECT_EQ(ranks_of(find_deadlock(page, 2, 2)), (std::vector<int>{0, 1}));
}

// However old: what rank 1 has not called it does not call before it has waited.
TEST(Deadlock, IsSeenInAnImageThatStood) {
  ControlPage page = crossed();
  page.row(1).image.store(2);
  EXPECT_EQ(ranks_of(find_deadlock(page, 0, 0)), (std::vector<int>{0, 1}));
}

TEST(Deadlock, IsNotSeenInAnImageThatNeverStoodOrIsBeingWritten) {
  ControlPage page = crossed();
  page.row(1).image.store(3);
  EXPECT_TRUE(find_deadlock(page, 0, 0).empty());
}

// Rank 1 has called group 0's collective and waits in group 1: rank 0 will come there. Of the two lanes only the second
// has arrived.
TEST(Deadlock, LanesOfDifferentTimesAreNoDeadlock) {
  ControlPage page = make_private_page(2);
  for (int group : {0, 1}) lane_of(page, 0, group);
  wait_in(page, 0, 0, 1);
  lane_of(page, 1, 0);
  wait_in(page, 1, 1, 1);
  page.row(1).image.store(1);
  EXPECT_TRUE(find_deadlock(page, 0, 0).empty());
  call(page, 1, 0, 1);
  enter(page, 1, 0, 1);
  page.row(1).image.store(2);
  EXPECT_TRUE(find_deadlock(page, 0, 0).empty());
}

// Its image is from the time when it waited in group 1, which rank 0 has come to since: it is not judged by that.
TEST(Deadlock, ARankThatLooksAsIfItWaitedSinceItsImageIsOldIsNotJudged) {
  ControlPage page = crossed();
  page.row(1).image.store(2);
  call(page, 0, 1, 1);
  lane_of(page, 0, 1).finished.store(1);
  wait_in(page, 0, 0, 1);
  EXPECT_TRUE(find_deadlock(page, 0, 0).empty());
}

// Each of so many ranks waits for the next, in a group of the two. A search that looked at all ranks for each of them,
// or called itself for each, would not end in time, or well.
TEST(Deadlock, ACycleOfThousandsOfRanksIsFound) {
  constexpr int kRanks = 16384;
  ControlPage page = make_private_page(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    Row& row = page.row(r);
    row.use(1);
    for (int lane : {0, 1}) {  // of the pair with the next rank, and with the one before
      row.lanes[lane].group.store(uint64_t(1 + (r + kRanks - lane) % kRanks));
      row.lanes[lane].caller.store(1);
    }
    Place place;
    place.group = uint64_t(1 + r);
    place.sequence = 1;
    row.lanes[0].called.store(1);
    row.lanes[0].place.store(place);
    row.lanes[0].blocked.store(Blocked{1, 1}.word());
  }
  std::vector<Stuck> cycle = find_deadlock(page, 5, 0);
  ASSERT_EQ(cycle.size(), size_t(kRanks));
  for (int r = 0; r < kRanks; ++r) ASSERT_EQ(cycle[size_t(r)].rank, r);
}

/// Three machines with a rank each, which call collectives of three groups and wait for some of them. Their links tell
/// each other what PageNews says, and messages take up to `most` in a time that the test makes.
class ThreeMachines {
 public:
  ThreeMachines(unsigned seed, std::chrono::milliseconds most, bool crossed) : random_(seed), most_(most) {
    for (int k = 0; k < (crossed ? 100 : 250); ++k) {
      int group = int(below(3));
      for (int r : kMembers[group]) programs_[r].push_back(group);
    }
    for (int r = 0; r < 3; ++r)
      for (int group = 0; group < 3; ++group)
        if (is_member(r, group)) lane_of(pages_[r], r, group);
    if (crossed) {  // at the end rank 1 has two groups in another order, and waits for each
      programs_[0].insert(programs_[0].end(), {1, 0});
      programs_[1].insert(programs_[1].end(), {0, 1});
      programs_[2].push_back(0);
    }
    waits_for_all_ = crossed;
  }

  void step() {
    now_ += std::chrono::milliseconds(1 + below(60));
    for (int r = 0; r < 3; ++r)
      if (now_ >= paused_[r] && below(2) == 0) act(r);
    if (now_ - looked_ >= 50ms) {
      looked_ = now_;
      for (PageNews& news : news_) news.look(now_);
      exchange();
    }
    deliver();
  }

  /// The ranks on whose machine a look finds a deadlock.
  std::vector<int> finders() const {
    std::vector<int> ranks;
    for (int r = 0; r < 3; ++r)
      for (int group = 0; group < 3; ++group)
        if (is_member(r, group) && !find_deadlock(pages_[r], r, group).empty()) {
          ranks.push_back(r);
          break;
        }
    return ranks;
  }
  bool is_over() const {
    for (int r = 0; r < 3; ++r)
      if (next_[r] < programs_[r].size()) return false;
    return true;
  }

 private:
  struct Message {
    Clock::time_point comes;
    int from, to;
    std::string body;
  };
  const std::vector<int> kMembers[3] = {{0, 1, 2}, {0, 1}, {1, 2}};

  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }
  bool is_member(int rank, int group) const { return std::ranges::count(kMembers[group], rank) > 0; }
  Lane& mine(int rank, int group) { return pages_[rank].row(rank).lanes[group]; }
  uint64_t entered(int rank, int group) {
    Place place;
    return mine(rank, group).place.load(place) ? place.sequence : 0;
  }

  // One thing that the rank does: its streams go on, and its program, unless it waits.
  void act(int rank) {
    for (int group = 0; group < 3; ++group)
      if (is_member(rank, group)) go_on(rank, group);
    for (int group = 0; group < 3; ++group) {
      if (!is_member(rank, group)) continue;
      Blocked blocked = Blocked::from(mine(rank, group).blocked.load());
      if (blocked.thread == 0) continue;
      if (mine(rank, group).finished.load() < blocked.sequence) return;
      mine(rank, group).blocked.store(0);
    }
    if (next_[rank] == programs_[rank].size()) return;
    if (below(20) == 0) paused_[rank] = now_ + std::chrono::milliseconds(below(3000));
    int group = programs_[rank][next_[rank]++];
    uint64_t sequence = mine(rank, group).called.load() + 1;
    mine(rank, group).called.store(sequence);
    if (waits_for_all_ || below(3) == 0) mine(rank, group).blocked.store(Blocked{1, sequence}.word());
  }

  // A collective ends on a rank once all members are in it, and the next one that has been called begins.
  void go_on(int rank, int group) {
    Lane& lane = mine(rank, group);
    uint64_t in = entered(rank, group);
    if (in > lane.finished.load()) {
      bool all = std::ranges::all_of(kMembers[group], [&](int r) { return entered(r, group) >= in; });
      if (all && below(2) == 0) lane.finished.store(in);
    } else if (lane.called.load() > in) {
      enter(pages_[rank], rank, group, in + 1);
    }
  }

  void exchange() {
    for (int to = 0; to < 3; ++to)
      for (int from = 0; from < 3; ++from) {
        if ((from == 0) == (to == 0)) continue;
        while (news_[from].has_more(told_[from][to])) post(from, to, news_[from].since(told_[from][to], to));
      }
  }
  void post(int from, int to, std::string body) {
    Clock::time_point& last = last_[from][to];  // one connection: nothing overtakes
    last = std::max(last, now_ + std::chrono::milliseconds(below(size_t(most_.count()) + 1)));
    on_the_way_.push_back({last, from, to, std::move(body)});
  }
  void deliver() {
    for (size_t i = 0; i < on_the_way_.size();) {
      if (on_the_way_[i].comes > now_) {
        ++i;
        continue;
      }
      Message message = std::move(on_the_way_[i]);
      on_the_way_.erase(on_the_way_.begin() + ptrdiff_t(i));
      for (size_t at = 0; at < message.body.size();)
        news_[message.to].heard(take_row(message.body, at, pages_[message.to], [](int) { return true; }), now_);
    }
  }

  std::mt19937 random_;
  std::chrono::milliseconds most_;
  bool waits_for_all_ = false;
  Clock::time_point now_{1h}, looked_{};
  ControlPage pages_[3] = {make_private_page(3), make_private_page(3), make_private_page(3)};
  RankMap map_{std::vector<std::string>{"a", "b", "c"}};
  PageNews news_[3] = {{pages_[0], map_, 0}, {pages_[1], map_, 1}, {pages_[2], map_, 2}};
  std::vector<int> programs_[3];
  size_t next_[3] = {};
  PageNews::Told told_[3][3] = {};
  Clock::time_point last_[3][3] = {}, paused_[3] = {};
  std::deque<Message> on_the_way_;
};

// Programs that end: no look at any page may find a deadlock in what has come of the others.
TEST(Deadlock, IsNeverSeenInRowsThatComeLate) {
  unsigned seed = 0;
  for (auto most : {0ms, 300ms, 1000ms, 5000ms}) {
    ThreeMachines machines(seed++, most, false);
    for (int i = 0; i < 20000 && !machines.is_over(); ++i) {
      machines.step();
      ASSERT_EQ(machines.finders(), std::vector<int>()) << "up to " << most.count() << " ms late";
    }
    EXPECT_TRUE(machines.is_over());
  }
}

TEST(Deadlock, IsSeenByItsRanksThoughRowsComeLate) {
  for (auto most : {0ms, 300ms, 5000ms}) {
    ThreeMachines machines(1, most, true);
    for (int i = 0; i < 20000 && machines.finders().size() < 2; ++i) machines.step();
    for (int i = 0; i < 1000; ++i) machines.step();
    std::vector<int> finders = machines.finders();
    EXPECT_GE(finders.size(), 2u) << most.count();
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
