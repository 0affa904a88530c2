// A sharded model is for one thread at a time: a second one is refused by name and disturbs nothing.

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// Does something in the middle of its forward.
struct Interrupted : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 6, 6), b = child<nn::Linear>("b", 6, 6);
  std::function<void(const Tensor&)> between = [](const Tensor&) {};
  Tensor forward(const Tensor& x) {
    Tensor y = tanh(a(x));
    between(y);
    return b(y);
  }
};

template <class Body> std::string message_in_another_thread(const Body& body) {
  std::string message;
  Context& here = context();
  std::thread([&] {
    ContextScope scope(here);
    message = message_of(body);
  }).join();
  return message;
}

class OneThread : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Each, OneThread, ::testing::Values(Strategy::ddp, Strategy::zero1, Strategy::zero3),
                         [](const auto& strategy) { return name_of(strategy.param); });

TEST_P(OneThread, ASecondThreadInsideAModelIsRefusedAndTheFirstGoesOnWithTheSameBits) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    Weights stepped[2];
    Tensor x = rand({3, 6}, "x");
    for (bool interrupts : {false, true}) {
      auto model = nn::make<Interrupted>();
      auto sharded = fully_shard(*model, group, {.strategy = GetParam()});
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      std::vector<std::string> refused;
      auto call_elsewhere = [&] {
        refused.push_back(message_in_another_thread([&] {
          NoGrad no_grad;
          model(ones({1, 6}));
        }));
      };
      if (interrupts)
        model->between = [&](const Tensor& y) {
          call_elsewhere();
          y.register_hook([&](const Tensor&) {
            call_elsewhere();
            return Tensor();
          });
        };
      Tensor output = model(x);
      model->between = [](const Tensor&) {};
      sum(output).backward();
      optimizer.step();
      stepped[interrupts] = weights_of(*sharded);
      ASSERT_EQ(refused.size(), interrupts ? 2u : 0u);
      for (const std::string& what : refused) EXPECT_TRUE(contains(what, "by a second thread")) << what;
    }
    EXPECT_EQ(stepped[0], stepped[1]);
  });
}

TEST_P(OneThread, ThreadsMayTakeTurns) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Interrupted>();
    auto sharded = fully_shard(*model, group, {.strategy = GetParam()});
    auto value = [&] {
      NoGrad no_grad;
      return values_of(model(ones({1, 6})));
    };
    auto here = value();
    auto expect_it_elsewhere = [&](const char* after) {
      SCOPED_TRACE(after);
      EXPECT_EQ(message_in_another_thread([&] {
                  group.take_over();
                  EXPECT_EQ(value(), here);
                }),
                "");
      group.take_over();
    };
    expect_it_elsewhere("forward");
    sum(model(ones({1, 6}))).backward();
    expect_it_elsewhere("backward");
    model->between = [](const Tensor&) { throw std::runtime_error("forward ends early"); };
    EXPECT_THROW(value(), std::runtime_error);
    model->between = [](const Tensor& y) {
      y.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("backward ends early"); });
    };
    Tensor output = model(ones({1, 6}));
    model->between = [](const Tensor&) {};
    expect_it_elsewhere("a forward that failed");
    EXPECT_THROW(sum(output).backward(), std::runtime_error);
    expect_it_elsewhere("a backward that failed");
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
