// What a thread sets for its own operations, and what a rank keeps for all its threads.

#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <shardgrad/autograd/ops.h>

namespace shardgrad {
namespace {

TEST(ThreadSettings, NoGradAndAutocastInAHelperThreadChangeNothingForOthers) {
  Context context;
  NoGrad no_grad;
  Autocast precision(DType::bf16);
  std::thread([&] {
    ContextScope scope(context);
    EXPECT_TRUE(grad_enabled());
    EXPECT_EQ(autocast_dtype(), std::nullopt);
    GradMode on(true);
    Autocast other(DType::f16);
    std::thread([&] {
      ContextScope scope(context);
      NoGrad no_grad;
    }).join();
    EXPECT_TRUE(grad_enabled());
  }).join();
  EXPECT_FALSE(grad_enabled());
  EXPECT_EQ(autocast_dtype(), DType::bf16);
}

TEST(ThreadSettings, GradModeIsAnotherContextsOwn) {
  Context context;
  NoGrad no_grad;
  {
    Context inner;
    EXPECT_TRUE(grad_enabled());
    auto off = std::make_unique<GradMode>(false), on = std::make_unique<GradMode>(true);
    off.reset();
    EXPECT_TRUE(grad_enabled()) << "the scope that is left counts";
    ContextScope back(context);
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_FALSE(grad_enabled());
}

TEST(ThreadSettings, ARanksThreadsHaveOneProgress) {
  Context context;
  progress() = {.step = 3, .first_sample = 5};
  std::thread([&] {
    ContextScope scope(context);
    EXPECT_EQ(progress().step, 3u);
    Context other;
    EXPECT_EQ(progress().step, 0u);
  }).join();
  EXPECT_EQ(progress().first_sample, 5);
}

}  // namespace
}  // namespace shardgrad
