#include <gtest/gtest.h>

#include <csignal>

#include <shardgrad/dist/watch/signals.h>

namespace shardgrad::dist {
namespace {

bool is(int number, void (*handler)(int)) {
  struct sigaction now {};
  sigaction(number, nullptr, &now);
  return now.sa_handler == handler;
}

// A program goes on after its job: Ctrl-C, and the end of its terminal, do then what they did before.
TEST(Signals, AreAsTheyWereOnceItIsGone) {
  for (auto before : {SIG_DFL, SIG_IGN})
    for (bool ignores : {true, false}) {
      for (int number : {SIGHUP, SIGTERM, SIGINT}) std::signal(number, before);
      {
        Signals signals(false);
        ignores ? signals.ignore_hangups() : signals.take_hangups();
        EXPECT_EQ(is(SIGHUP, SIG_IGN), ignores || before == SIG_IGN);
        EXPECT_FALSE(is(SIGTERM, before));
      }
      for (int number : {SIGHUP, SIGTERM, SIGINT}) EXPECT_TRUE(is(number, before)) << number;
    }
  for (int number : {SIGHUP, SIGTERM, SIGINT}) std::signal(number, SIG_DFL);
}

}  // namespace
}  // namespace shardgrad::dist
