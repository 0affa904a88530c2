#include <gtest/gtest.h>

#include <shardgrad/train/batch_arithmetic.h>

namespace shardgrad {
namespace {

using train::batch_arithmetic;

TEST(BatchArithmetic, SaysHowABatchFallsIntoParts) {
  EXPECT_EQ(batch_arithmetic(256, 4, 2, 59904),
            "batch 256 = 4 ranks · 64, in 2 micro-batches of 32; 234 steps an epoch");
  EXPECT_EQ(batch_arithmetic(256, 1, 1, 60000), "batch 256 = 1 rank · 256; 235 steps an epoch, the last of 96");
  EXPECT_EQ(batch_arithmetic(256, 2, 1, 100), "batch 256 = 2 ranks · 128; 1 step an epoch, of 100");
}

TEST(BatchArithmetic, NamesTheNearestBatchesOfEvenParts) {
  EXPECT_EQ(batch_arithmetic(256, 3, 1, 256),
            "batch 256 = 3 ranks · 85 or 86; 1 step an epoch (every part the same: 255, 258)");
  EXPECT_EQ(batch_arithmetic(8, 3, 2, 16),
            "batch 8 = 3 ranks · 2 or 3, in 2 micro-batches of 1 or 2; 2 steps an epoch (every part the same: 6, 12)");
  EXPECT_EQ(batch_arithmetic(3, 4, 1, 6), "batch 3 = 4 ranks · 0 or 1; 2 steps an epoch (every part the same: 4)");
}

}  // namespace
}  // namespace shardgrad
