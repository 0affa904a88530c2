// A step that reads its clip factor where a kernel has left it has the bits of one that is told it, wherever its
// parameters and gradients are.

#include <shardgrad/core/ledger_history.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/kernels/workspace.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing::clip {
namespace {

struct Place {
  Config whole, middle;  // options of all units, and of the second
  Device power;          // where the norm's power is
};

Weights trained(const Place& place, Device device, bool by_kernel) {
  Weights weights;
  auto body = [&](dist::ProcessGroup& world) {
    EnableWrap scope;
    auto model = nn::make<Chain>();
    wrap(model->a), wrap(model->b, place.middle), wrap(model->c);
    auto sharded = fully_shard(*model, world, place.whole);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1, .eps = 0.1});
    for (int step = 0; step < 3; ++step) {
      loss_of(model, step, 4 * world.rank(), 4 * world.rank() + 4).backward();
      if (by_kernel) {
        Tensor power = grad_power(*sharded);
        EXPECT_EQ(power.device(), place.power);
        optimizer.step(optim::clip_scale(power, 0.01));
      } else {
        optimizer.step(optim::clip_factor(grad_norm(*sharded), 0.01));
      }
      optimizer.zero_grad();
    }
    Weights mine = weights_of(*sharded);
    if (world.rank() == 0) weights = std::move(mine);
  };
  dist::run_ranks(2, body, {.device = device, .threads = 1});
  return weights;
}

TEST(Clip, AFactorThatIsReadWhereItIsUpdatesAsOneThatIsTold) {
  const Config stays{}, moves{.move_params_to_cpu = true, .move_grads_to_cpu = true};
  for (Device device : {kCpu, kAcc})
    for (const Place& place : {Place{stays, stays, device}, Place{moves, moves, kCpu}, Place{stays, moves, device},
                               Place{moves, stays, kCpu}})
      EXPECT_EQ(trained(place, device, true), trained(place, device, false)) << device;
}

// The lists that are kept are the library's, and not a kernel's for a moment.
TEST(Clip, WhatANormKeepsIsCountedOnceAndGrowsNoMore) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, world);
    Ledger& ledger = context().ledger();
    loss_of(model, 0, 4 * world.rank(), 4 * world.rank() + 4).backward();
    int64_t before = ledger.current(Category::other), workspace = ledger.current(Category::workspace);
    grad_power(*sharded);
    int64_t kept = ledger.current(Category::other) - before;
    EXPECT_GT(kept, 0);
    EXPECT_EQ(ledger.current(Category::workspace), workspace);
    grad_power(*sharded);
    EXPECT_EQ(ledger.current(Category::other) - before, kept);
  });
}

// Which blocks are joined in which order is found for a step, and kept for those like it.
TEST(Clip, ANormLikeTheLastOneMakesNoListsAnew) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, world);
    loss_of(model, 0, 4 * world.rank(), 4 * world.rank() + 4).backward();
    auto changes_of_lists = [&] {
      LedgerHistory history(context().ledger(), context().recorder());
      grad_power(*sharded);
      return std::ranges::count_if(history.changes(),
                                   [](const LedgerChange& change) { return change.tag.category == Category::other; });
    };
    EXPECT_GT(changes_of_lists(), 0);
    EXPECT_EQ(changes_of_lists(), 0);
    model->named_parameters()[0].tensor.set_requires_grad(false);
    EXPECT_GT(changes_of_lists(), 0) << "of fewer parameters";
    EXPECT_EQ(changes_of_lists(), 0);
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing::clip
