// A thread's context, and what it sets for its own work.

#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

constexpr Tag kActivation{Category::activation, 0}, kData{Category::data, 0};

TEST(ThreadSettings, AHelperThreadChangesNothingForOthers) {
  Context context;
  NoGrad no_grad;
  TagScope data(Category::data);
  Autocast precision(DType::bf16);
  std::thread([&] {
    ContextScope scope(context);
    EXPECT_TRUE(context.grad_enabled());
    EXPECT_EQ(context.autocast(), std::nullopt);
    EXPECT_EQ(context.tag(), kActivation);
    GradMode on(true);
    Autocast other(DType::f16);
    TagScope workspace(Category::workspace);
    std::thread([&] {
      ContextScope scope(context);
      NoGrad no_grad;
    }).join();
    EXPECT_TRUE(context.grad_enabled());
  }).join();
  EXPECT_FALSE(context.grad_enabled());
  EXPECT_EQ(context.autocast(), DType::bf16);
  EXPECT_EQ(context.tag(), kData);
}

TEST(ThreadSettings, AnotherContextOfTheSameThreadHasItsOwn) {
  Context context;
  NoGrad no_grad;
  {
    Context inner;
    EXPECT_TRUE(inner.grad_enabled());
    TagScope data(Category::data);
    auto off = std::make_unique<GradMode>(false), on = std::make_unique<GradMode>(true);
    {
      ContextScope back(context);
      EXPECT_FALSE(shardgrad::context().grad_enabled()) << "what this thread has set for it";
      EXPECT_EQ(shardgrad::context().tag(), kActivation);
    }
    off.reset();
    EXPECT_TRUE(inner.grad_enabled()) << "the scope that is left counts";
    EXPECT_FALSE(context.grad_enabled());
  }
  EXPECT_FALSE(context.grad_enabled());
}

TEST(Context, TheLastOneLeftIsCurrentInWhateverOrderTheyGo) {
  auto a = std::make_unique<Context>(), b = std::make_unique<Context>(), c = std::make_unique<Context>();
  EXPECT_EQ(Context::current(), c.get());
  a.reset();
  EXPECT_EQ(Context::current(), c.get());
  c.reset();
  EXPECT_EQ(Context::current(), b.get());
  Tensor works = empty({4});
  works = Tensor();
  b.reset();
  EXPECT_EQ(Context::current(), nullptr);
}

TEST(Context, AScopeThatOutlivesItsContextLeavesNoneBehind) {
  Context outer;
  auto inner = std::make_unique<Context>();
  {
    ContextScope scope(*inner);
    inner.reset();
    EXPECT_EQ(Context::current(), nullptr);
    EXPECT_THROW(context(), Error);
  }
  EXPECT_EQ(Context::current(), &outer);
}

}  // namespace
}  // namespace shardgrad
