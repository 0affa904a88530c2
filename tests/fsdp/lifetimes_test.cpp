// Who owns whom (fsdp/fully_shard.h): whatever of a program goes first, what is left works or is refused by name, and
// goes too. A use of freed memory is for AddressSanitizer to find.

#include <gtest/gtest.h>

#include <numeric>

#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/watch/control.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// What a training program holds.
struct Held {
  static constexpr size_t kParts = 5;
  nn::Child<Rooted> model;
  std::shared_ptr<Sharded> sharded;
  std::unique_ptr<optim::Optimizer> optimizer;
  Tensor loss, parameter;

  Held(dist::ProcessGroup& group, const Config& config) : model(nn::make<Rooted>()) {
    sharded = fully_shard(*model, group, config);
    optimizer = make_optimizer(Optim::adamw, model->named_parameters());
    train_step(model, *optimizer, 0, 0);
    loss = loss_of(model, 1, 0, 4);
    parameter = model->b1->weight;
  }
  void drop(size_t part) {
    if (part == 0) model = {};
    if (part == 1) sharded = nullptr;
    if (part == 2) optimizer = nullptr;
    if (part == 3) loss = Tensor();
    if (part == 4) parameter = Tensor();
  }
  /// Uses what is left; what was refused must say why.
  void use() {
    attempt([&] { loss.backward({}, true); }, loss.defined());
    attempt([&] { optimizer->step(); }, bool(optimizer));
    attempt([&] { optimizer->zero_grad(); }, bool(optimizer));
    attempt([&] { optimizer->state_slices(); }, bool(optimizer));
    attempt([&] { parameter.grad(); }, parameter.defined());
    attempt([&] { parameter.detach().to_vector<float>(); }, parameter.defined());
    attempt([&] { full_state_dict(*sharded); }, bool(sharded));
    attempt([&] { clip_grad_norm(*sharded, 1); }, bool(sharded));
    attempt([&] { loss_of(model, 2, 0, 4); }, bool(model));
  }
  template <class Use> static void attempt(const Use& use, bool there) {
    if (!there) return;
    std::string what = message_of(use);
    bool named = what.empty();
    for (const char* reason : {"context", "is gone", "is sharded", "in memory", "zero_grad()", "in place",
                               "not reduced", "no parameter has a gradient"})
      named = named || contains(what, reason);
    EXPECT_TRUE(named) << what;
  }
};

const Config kHeldUnder[] = {{.strategy = Strategy::ddp, .bucket_bytes = 0},
                             {.strategy = Strategy::zero2},
                             {.strategy = Strategy::zero3},
                             {.strategy = Strategy::zero3, .move_params_to_cpu = true}};

void in_every_order(size_t parts, const std::function<void(std::span<const size_t>)>& body) {
  std::vector<size_t> order(parts);
  std::iota(order.begin(), order.end(), 0);
  do body(order);
  while (std::ranges::next_permutation(order).found);
}

void expect_no_harm(Device device, size_t one_in) {
  size_t number = 0;
  in_every_order(Held::kParts, [&](std::span<const size_t> order) {
    if (number++ % one_in != 0) return;
    for (const Config& config : kHeldUnder)
      dist::run_ranks(2,
                      [&](dist::ProcessGroup& group) {
                        Held held(group, config);
                        for (size_t part : order) {
                          held.drop(part);
                          held.use();
                        }
                      },
                      {.device = device, .threads = 1});
  });
}

TEST(Lifetimes, WhatIsLeftOfAModelInAnyOrderDoesNoHarm) { expect_no_harm(kCpu, 5); }
TEST(LifetimesSlow, WhatIsLeftOfAModelInAnyOrderDoesNoHarmOnDevices) {
  expect_no_harm(kCpu, 1);
  expect_no_harm(kAcc, 1);
}

/// A rank of its own, whose context can go before the rest.
struct Alone {
  std::unique_ptr<Context> context;
  std::unique_ptr<dist::ProcessGroup> group;
  explicit Alone(Device device) : context(std::make_unique<Context>(Context::Options{.threads = 1, .device = device})) {
    auto control = std::make_shared<dist::Control>(dist::make_private_page(1), 0);
    group = std::make_unique<dist::ProcessGroup>(dist::make_single_transport(control), control, std::vector{0}, 1,
                                                 dist::GroupOptions());
  }
  void end() {
    group = nullptr;
    context = nullptr;
  }
};

