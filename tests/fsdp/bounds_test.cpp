// Memory has bounds, whatever is run: evaluation, prefetch, gathering of state, offload.

#include <gtest/gtest.h>

#include <algorithm>

#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

int64_t gathered() { return context().ledger().current(Category::gathered_parameter); }

struct Stack : nn::Module {
  std::vector<nn::Child<nn::Linear>> layers;
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 16), out = child<nn::Linear>("out", 16, 5);
  Stack() {
    for (int i = 0; i < 6; ++i) layers.push_back(child<nn::Linear>("layer" + std::to_string(i), 16, 16));
  }
  Tensor forward(const Tensor& x) {
    Tensor h = in(x);
    for (auto& layer : layers) h = tanh(layer(h));
    return out(h);
  }
};

// The host of an asynchronous device may be far ahead; what it has queued must fit too.
TEST(Bounds, I34_B44_BytesGatheredAheadStayWithinTheBudget) {
  for (Device device : {kCpu, kAcc})
    for (int units_ahead : {0, 1, 2}) {
      dist::VirtualOptions options{.device = device, .threads = 1};
      options.group.delay = dist::fixed_delay(std::chrono::microseconds(300));
      dist::run_ranks(
          2,
          [&](dist::ProcessGroup& group) {
            auto model = nn::make<Stack>();
            int64_t unit = 4 * 320;  // 16 · 16 + 16 and padding
            auto sharded = fully_shard(*model, group,
                                       {.prefetch = 100, .prefetch_bytes = std::max(int64_t(1), units_ahead * unit)});
            int64_t worst = 0;
            context().ledger().on_change([&](Tag, int64_t) { worst = std::max(worst, gathered()); });
            for (int step = 0; step < 3; ++step) {
              loss_of(model, step, 0, 4).backward();
              model->zero_grad();
            }
            context().ledger().on_change(nullptr);
            EXPECT_LE(worst, (1 + units_ahead) * unit) << device;
            EXPECT_GT(worst, units_ahead * unit);
            EXPECT_EQ(gathered(), 0);
          },
          options);
    }
}

TEST(Bounds, I22_B43_ForwardsThatNoBackwardFollowsLeaveNothingBehind) {
  for (const Config& config : kAll)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, config);
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
      auto train = [&] {
        loss_of(model, 0, 0, 4).backward();
        Weights gradients;
        for (const auto& unit : sharded->units()) gradients[unit->name()] = values_of(unit->flat_params()[0]->grad());
        model->zero_grad();
        return gradients;
      };
      Weights expected = train();
      int64_t after_one = 0, peak = 0;
      for (int i = 0; i < 50; ++i) {
        model(x);  // with gradients
        if (i == 2) after_one = context().ledger().current(), peak = context().ledger().peak();
      }
      EXPECT_EQ(context().ledger().current(), after_one) << name_of(config.strategy);
      EXPECT_EQ(context().ledger().peak(), peak);
      EXPECT_EQ(train(), expected) << "and backward knows its units";
    });
}

TEST(Bounds, I31_GatheringStateAddsAtMostOneUnitAndGivesItBack) {
  for (int world : {2, 4})
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group);
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
      train_step(model, optimizer, 0, 0);
      int64_t largest = 0, shard = 0;
      for (const auto& unit : sharded->units()) {
        largest = std::max(largest, int64_t(unit->full_bytes()));
        shard = std::max(shard, int64_t(unit->full_bytes()) / world);
      }
      Ledger& ledger = context().ledger();
      auto cost = [&](auto call) {
        int64_t before = ledger.current();
        ledger.reset_peaks();
        call();
        EXPECT_EQ(ledger.current(), before);
        return ledger.peak() - before;
      };
      int64_t state = cost([&] { full_state_dict(*sharded); });
      int64_t optim = cost([&] { full_optim_state_dict(*sharded, optimizer); });
      if (group.rank() > 0) {  // rank 0 pays for what it asked for
        EXPECT_EQ(state, largest);
        EXPECT_LE(optim, largest + shard + 1024) << "one tensor of one unit, this rank's part, and counts of steps";
      }
      cost([&] { SummonFullParams whole(*sharded); });
      int64_t before = ledger.current();
      clip_grad_norm(*sharded, 1);
      EXPECT_LE(ledger.current() - before, 256) << "the lists of joins that the first norm makes";
      cost([&] { clip_grad_norm(*sharded, 1); });
      cost([&] { sharded_state_dict(*sharded); });
    });
}

TEST(Bounds, I43_B13_EvaluationMayComeFirstWithOffloadToo) {
  for (bool params : {false, true})
    for (bool grads : {false, true}) {
      auto train = [&](bool evaluate) {
        Weights end;
        dist::run_ranks(2,
                        [&](dist::ProcessGroup& group) {
                          auto model = nn::make<Rooted>();
                          auto sharded =
                              fully_shard(*model, group, {.move_params_to_cpu = params, .move_grads_to_cpu = grads});
                          optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
                          for (int step = 0; step < 2; ++step) {
                            if (evaluate) {
                              NoGrad no_grad;
                              model->eval();
                              loss_of(model, 9, 0, 4);
                              model->train();
                            }
                            Tensor x = rows_of_batch("x", step, 0, 4, 7, DType::f32);
                            mse_loss(model(x), rows_of_batch("t", step, 0, 4, 5, DType::f32), 40).backward();
                            optimizer.step();
                            optimizer.zero_grad();
                          }
                          Weights mine = weights_of(*sharded);
                          if (group.rank() == 0) end = mine;
                        },
                        {.device = kAcc});
        return end;
      };
      EXPECT_EQ(train(true), train(false)) << "params " << params << " grads " << grads;
    }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
