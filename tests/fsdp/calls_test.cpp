// Calls that a schedule must live with: children alone, one inside another, without grad, failed, and left out.

#include <malloc.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// Units that gather by sending: ranks of this device have no memory in common.
void on_acc(const std::function<void(dist::ProcessGroup&)>& body) {
  dist::run_ranks(2, body, {.device = kAcc, .threads = 1});
}

/// The gathers and releases of units since the recorder was cleared.
std::string events() {
  std::string text;
  for (const Record& record : context().recorder().records())
    if (record.op == "all_gather" && !record.unit.empty())
      text += "AG " + record.unit + ' ';
    else if (record.op == "reshard")
      text += "free " + record.unit + ' ';
  context().recorder().clear();
  return text;
}

struct Three : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7),
                        c = child<nn::Linear>("c", 7, 7);
  bool leaves_b_out = false;
  Tensor forward(const Tensor& x) { return c(leaves_b_out ? a(x) : b(a(x))); }
};

TEST(Calls, AUnitThatIsGatheredAheadAndNotCalledIsGivenBackAfterForward) {
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Three>();
    fully_shard(*model, group, {.prefetch = 2});
    NoGrad no_grad;
    model(ones({2, 7}));
    model->leaves_b_out = true;
    events();
    model(ones({2, 7}));
    EXPECT_EQ(events(), "AG a AG b AG c free a free c free b ");
    EXPECT_EQ(bytes(Category::gathered_parameter), 0);
  });
}

TEST(Calls, ChildrenThatAreCalledWithoutTheRootAreGatheredAheadToo) {
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Three>();
    fully_shard(*model, group);
    auto step = [&] { sum(model->c(model->b(model->a(ones({2, 7}))))).backward(); };
    auto evaluate = [&] {
      NoGrad no_grad;
      model->c(model->b(model->a(ones({2, 7}))));
    };
    step();
    events();
    step();
    EXPECT_EQ(events(), "AG a AG b free a AG c free b AG b free c AG a free b free a ") << "as if the root were called";
    evaluate();
    evaluate();
    events();
    evaluate();
    EXPECT_EQ(events(), "AG a AG b free a AG c free b free c ");
  });
}

/// Trains on what its own units say without grad.
struct Distilled : Three {
  Tensor forward(const Tensor& x) {
    Tensor target;
    {
      NoGrad teacher;
      target = b(a(x));
    }
    return c(b(a(x))) - target;
  }
};

TEST(Calls, ATeacherWithoutGradIsGatheredAheadToo) {
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Distilled>();
    fully_shard(*model, group);
    for (int i = 0; i < 2; ++i) {
      events();
      sum(model(ones({2, 7}))).backward();
    }
    EXPECT_EQ(events(), "AG a AG b free a free b AG a AG b free a AG c free b AG b free c AG a free b free a ");
  });
}

TEST(Calls, StepsDoNotAddUp) {
  dist::run_ranks(1, [](dist::ProcessGroup& group) {
    auto model = nn::make<Distilled>();
    fully_shard(*model, group, {.strategy = Strategy::zero2});
    Tensor x = ones({1, 7});
    auto children_without_grad = [&] {
      NoGrad no_grad;
      model->b(model->a(x));
    };
    auto never_back_to_the_first = [&, first = true]() mutable {
      NoGrad no_grad;
      if (std::exchange(first, false)) model->a(x);
      model->c(model->b(x));
    };
    auto without_backward = [&] { model->c(x); };
    auto teacher = [&] { sum(model(x)).backward(); };
    auto children_alone = [&] { sum(model->b(model->a(x))).backward(); };
    for (const std::function<void()>& step : std::vector<std::function<void()>>{
             children_without_grad, never_back_to_the_first, without_backward, teacher, children_alone}) {
      auto bytes_after = [&](int steps) {
        for (int i = 0; i < steps; ++i) step();
        context().recorder().clear();
        return mallinfo2().uordblks;
      };
      // Eight bytes a step are 4000 in each round; what the heap takes once is in one of them.
      size_t least = std::numeric_limits<size_t>::max();
      for (size_t round = 0, before = bytes_after(500); round < 3; ++round) {
        size_t after = bytes_after(500);
        least = std::min(least, std::max(after, before) - before);
        before = after;
      }
      EXPECT_LT(least, 2048);
    }
  });
}

