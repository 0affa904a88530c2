#include <gtest/gtest.h>

#include <shardgrad/autograd/match.h>

namespace shardgrad {
namespace {

TEST(Match, PatternsMatchWholeNames) {
  EXPECT_TRUE(matches("*.bias", "layers.0.bias"));
  EXPECT_FALSE(matches("*.bias", "layers.0.bias2"));
  EXPECT_FALSE(matches("*.bias", "bias"));
  EXPECT_TRUE(matches("bias", "bias"));
  EXPECT_TRUE(matches("layers.?.weight", "layers.3.weight"));
  EXPECT_FALSE(matches("layers.?.weight", "layers.13.weight"));
  EXPECT_TRUE(matches("*norm*", "layers.0.norm.weight"));
  EXPECT_TRUE(matches("*a*b", "aabab"));
  EXPECT_FALSE(matches("*a*b", "aaba"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_FALSE(matches("", "a"));
}

}  // namespace
}  // namespace shardgrad
