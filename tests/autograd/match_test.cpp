#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <shardgrad/autograd/match.h>
#include <shardgrad/core/thread.h>

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

// Ranks that are threads compile and match theirs at once: what the standard library keeps of characters is no race.
TEST(Match, ThreadsHaveTheirOwnExpressions) {
  Expressions shared("test", {R"(shared\b.*)"});
  std::vector<int> right(4);
  {
    std::vector<Thread> threads;
    for (int& mine : right)
      threads.emplace_back([&mine, &shared] {
        for (int i = 0; i < 50; ++i) {
          Expressions own("test", {R"(layers\.\d+\.\w+)", R"(\bhead\b.*)"});
          mine += own.match(0, "layers.3.weight") && !own.match(0, "layers.x.weight") && own.match(1, "head.bias") &&
                  shared.match(0, "shared." + std::to_string(i));
        }
      });
    for (Thread& thread : threads) thread.join();
  }
  EXPECT_EQ(right, std::vector<int>(4, 50));
}

}  // namespace
}  // namespace shardgrad
