#include <shardgrad/train/text.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shardgrad {
namespace {

TEST(Text, BytesAndSecondsAreReadable) {
  EXPECT_EQ(train::format_bytes(512), "512 B");
  EXPECT_EQ(train::format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(train::format_bytes(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(train::format_seconds(59.4), "59s");
  EXPECT_EQ(train::format_seconds(90), "1m30s");
  EXPECT_EQ(train::format_seconds(7260), "2h01m");
}

TEST(Text, WhatIsNoNumberHasNoSign) {
  for (double sign : {1.0, -1.0}) {
    double none = std::copysign(std::nan(""), sign);
    EXPECT_EQ(train::format_fixed(none, 4), "NaN");
    EXPECT_EQ(train::format_shortest(float(none)), "NaN");
  }
  EXPECT_EQ(train::format_fixed(-std::numeric_limits<double>::infinity(), 4), "-inf");
  EXPECT_EQ(train::format_shortest(0.1F), "0.1");
}

}  // namespace
}  // namespace shardgrad
