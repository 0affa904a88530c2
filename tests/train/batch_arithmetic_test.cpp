#include <gtest/gtest.h>

#include <shardgrad/train/batch_arithmetic.h>

namespace shardgrad {
namespace {

using train::batch_arithmetic;

TEST(BatchArithmetic, SaysHowABatchFallsIntoParts) {
  EXPECT_EQ(batch_arithmetic(256, 4, 2, 0, 59904),
            "batch 256 = 4 ranks · 64, in 2 micro-batches of 32; 234 steps an epoch");
  EXPECT_EQ(batch_arithmetic(256, 1, 1, 0, 60000), "batch 256 = 1 rank · 256; 235 steps an epoch, the last of 96");
  EXPECT_EQ(batch_arithmetic(256, 2, 1, 0, 100), "batch 256 = 2 ranks · 128; 1 step an epoch, of 100");
}

TEST(BatchArithmetic, SaysWhichGrainsARankHas) {
  EXPECT_EQ(batch_arithmetic(256, 4, 1, 16, 1024),
            "batch 256 = 16 grains · 16, 4 on each of 4 ranks; 4 steps an epoch");
  EXPECT_EQ(batch_arithmetic(20, 1, 1, 8, 20),
            "batch 20 = 8 grains · 2 or 3, 8 on 1 rank; 1 step an epoch (every part the same: 16, 24)");
}

TEST(BatchArithmetic, NamesTheNearestBatchesOfEvenParts) {
  EXPECT_EQ(batch_arithmetic(256, 3, 1, 0, 256),
            "batch 256 = 3 ranks · 85 or 86; 1 step an epoch (every part the same: 255, 258)");
  EXPECT_EQ(batch_arithmetic(8, 3, 2, 0, 16),
            "batch 8 = 3 ranks · 2 or 3, in 2 micro-batches of 1 or 2; 2 steps an epoch (every part the same: 6, 12)");
  EXPECT_EQ(batch_arithmetic(3, 4, 1, 0, 6), "batch 3 = 4 ranks · 0 or 1; 2 steps an epoch (every part the same: 4)");
}

}  // namespace
}  // namespace shardgrad