TEST(Lifetimes, TheContextMayGoBeforeAnythingOfTheModel) {
  for (Device device : {kCpu, kAcc})
    in_every_order(Held::kParts + 1, [&](std::span<const size_t> order) {
      if (device == kAcc && order[0] + 1 != order[1]) return;  // a part of the orders
      const Config& config = kHeldUnder[order[2] % std::size(kHeldUnder)];
      Alone alone(device);
      Held held(*alone.group, config);
      for (size_t part : order) {
        part == Held::kParts ? alone.end() : held.drop(part);
        held.use();
      }
    });
}

TEST(Lifetimes, TheProcessGroupMayGoBeforeAnythingOfTheModel) {
  size_t number = 0;
  in_every_order(Held::kParts + 1, [&](std::span<const size_t> order) {
    if (number++ % 12 != 0) return;  // a part of the orders
    const Config& config = kHeldUnder[number / 12 % std::size(kHeldUnder)];
    for (Device device : {kCpu, kAcc})
      dist::run_ranks(2,
                      [&](dist::ProcessGroup& world) {
                        auto own = world.split(0, world.rank());
                        Held held(*own, config);
                        for (size_t part : order) {
                          part == Held::kParts ? own.reset() : held.drop(part);
                          held.use();
                        }
                      },
                      {.device = device, .threads = 1});
  });
}

TEST(Lifetimes, AModelWhoseProcessGroupIsGoneSaysSo) {
  for (const Config& config : kHeldUnder)
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      auto own = world.split(0, world.rank());
      Held held(*own, config);
      own.reset();
      for (const std::function<void()>& use : std::vector<std::function<void()>>{
               [&] { held.loss.backward(); }, [&] { held.optimizer->step(); }, [&] { full_state_dict(*held.sharded); },
               [&] { clip_grad_norm(*held.sharded, 1); }, [&] { loss_of(held.model, 0, 0, 4); }})
        EXPECT_TRUE(contains(message_of(use), "process group")) << message_of(use);
    });
}

TEST(Lifetimes, AnotherContextDoesNotTakeOverAModelWhoseOwnHasEnded) {
  Alone first(kCpu);
  Held held(*first.group, {.strategy = Strategy::zero3});
  first.end();
  Alone second(kCpu);
  EXPECT_TRUE(contains(message_of([&] { held.loss.backward(); }), "context"));
  EXPECT_TRUE(contains(message_of([&] { loss_of(held.model, 0, 0, 4); }), "context"));
  EXPECT_TRUE(contains(message_of([&] { full_state_dict(*held.sharded); }), "full_state_dict: the context"));
  EXPECT_TRUE(contains(message_of([&] { held.optimizer->step(); }), "context or process group has ended"));
}

TEST(Lifetimes, ALossMadeInAFactoryGoesBackward) {
  for (const Config& config : kAll)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      Tensor parameter;
      auto loss_of_new_model = [&] {
        auto model = nn::make<Rooted>();
        fully_shard(*model, group, config);
        parameter = model->b1->weight;
        return loss_of(model, 0, 4 * group.rank(), 4 * group.rank() + 4);
      };
      Tensor loss = loss_of_new_model();
      EXPECT_EQ(message_of([&] { loss.backward(); }), "");
      std::string what = message_of([&] { parameter.grad(); });
      EXPECT_TRUE(contains(what, "'b1.weight' belonged to a sharded model that is gone")) << what;
      parameter = Tensor();
      for (Category::Kind category : {Category::parameter_shard, Category::full_gradient, Category::gradient_shard})
        EXPECT_EQ(bytes(category), 0) << "a graph that backward went through holds nothing";
    });
}

TEST(Lifetimes, AnOptimizerWithoutItsModelRefusesToStepByName) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    Held held(group, {.strategy = Strategy::zero3});
    held.drop(3);
    held.drop(0);
    held.drop(1);
    std::string what = message_of([&] { held.optimizer->step(); });
    EXPECT_TRUE(contains(what, "'scale' belonged to a sharded model that is gone")) << what;
    EXPECT_NO_THROW(held.optimizer->zero_grad());
  });
}

TEST(Lifetimes, ASubmoduleKeepsWhatItNeeds) {
  for (const Config& config : kAll)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      nn::Child<nn::Linear> head;
      std::vector<float> expected;
      {
        auto model = nn::make<Rooted>();
        fully_shard(*model, group, config);
        head = model->b2;
        expected = head(ones({2, 9})).to_vector<float>();
      }
      EXPECT_EQ(head(ones({2, 9})).to_vector<float>(), expected);
    });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
