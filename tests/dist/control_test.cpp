#include <gtest/gtest.h>

#include <shardgrad/dist/control.h>

namespace shardgrad::dist {
namespace {

Place place(uint64_t sequence) {
  Place place;
  place.group = 7;
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
      page.row(r).lanes[lane].group.store(7);
      page.row(r).lanes[lane].place.store(place(scattered ? uint64_t(r + 1) : r == culprit ? 3 : 2));
    }
    waiting.end_job(waiting.divergence(lane));
    EXPECT_TRUE(page.cause().ends_with("Every rank must make the same collective calls in the same order"))
        << page.cause();
    const char* part = scattered ? "-499 elsewhere" : "ranks 0-249, 251-499 in  #2; rank 250 in  #3";
    EXPECT_NE(page.cause().find(part), std::string::npos) << page.cause();
  }
}

}  // namespace
}  // namespace shardgrad::dist
