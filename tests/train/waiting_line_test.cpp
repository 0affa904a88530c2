// What a terminal shows while something is waited for.

#include <shardgrad/train/waiting_line.h>

#include <gmock/gmock.h>

#include <atomic>
#include <sstream>
#include <thread>

namespace shardgrad {
namespace {

using testing::HasSubstr;

// One that so many seconds pass by with each look.
train::Terminal terminal(double seconds_a_look) {
  auto now = std::make_shared<std::atomic<double>>(0.0);
  return {.columns = [] { return 80; }, .seconds = [=] { return *now = *now + seconds_a_look; }};
}

std::string shown_in_a_second(const train::Terminal& terminal) {
  std::ostringstream out;
  {
    train::WaitingLine waiting("reading the data", out, terminal);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return out.str();
}

TEST(WaitingLine, SaysWhatIsWaitedForAndForHowLongAndGoes) {
  std::string shown = shown_in_a_second(terminal(2));
  EXPECT_THAT(shown, testing::StartsWith(std::string(train::kLineBegin) + "reading the data  2 s"));
  EXPECT_THAT(shown, HasSubstr("reading the data  4 s"));
  EXPECT_THAT(shown, testing::EndsWith(train::kLineBegin)) << "what comes next has a line of its own";
}

TEST(WaitingLine, OfWhatIsSoonOverNothingIsShown) { EXPECT_EQ(shown_in_a_second(terminal(0.01)), ""); }

TEST(WaitingLine, WithoutATerminalNothingIsShown) {
  train::Terminal none = terminal(2);
  none.columns = nullptr;
  EXPECT_EQ(shown_in_a_second(none), "");
}

}  // namespace
}  // namespace shardgrad
