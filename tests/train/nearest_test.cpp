// Words that were meant for others.

#include <shardgrad/train/nearest.h>

#include <gtest/gtest.h>

#include <vector>

namespace shardgrad {
namespace {

const std::vector<std::string> kCommands{"train", "launch", "plan", "certify"};

TEST(Nearest, IsFewSlipsOfThePenAway) {
  for (const char* word : {"train", "trian", "tran", "trainn", "trein", "rtain"})
    EXPECT_EQ(train::nearest(word, kCommands), "train") << word;
  EXPECT_EQ(train::nearest("lanuhc", kCommands), "launch");
}

TEST(Nearest, BeginsAsItOrIsItsBeginning) {
  EXPECT_EQ(train::nearest("cert", kCommands), "certify");
  EXPECT_EQ(train::nearest("training", kCommands), "train");
}

TEST(Nearest, IsNoneForOtherWords) {
  for (const char* word : {"run", "test", "t", "", "configs/fashion_mnist.json"})
    EXPECT_EQ(train::nearest(word, kCommands), "") << word;
}

TEST(Nearest, TheLeastDistanceCounts) {
  EXPECT_EQ(train::distance("seed", "seed"), 0u);
  EXPECT_EQ(train::distance("sede", "seed"), 1u) << "exchanged";
  EXPECT_EQ(train::nearest("betas", std::vector<std::string>{"beta", "betas"}), "betas");
}

}  // namespace
}  // namespace shardgrad
