#include <gtest/gtest.h>

#include <shardgrad/dist/watch/control.h>

namespace shardgrad::dist {
namespace {

Place place(uint64_t sequence, uint64_t group = 7) {
  Place place;
  place.group = group;
  place.sequence = sequence;
  return place;
}

// On a GPU a call is done a moment before its rank says so.
TEST(Control, ARankThatHasFinishedIsMissedOnlyInCallsItDidNotMake) {
  Context context;
  ControlPage page = make_private_page(2);
  Control waiting(page, 0), finished(page, 1);
  int lane = waiting.open_lane(7, {0, 1}), other = finished.open_lane(7, {0, 1});
  waiting.enter(lane, place(2));
  finished.enter(other, place(1));
  finished.call(other, 2);
  finished.finish();
  LaneView view = waiting.look(lane);
  EXPECT_TRUE(view.waiting);
  EXPECT_EQ(view.late, std::vector<int>{1});
  EXPECT_FALSE(view.diverged);

  finished.call(other, 1);
  EXPECT_TRUE(waiting.look(lane).diverged);
}

TEST(Control, AMemberThatHasLeftIsMissedAtOnceUnlessAnExceptionMadeIt) {
  Context context;
  ControlPage page = make_private_page(2);
  Control waiting(page, 0), other(page, 1);
  int lane = waiting.open_lane(7, {0, 1});
  waiting.enter(lane, place(1));
  for (bool by_exception : {false, true}) {
    int theirs = other.open_lane(7, {0, 1});
    EXPECT_FALSE(waiting.look(lane).diverged);
    other.close_lane(theirs, by_exception ? Closed::by_exception : Closed::in_order);
    EXPECT_EQ(waiting.look(lane).diverged, !by_exception);
    EXPECT_EQ(waiting.look(lane).left, by_exception);
    page.row(1).lanes[theirs].group.store(0);
  }
}

// Each rank of 500 in a place of its own, or one apart from all others: the sentence fits on the page, remedy and all.
TEST(Control, ASentenceOnManyRanksIsNotCutOff) {
  Context context;
  const int ranks = 500, culprit = 250;
  std::vector<int> all(ranks);
  for (int r = 0; r < ranks; ++r) all[size_t(r)] = r;
  for (bool scattered : {false, true}) {
    ControlPage page = make_private_page(ranks);
    Control waiting(page, 0);
    int lane = waiting.open_lane(7, all);
    for (int r = 0; r < ranks; ++r) {
      page.row(r).use(lane);
      page.row(r).lanes[lane].group.store(7);
      page.row(r).lanes[lane].place.store(place(scattered ? uint64_t(r + 1) : r == culprit ? 3 : 2));
    }
    waiting.end_job(waiting.divergence(lane));
    EXPECT_TRUE(page.cause().ends_with("Every rank must make the same collective calls in the same order"))
        << page.cause();
    const char* part = scattered ? "-499 elsewhere" : "ranks 0-249 and 251-499 in  #2; rank 250 in  #3";
    EXPECT_NE(page.cause().find(part), std::string::npos) << page.cause();
  }
}

// Two hundred places with three ranks each, and one with a rank alone, the last: that one is told.
TEST(Control, ASentenceThatIsTooLongTellsWhereFewAre) {
  Context context;
  const int ranks = 601;
  std::vector<int> all(ranks);
  ControlPage page = make_private_page(ranks);
  Control waiting(page, 0);
  for (int r = 0; r < ranks; ++r) all[size_t(r)] = r;
  int lane = waiting.open_lane(7, all);
  for (int r = 0; r < ranks; ++r) {
    page.row(r).use(lane);
    page.row(r).lanes[lane].group.store(7);
    page.row(r).lanes[lane].place.store(place(uint64_t(1 + r / 3)));
  }
  waiting.end_job(waiting.divergence(lane));
  EXPECT_NE(page.cause().find("rank 600 in  #201"), std::string::npos) << page.cause();
  EXPECT_NE(page.cause().find(" elsewhere. Every rank must make"), std::string::npos) << page.cause();
}

TEST(Control, ADeadlockOfManyRanksNamesThemAll) {
  Context context;
  ControlPage page = make_private_page(500);
  Control control(page, 0);
  std::vector<Stuck> cycle;
  for (int r = 0; r < 500; ++r) cycle.push_back({r, 0, place(1, uint64_t(7 + r))});
  control.end_job(control.deadlock(cycle));
  EXPECT_NE(page.cause().find("; and so on through ranks "), std::string::npos) << page.cause();
  EXPECT_TRUE(page.cause().ends_with("-499. Every rank must make the calls of all its groups in the same order"))
      << page.cause();
}

TEST(ControlPage, ACauseThatIsTooLongIsCutBetweenCharactersAndShowsIt) {
  for (int shift : {0, 1, 2}) {
    ControlPage page = make_private_page(1);
    std::string text = "rank 3 failed: " + std::string(size_t(shift), 'x');
    while (text.size() < 2 * Header::kTextBytes) text += "€";
    page.claim_cause(0, 4, text);
    std::string cause = page.cause();
    EXPECT_LT(cause.size(), Header::kTextBytes);
    EXPECT_GT(cause.size(), Header::kTextBytes - 8);
    EXPECT_TRUE(cause.starts_with("rank 3 failed: ") && cause.ends_with("€ …")) << cause.substr(cause.size() - 10);
  }
}

TEST(ExitCode, OfARunWithoutMemoryIsItsOwn) {
  EXPECT_EQ(exit_code(std::make_exception_ptr(OutOfMemory("out of memory: 8 bytes")), 2), 5);
  EXPECT_EQ(exit_code(std::make_exception_ptr(std::bad_alloc()), 1), 5);
  EXPECT_EQ(exit_code(std::make_exception_ptr(Error(ErrorKind::input, "label 11")), 2), 2);
}

TEST(Control, ALaneThatALaterGroupUsesIsAsNew) {
  Context context;
  ControlPage page = make_private_page(2);
  Control waiting(page, 0), late(page, 1);
  for (int i = 0; i < Row::kLanes; ++i)
    for (Control* control : {&waiting, &late})
      control->close_lane(control->open_lane(uint64_t(100 + i), {0, 1}), Closed::in_order);
  int lane = waiting.open_lane(7, {0, 1});
  late.open_lane(7, {0, 1});
  waiting.enter(lane, place(1));
  LaneView view = waiting.look(lane);
  EXPECT_EQ(view.late, std::vector<int>{1});
  EXPECT_FALSE(view.diverged || view.left) << "it is late, and has not left";
}

// Rank 0 waits in group 7 before it calls group 8's barrier, rank 1 the other way round.
std::vector<Stuck> deadlock_of(const Place& rank_0_in_group_7) {
  Context context;
  ControlPage page = make_private_page(2);
  Control first(page, 0), second(page, 1);
  int seven = first.open_lane(7, {0, 1}), eight = second.open_lane(8, {0, 1});
  first.open_lane(8, {0, 1});
  second.open_lane(7, {0, 1});
  first.call(seven, 1);
  second.call(eight, 1);
  first.enter(seven, rank_0_in_group_7);
  second.enter(eight, place(1, 8));
  Control::Waiting there(first, seven, 1), here(second, eight, 1);
  return find_deadlock(page, 0, seven);
}

TEST(Deadlock, ABroadcastIsNotCountedForItsRootMayGoOnAlone) {
  Place broadcast = place(1);
  broadcast.root = 0;
  EXPECT_EQ(deadlock_of(place(1)).size(), 2u);
  EXPECT_TRUE(deadlock_of(broadcast).empty());
}

}  // namespace
}  // namespace shardgrad::dist
