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

}  // namespace
}  // namespace shardgrad::dist