/// Calls itself, and keeps something of it aside.
struct Nested : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
  Tensor aside;
  Tensor forward(const Tensor& x, int depth) {
    nn::Child<Nested> self(std::shared_ptr<Nested>(std::shared_ptr<Nested>(), this));
    Tensor y = in(depth > 0 ? self(x, depth - 1) : x);
    aside = sum(tanh(in(y)));
    return y;
  }
};
struct Holder : nn::Module {
  nn::Child<Nested> nested = child<Nested>("nested");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 7);
  Tensor forward(const Tensor& x) { return out(nested(x, 2)); }
};

TEST(Calls, AUnitStaysUntilTheOutermostOfItsCallsReturns) {
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Holder>();
    fully_shard(*model, group, {.prefetch = 0});
    NoGrad no_grad;
    model(ones({2, 7}));
    EXPECT_EQ(events(), "AG nested free nested AG out free out ");
  });
}

// A hook that was there before the schedule's fails: that call was never one of the unit.
TEST(Calls, ACallThatFailsBeforeItIsCountedLeavesTheOneAroundItAsItIs) {
  struct Recursive : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
    Tensor forward(const Tensor& x, int depth) {
      nn::Child<Recursive> self(std::shared_ptr<Recursive>(std::shared_ptr<Recursive>(), this));
      std::string said = depth > 0 ? message_of([&] { self(x, depth - 1); }) : "boom";
      EXPECT_EQ(said, "boom");
      return in(x);
    }
  };
  struct Outer : nn::Module {
    nn::Child<Recursive> inner = child<Recursive>("inner");
    Tensor forward(const Tensor& x) { return inner(x, 2) + 1.0; }
  };
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Outer>();
    int calls = 0;
    model->inner->add_forward_pre_hook([&](nn::Module&, std::span<Tensor>) { SG_CHECK(++calls % 2 == 1, "boom"); });
    fully_shard(*model, group, {.prefetch = 0});
    for (int i = 0; i < 2; ++i) {
      Tensor loss = sum(model(ones({2, 7})));
      EXPECT_EQ(events(), i == 0 ? "AG inner free inner " : "AG inner ") << "the last unit is kept for backward";
      loss.backward();
      events();
    }
    EXPECT_EQ(calls, 4);
  });
}

TEST(Calls, WhatBackwardReadsAndNobodyHasGatheredIsGathered) {
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Holder>();
    auto sharded = fully_shard(*model, group, {.prefetch = 0});
    model(ones({2, 7}));
    events();
    model->nested->aside.backward();  // goes through no output of the unit
    EXPECT_EQ(events(), "AG nested free nested ");
    EXPECT_EQ(bytes(Category::gathered_parameter), 0);
    std::string what = message_of([&] { sum(model->out->weight); });
    EXPECT_TRUE(contains(what, "'out.weight' is not in memory")) << "only in backward: " << what;
  });
}

TEST(Calls, WhatIsGatheredAheadIsNotReadBeforeItHasArrived) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& group) {
                    auto model = nn::make<Three>();
                    fully_shard(*model, group);
                    NoGrad no_grad;
                    model(ones({2, 7}));
                    std::string what;
                    model->a->add_forward_hook([&](nn::Module&, std::span<const Tensor>) {
                      what = message_of([&] { sum(model->b->weight); });
                    });
                    model(ones({2, 7}));
                    EXPECT_TRUE(contains(what, "'b.weight' is not in memory")) << what;
                  },
                  {.device = kAcc, .group = {.delay = dist::fixed_delay(std::chrono::milliseconds(20))}});
}

TEST(Calls, AFailedCallThatItsCallerCaughtIsGivenBackAfterForward) {
  struct Catching : nn::Module {
    struct Failing : nn::Module {
      nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
      Tensor forward(const Tensor& x) {
        Tensor y = in(x);
        SG_CHECK(!y.defined(), "boom");
        return y;
      }
    };
    nn::Child<Failing> failing = child<Failing>("failing");
    nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 7);
    Tensor forward(const Tensor& x) {
      EXPECT_THROW(failing(x), Error);
      return out(x);
    }
  };
  on_acc([](dist::ProcessGroup& group) {
    auto model = nn::make<Catching>();
    fully_shard(*model, group, {.prefetch = 0});
    for (int i = 0; i < 2; ++i) {
      NoGrad no_grad;
      model(ones({2, 7}));
      EXPECT_EQ(events(), "AG failing AG out free out free failing ");
      EXPECT_THROW(model->failing(ones({2, 7})), Error) << "alone";
      EXPECT_EQ(events(), "AG failing ");
      model->out(ones({2, 7}));
      EXPECT_EQ(events(), "AG out free out ");
      EXPECT_EQ(bytes(Category::gathered_parameter), 0) << "the next call gives up what a failed one left";
    }
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
