// The memory and streams of captured steps (core/step_graph.h): what a step works with stays as long as it is called,
// and no longer.

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include <unistd.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/backend.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/core/step_graph.h>

#include "tests/sim/captured_training.h"

namespace shardgrad {
namespace {

using test::refusal;

constexpr int64_t kMany = int64_t(1) << 20;

// Calls it until it is captured, and once more.
void capture(StepGraph& step) {
  for (int i = 0; i < 4; ++i) step();
  ASSERT_TRUE(step.is_captured());
}

TEST(MemoryOfSteps, OfAGraphThatIsGoneStaysWhileAnotherOneUsesIt) {
  Context context({.device = kAcc});
  Tensor made, sums = zeros({kMany});
  std::optional<StepGraph> makes;
  makes.emplace([&] { return made = full({kMany}, 1) * 1; });
  capture(*makes);
  StepGraph uses([&] {
    copy_into(sums, sums + made);
    return sums;
  });
  capture(uses);
  makes.reset();
  made = {};
  Tensor other = full({kMany}, 7) * 1;  // which would be where that was
  uses();
  EXPECT_EQ(sums.to_vector<float>(), std::vector<float>(kMany, 5));
  EXPECT_EQ(other.to_vector<float>(), std::vector<float>(kMany, 7));
}

// Bytes of this process that are in memory.
size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "r"), std::fclose);
  EXPECT_EQ(std::fscanf(file.get(), "%zu %zu", &all, &resident), 2);
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

TEST(MemoryOfSteps, OfAResultThatOutlivesItsGraphIsGivenBack) {
  Context context({.device = kAcc});
  constexpr int64_t kLarge = 64 * kMany / 4;  // 64 MiB
  size_t before = resident_bytes();
  for (int i = 0; i < 6; ++i) {
    Tensor result;
    {
      StepGraph step([] { return full({kLarge}, 1) * 2; });
      capture(step);
      result = step();
    }
    EXPECT_EQ(sum(result).item(), 2.0 * double(kLarge));
  }
  EXPECT_LT(resident_bytes(), before + (size_t(300) << 20)) << "six are of 384 MiB";
  EXPECT_EQ(context.ledger().current(Category::step_graph), 0);
}

TEST(MemoryOfSteps, ThatIsHeldBackIsInTheLedger) {
  Context context({.device = kAcc});
  const Ledger& ledger = context.ledger();
  constexpr int64_t kBytes = kMany * int64_t(sizeof(float));
  Tensor big = zeros({kMany}), made;
  {
    StepGraph step([&] {
      made = big * 2;
      return Tensor();
    });
    capture(step);
    int64_t all = ledger.current(), held = ledger.current(Category::step_graph);
    big = {};
    EXPECT_EQ(ledger.current(Category::step_graph), held + kBytes) << "what the step has found";
    made = {};
    EXPECT_EQ(ledger.current(Category::step_graph), held + 2 * kBytes) << "what it has made";
    EXPECT_EQ(ledger.current(), all);
  }
  EXPECT_EQ(ledger.current(Category::step_graph), 0);
}

TEST(MemoryOfSteps, OfAnotherDeviceMayGoWhileOneIsCaptured) {
  Context context({.device = kAcc});
  Tensor x = full({8}, 1), elsewhere = full({kMany}, 1, kSim);
  StepGraph step([&] {
    elsewhere = {};
    return x * 2;
  });
  capture(step);
  EXPECT_EQ(step().to_vector<float>(), std::vector<float>(8, 2));
}

struct StreamsOfSteps : testing::Test {
  Context context{{.device = kAcc}};
  Stream& compute = context.backend(kAcc).compute();
  std::unique_ptr<Stream> beside = context.backend(kAcc).make_stream("beside");
  Tensor x = full({8}, 1);
};

// Else its replays would not wait.
TEST_F(StreamsOfSteps, AWaitForWorkOfNoStepIsRefused) {
  StepGraph step([&] {
    compute.wait(beside->record());
    return x * 2;
  });
  std::string why = refusal([&] { capture(step); });
  EXPECT_NE(why.find("a wait of stream acc/compute for work that is none of the step's cannot be part of it"),
            std::string::npos)
      << why;
}

TEST_F(StreamsOfSteps, AStreamThatIsGoneIsToldByName) {
  Tensor copy = zeros({8});
  StepGraph step([&] {
    beside->wait(compute.record());
    context.backend(kAcc).copy(*beside, copy.out().data, x.in().data, x.bytes());
    compute.wait(beside->record());
    return copy * 2;
  });
  capture(step);
  beside.reset();
  EXPECT_EQ(refusal([&] { step(); }),
            "StepGraph: stream beside, which the captured step uses, is gone; keep it as long as the step is called");
}

TEST_F(StreamsOfSteps, OneThatGoesInTheStepIsToldByName) {
  StepGraph step([&] {
    std::unique_ptr<Stream> mine = context.backend(kAcc).make_stream("mine");
    mine->wait(compute.record());
    return x * 2;
  });
  EXPECT_NE(refusal([&] { capture(step); }).find("stream mine, which the captured step uses, is gone"),
            std::string::npos);
}

TEST_F(StreamsOfSteps, AStepOfAnotherContextIsRefused) {
  StepGraph step([&] { return x * 2; });
  capture(step);
  std::string why;
  std::thread([&] {
    Context other({.device = kAcc});
    why = refusal([&] { step(); });
  }).join();
  EXPECT_EQ(why, "StepGraph: it was made in another context, whose device has its step; make one here");
}

}  // namespace
}  // namespace shardgrad
