#include <shardgrad/train/terminal.h>

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <climits>

namespace shardgrad {
namespace {

using train::fitted;
using train::terminal_columns;

TEST(Terminal, IsAsWideAsItsWindowIsNow) {
  int controller, terminal;
  winsize window{.ws_row = 24, .ws_col = 60};
  ASSERT_EQ(openpty(&controller, &terminal, nullptr, nullptr, &window), 0);
  EXPECT_EQ(terminal_columns(terminal, "100"), 60);
  window.ws_col = 43;
  ASSERT_EQ(ioctl(controller, TIOCSWINSZ, &window), 0);
  EXPECT_EQ(terminal_columns(terminal, nullptr), 43);
  window.ws_col = 0;  // a serial line
  ASSERT_EQ(ioctl(controller, TIOCSWINSZ, &window), 0);
  EXPECT_EQ(terminal_columns(terminal, "100"), 100);
  close(terminal);
  close(controller);
}

TEST(Terminal, WithoutAWindowTheEnvironmentSaysTheWidthAndElseItIs80) {
  EXPECT_EQ(terminal_columns(-1, "132"), 132);
  for (const char* none : {"", "wide", "0", "-5"}) EXPECT_EQ(terminal_columns(-1, none), 80) << none;
  EXPECT_EQ(terminal_columns(-1, nullptr), 80);
}

TEST(Terminal, FieldsOfLeastWorthGoFirstAndNoneIsCut) {
  EXPECT_EQ(fitted({{"aa", 3}, {"bb", 1}, {"cc", 2}}, INT_MAX), "aa  bb  cc");
  EXPECT_EQ(fitted({{"aa", 3}, {"bb", 1}, {"cc", 2}}, 11), "aa  bb  cc");
  EXPECT_EQ(fitted({{"aa", 3}, {"bb", 1}, {"cc", 2}}, 10), "aa  cc") << "the last column stays free";
  EXPECT_EQ(fitted({{"aa", 3}, {"bb", 1}, {"cc", 2}}, 6), "aa");
  EXPECT_EQ(fitted({{"aa", 3}, {"bbbbbb", 2}, {"cc", 1}}, 9), "aa  cc") << "a small one where a large one does not fit";
  EXPECT_EQ(fitted({{"aa", 1}, {"bb", 1}}, 5), "bb");
  EXPECT_EQ(fitted({{"aa", 3}, {"bb", 1}, {"cc", 2}}, 2), "");
  EXPECT_EQ(fitted({{"größe", 1}}, 6), "größe") << "letters count, not bytes";
}

}  // namespace
}  // namespace shardgrad
