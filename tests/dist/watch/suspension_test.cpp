// The time in which a process stood still is left out of rates, and never more than that.

#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/dist/watch/suspension.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;

// A monitor that beats every 100 ms, and takes 2 s without a beat for a pause. At 0.0, 0.1 and 0.2 s it is awake.
struct Beating {
  Beating() {
    for (auto at : {0ms, 100ms, 200ms}) EXPECT_FALSE(beat(at));
  }
  bool beat(std::chrono::milliseconds at) { return suspension.note_beat(begin + at, 100ms, 2000ms); }
  double at(std::chrono::milliseconds time) { return suspension.seconds(begin + time); }
  Suspension::Clock::time_point begin = Suspension::Clock::now();
  Suspension suspension;
};

TEST(Suspension, IsNothingWhileBeatsComeInTimeOrALittleLate) {
  Beating b;
  EXPECT_FALSE(b.beat(2200ms));
  EXPECT_EQ(b.at(4000ms), 0);
}

TEST(Suspension, IsTheGapWithoutTheBeatInIt) {
  Beating b;
  EXPECT_TRUE(b.beat(9200ms));
  EXPECT_FALSE(b.beat(9300ms));
  EXPECT_DOUBLE_EQ(b.at(9300ms), 8.9);
  EXPECT_TRUE(b.beat(12300ms));
  EXPECT_DOUBLE_EQ(b.at(12300ms), 8.9 + 2.9);
}

TEST(Suspension, IsKnownBeforeTheMonitorHasNoticed) {
  Beating b;
  EXPECT_DOUBLE_EQ(b.at(9200ms), 8.9);
}

// Stopped in the middle of a step, at 0.25 s, until 9.2 s. The step ends before the monitor is awake, the next one
// after.
TEST(Suspension, AClockWithoutItNeverGoesBack) {
  Beating b;
  auto running = [&](std::chrono::milliseconds time) { return time.count() - std::llround(b.at(time) * 1000); };
  auto before = running(250ms), after = running(9201ms), later = running(9202ms);
  b.beat(9203ms);
  EXPECT_LE(before, after);
  EXPECT_LE(after, later);
  EXPECT_LE(later, running(9203ms));
  EXPECT_LE(running(9203ms), running(9210ms));
  EXPECT_LT(running(9210ms), 500);
}

TEST(Suspension, OfWhatHasNoMonitorIsNothing) { EXPECT_EQ(Suspension().seconds(), 0); }

}  // namespace
}  // namespace shardgrad::dist
