// What a Ticker promises its owner: calls until it goes, none afterwards, and no wait for the next one.

#include <shardgrad/train/ticker.h>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace shardgrad {
namespace {

using train::Ticker;
using namespace std::chrono_literals;

TEST(Ticker, CallsAgainAndAgainUntilItGoes) {
  std::atomic<int> calls = 0;
  {
    Ticker ticker(1ms, [&] { ++calls; });
    while (calls < 3) std::this_thread::yield();
  }
  int after = calls;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(calls, after);
}

TEST(Ticker, ACallIsOverWhenItGoes) {
  std::atomic<bool> under_way = false;
  std::atomic<int> calls = 0;
  {
    Ticker ticker(1ms, [&] {
      under_way = true;
      ++calls;
      std::this_thread::sleep_for(20ms);
      under_way = false;
    });
    while (calls == 0) std::this_thread::yield();
  }
  EXPECT_FALSE(under_way);
}

TEST(Ticker, GoesAtOnceHoweverLongItsPeriod) {
  auto begin = std::chrono::steady_clock::now();
  {
    Ticker ticker(1h, [] { ADD_FAILURE() << "an hour has not passed"; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

}  // namespace
}  // namespace shardgrad
