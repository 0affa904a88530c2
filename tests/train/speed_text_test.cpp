#include <gtest/gtest.h>

#include <shardgrad/train/cli/speed_text.h>

namespace shardgrad::cli {
namespace {

TEST(SpeedText, ShowsTimeBandwidthAndTheShareOfTheRoof) {
  Speed speed{.shapes = "[4096, 4096]", .calls = 20, .forward = 0.02, .backward = 0.0456, .bytes = 134.2e6};
  speed.copy = 0.01;
  EXPECT_EQ(speed_text({"", "", {speed}}),
            "  speed         with cold caches\n"
            "    f32 [4096, 4096], medians of 20 calls\n"
            "      forward      20.0 ms   134 MB at least, 6.71 GB/s\n"
            "      roof         10.0 ms   a copy of as many bytes, 13.4 GB/s\n"
            "      reached     50 % of the roof\n"
            "      backward     45.6 ms\n");
}

TEST(SpeedText, ArithmeticIsTheRoofWhereItTakesLonger) {
  Speed speed{.shapes = "[1024, 1024] [1024, 1024]", .dtype = DType::bf16, .calls = 7, .forward = 5e-6};
  speed.bytes = 6e6, speed.copy = 1e-6, speed.flops = 2e9, speed.peak = 5e14;
  EXPECT_EQ(speed_text({"", "", {speed}}),
            "  speed         with cold caches\n"
            "    bf16 [1024, 1024] [1024, 1024], medians of 7 calls\n"
            "      forward      5.00 us   6.00 MB at least, 1.20 TB/s; 2.00 GFLOP, 400 TFLOP/s\n"
            "      roof         4.00 us   the library's own product, 500 TFLOP/s\n"
            "      reached     80 % of the roof\n");
  speed.copy = 4.5e-6;
  EXPECT_NE(speed_text({"", "", {speed}}).find("4.50 us   a copy of as many bytes"), std::string::npos);
}

TEST(SpeedText, AReplacedKernelIsComparedWithTheBuiltInOne) {
  Speed speed{.forward = 0.03, .backward = 0.01, .built_in_forward = 0.02, .built_in_backward = 0.04, .copy = 0.01};
  std::string text = speed_text({"", "", {speed}});
  EXPECT_NE(text.find("      built-in     20.0 ms   forward; this one takes 1.50 times as long\n"
                      "      built-in     40.0 ms   backward; this one takes 0.25 times as long\n"),
            std::string::npos)
      << text;
}

TEST(SpeedText, WhatIsNotMeasuredSaysWhyInALine) {
  EXPECT_EQ(speed_text({"the reason", "", {}}), "  speed         not measured: the reason\n");
  EXPECT_EQ(speed_text({"", "it is wrong", {}}), "  large         FAILS: it is wrong\n");
}

}  // namespace
}  // namespace shardgrad::cli
