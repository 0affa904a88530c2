// Axes: round ticks, whatever the range, and every value in its place.

#include <shardgrad/picture/axis.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace shardgrad::picture {
namespace {

Range range_of(std::initializer_list<double> values) {
  Range range;
  for (double value : values) range.add(value);
  return range;
}

std::string ticks_of(const Axis& axis) {
  std::string text;
  for (const Tick& tick : axis.ticks) text += (text.empty() ? "" : " ") + tick.text;
  return text;
}

TEST(Axis, TicksAreRoundNumbersThatHoldTheRange) {
  Axis axis = linear_axis(range_of({0.31, 2.27}), {100, 0});
  EXPECT_EQ(ticks_of(axis), "0 0.5 1.0 1.5 2.0 2.5");
  EXPECT_EQ(axis.place(0), 100);
  EXPECT_EQ(axis.place(2.5), 0);
  EXPECT_EQ(axis.place(1.25), 50);
  EXPECT_EQ(ticks_of(linear_axis(range_of({-1, 10}), {0, 1})), "-2 0 2 4 6 8 10");
}

TEST(Axis, AnAxisOfStepsEndsWhereTheyDoAndCountsWholeOnes) {
  Axis axis = linear_axis(range_of({3, 17}), {0, 140}, {.whole = true, .between_ticks = false});
  EXPECT_EQ(ticks_of(axis), "5 10 15");
  EXPECT_EQ(axis.place(3), 0);
  EXPECT_EQ(axis.place(17), 140);
  EXPECT_EQ(ticks_of(linear_axis(range_of({0, 2}), {0, 1}, {.whole = true})), "0 1 2");
}

TEST(Axis, BytesAndSecondsAreRoundInTheirMeasure) {
  Axis bytes = linear_axis(range_of({0, 25.5 * 0x1p20}), {0, 300}, {.unit = Unit::bytes, .from_zero = true});
  EXPECT_EQ(ticks_of(bytes) + " " + bytes.unit, "0 5 10 15 20 25 30 MiB");
  EXPECT_EQ(bytes.place(15 * 0x1p20), 150);
  Axis seconds = linear_axis(range_of({0, 0.004}), {0, 1}, {.unit = Unit::seconds});
  EXPECT_EQ(ticks_of(seconds) + " " + seconds.unit, "0 1 2 3 4 ms");
}

TEST(Axis, OneValueAndNoValueHaveAnAxisToo) {
  EXPECT_EQ(ticks_of(linear_axis(Range(), {0, 1})), "0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(ticks_of(linear_axis(range_of({7, 7}), {0, 1}, {.whole = true, .between_ticks = false})), "7");
  Axis axis = linear_axis(range_of({-3e-9}), {0, 100});
  EXPECT_GT(axis.place(-3e-9), 10);
  EXPECT_LT(axis.place(-3e-9), 90);
}

TEST(Axis, EveryRangeOfNumbersHasTicksInOrderAndItsValuesInPlace) {
  const double most = std::numeric_limits<double>::max(), least = std::numeric_limits<double>::denorm_min();
  for (double low : {-most, -1e308, -1e100, -5.0, -1e-9, -least, 0.0, least, 1e-300, 3e-9, 1.0, 1e15, 1e308, most})
    for (double high : {-most, -1e-300, 0.0, least, 1.0, 1e15 + 1, 1e300, most}) {
      if (low > high) continue;
      for (bool between : {false, true}) {
        Axis axis = linear_axis(range_of({low, high}), {0, 100}, {.between_ticks = between});
        SCOPED_TRACE(testing::Message() << low << " to " << high << ", between ticks " << between);
        EXPECT_LE(axis.ticks.size(), 9u);
        for (size_t i = 1; i < axis.ticks.size(); ++i) EXPECT_LT(axis.ticks[i - 1].value, axis.ticks[i].value);
        double hair = 1e-8 * (high / 2 - low / 2);
        EXPECT_LE(axis.low / 2, low / 2 + hair);
        EXPECT_GE(axis.high / 2, high / 2 - hair);
        double at_low = axis.place(low), at_high = axis.place(high);
        EXPECT_TRUE(0 <= at_low && at_low <= at_high && at_high <= 100) << at_low << " " << at_high;
      }
    }
}

TEST(Axis, OnALogarithmicOneEqualFactorsAreEquallyFarApart) {
  Axis axis = log_axis(range_of({0.02, 1.5}), {0, 200});
  EXPECT_EQ(ticks_of(axis), "0.01 0.1 1 10");
  EXPECT_DOUBLE_EQ(axis.place(1) - axis.place(0.1), axis.place(10) - axis.place(1));
  EXPECT_EQ(ticks_of(log_axis(range_of({0.3, 2.2}), {0, 1})), "0.2 0.5 1 2 5") << "finer where there are few decades";
  EXPECT_EQ(ticks_of(log_axis(range_of({1e-300, 1e300}), {0, 1})), "1e-300 1e-200 1e-100 1 1e100 1e200 1e300");
  EXPECT_EQ(ticks_of(log_axis(range_of({1, 1}), {0, 1})), "1 2");
  EXPECT_FALSE(log_axis(Range(), {0, 1}).ticks.empty());
  EXPECT_FALSE(log_axis(range_of({5e-324, 1.7e308}), {0, 1}).ticks.empty());
}

TEST(Axis, ARangeLeavesOutWhatIsNotFinite) {
  Range range = range_of({std::nan(""), 2, std::numeric_limits<double>::infinity(), -1});
  EXPECT_EQ(range.low(), -1);
  EXPECT_EQ(range.high(), 2);
  EXPECT_TRUE(range_of({std::nan("")}).empty());
}

}  // namespace
}  // namespace shardgrad::picture
