#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include <shardgrad/dist/os/command.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;

CommandOutput output_of_shell(const char* script, std::chrono::milliseconds limit = 20s) {
  return output_of({"sh", "-c", script}, limit);
}

TEST(Command, BothOutputsAndTheCodeAreHeard) {
  CommandOutput output = output_of_shell("echo out; echo err >&2; read line && echo $line; exit 3");
  EXPECT_EQ(output.text, "out\nerr\n");
  EXPECT_EQ(output.code, 3);
  EXPECT_TRUE(output.in_time);
}

TEST(Command, OneThatIsNotThereHasTheCodeOfAShell) {
  EXPECT_EQ(output_of({"shardgrad-no-such-program"}, 20s).code, 127);
}

TEST(Command, OneThatHangsIsKilled) {
  auto begin = std::chrono::steady_clock::now();
  CommandOutput output = output_of_shell("echo begun; sleep 1000 & sleep 1000", 300ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_FALSE(output.in_time);
  EXPECT_EQ(output.text, "begun\n");
  EXPECT_EQ(output.code, 128 + 9);
}

TEST(Command, WhatAProgramThatEndedHasLeftBehindIsKilledToo) {
  CommandOutput output = output_of_shell("echo $$; sleep 1000 & exit 0", 300ms);
  EXPECT_FALSE(output.in_time);
  pid_t group = std::stoi(output.text);
  for (int i = 0; i < 1000 && kill(-group, 0) == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_NE(kill(-group, 0), 0);
}

TEST(Command, OneThatClosesItsOutputsAndHangsIsKilledToo) {
  EXPECT_FALSE(output_of_shell("exec >&- 2>&-; sleep 1000", 300ms).in_time);
}

TEST(Command, OfOneThatSaysTooMuchTheFirstIsKept) {
  CommandOutput output = output_of_shell("head -c 1000000 /dev/zero");
  EXPECT_EQ(output.text.size(), size_t(64) << 10);
  EXPECT_EQ(output.code, 0);
}

}  // namespace
}  // namespace shardgrad::dist
