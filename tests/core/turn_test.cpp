// One thread at a time: the one that is inside enters again as often as it likes, a second one is told what to do.

#include <shardgrad/core/turn.h>

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace shardgrad {
namespace {

// What entering from another thread, and leaving at once, throws.
std::string message_elsewhere(Turn& turn) {
  std::string message;
  std::thread([&] {
    try {
      Turn::Hold inside(turn, "one at a ", "time");
      EXPECT_TRUE(turn.is_mine());
    } catch (const Error& e) {
      message = e.what();
      EXPECT_EQ(e.kind(), ErrorKind::input);
      EXPECT_FALSE(turn.is_mine());
    }
  }).join();
  return message;
}

TEST(Turn, IsOfTheThreadThatIsInsideUntilItHasLeftAsOftenAsItHasEntered) {
  Turn turn;
  EXPECT_FALSE(turn.is_mine());
  {
    Turn::Hold first(turn, "one at a ", "time");
    { Turn::Hold again(turn, "one at a ", "time"); }
    EXPECT_TRUE(turn.is_mine());
    EXPECT_EQ(message_elsewhere(turn), "one at a time");
    EXPECT_TRUE(turn.is_mine()) << "who was refused has not left";
  }
  EXPECT_FALSE(turn.is_mine());
  EXPECT_EQ(message_elsewhere(turn), "");
}

TEST(Turn, ThatIsKeptEndsWhereItIsLeft) {
  Turn turn;
  Turn::Hold(turn, "one at a ", "time").keep();
  EXPECT_EQ(message_elsewhere(turn), "one at a time");
  { Turn::Leave leave(turn); }
  EXPECT_EQ(message_elsewhere(turn), "");
}

}  // namespace
}  // namespace shardgrad
