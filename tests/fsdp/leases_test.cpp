// Who has lent a view of a sharded parameter (DLPack) is told before anything changes under it, and no rank changes in
// part.

#include <gtest/gtest.h>

#include <shardgrad/autograd/dlpack.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/parallel/mesh.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

struct Lease {
  dlpack::Versioned* lent;
  explicit Lease(const Tensor& tensor) : lent(dlpack::lend(tensor.detach())) {}
  Lease(const Lease&) = delete;
  ~Lease() { lent->deleter(lent); }
};

const Config kPermanent{.strategy = Strategy::zero1, .bucket_bytes = 0};

/// From here on the parameters can be read, until the shards change.
void gather_chain(nn::Child<Chain>& model) {
  NoGrad no_grad;
  loss_of(model, 1, 0, 4);
}

TEST(Leases, AStepIsRefusedBeforeItChangesAnyUnit) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    Weights stepped[2];
    for (bool lends : {false, true}) {
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, group, kPermanent);
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      loss_of(model, 0, 0, 4).backward();
      auto before = weights_of(*sharded);
      if (lends) {
        Lease lease(model->b->weight);
        std::string what = message_of([&] { optimizer.step(); });
        EXPECT_TRUE(contains(what, "unit 'b'") && contains(what, "DLPack leases its gathered parameters")) << what;
        EXPECT_EQ(weights_of(*sharded), before);
      }
      optimizer.step();
      stepped[lends] = weights_of(*sharded);
      EXPECT_NE(stepped[lends], before);
    }
    EXPECT_EQ(stepped[0], stepped[1]);
  });
}

TEST(Leases, ASwapOfAveragesIsRefusedBeforeItChangesAnyUnit) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, group, kPermanent);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    optim::EMA average(model->named_parameters(), 0.5);
    average.update();
    auto first = weights_of(*sharded);
    train_step(model, optimizer, 0, 0);
    auto before = weights_of(*sharded);
    gather_chain(model);
    {
      Lease lease(model->b->weight);
      EXPECT_TRUE(contains(message_of([&] { average.swap(); }), "DLPack leases"));
      EXPECT_FALSE(average.swapped());
      EXPECT_EQ(weights_of(*sharded), before);
    }
    average.swap();
    EXPECT_EQ(weights_of(*sharded), first);
  });
}

// Of one rank alone: the others must not change either.
TEST(Leases, ALoadAndEditsAreRefusedOnEveryRankWhereOneHasLentAView) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, group, kPermanent);
    auto before = weights_of(*sharded);
    gather_chain(model);
    StateDict state = full_state_dict(*sharded, false);
    for (auto& [name, tensor] : state) tensor = tensor * 2.0;
    auto fill = [](const StateSlice& piece) { fill_(piece.values, 1); };
    {
      std::optional<Lease> lease;
      if (group.rank() == 0) lease.emplace(model->b->weight);
      EXPECT_TRUE(contains(message_of([&] { load_full_state_dict(*sharded, state); }), "DLPack leases"));
      EXPECT_TRUE(contains(message_of([&] { fill_pieces(*sharded, fill); }), "DLPack leases"));
      EXPECT_TRUE(contains(message_of([&] {
                             SummonFullParams scope(*sharded, true);
                             NoGrad no_grad;
                             for (const NamedParameter& each : model->named_parameters()) fill_(each.tensor, 1);
                           }),
                           "DLPack leases"));
      EXPECT_EQ(weights_of(*sharded), before);
    }
    load_full_state_dict(*sharded, state);
    EXPECT_NE(weights_of(*sharded), before);
  });
}

// Copies along another axis of a mesh must not change either, nor change otherwise.
TEST(Leases, EditsAreRefusedOnTheWholeMeshWhereOneRankHasLentAViewOrEditsItsCopyOtherwise) {
  dist::run_ranks(4, [](dist::ProcessGroup& world) {
    parallel::Mesh mesh(world, {{"copy", 2}, {"data", 2}});
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model, mesh, "data", kPermanent);
    auto before = weights_of(*sharded);
    auto edit_to = [&](float value) {
      return message_of([&] {
        SummonFullParams scope(*sharded, true);
        NoGrad no_grad;
        for (const NamedParameter& each : model->named_parameters()) fill_(each.tensor, value);
      });
    };
    {
      gather_chain(model);
      std::optional<Lease> lease;
      if (world.rank() == 0) lease.emplace(model->b->weight);
      EXPECT_TRUE(contains(edit_to(1), "DLPack leases"));
    }
    EXPECT_TRUE(contains(edit_to(world.rank() < 2 ? 1.0f : 7.0f), "along another axis of the mesh"));
    EXPECT_TRUE(contains(edit_to(world.rank() == 3 ? 7.0f : 1.0f), "differently"));
    EXPECT_EQ(weights_of(*sharded), before);
    EXPECT_EQ(edit_to(1), "");
    EXPECT_NE(weights_of(*sharded), before);
  });
}

/// Lends its weight in forward, and keeps the view.
struct LendsItsWeight : nn::Module {
  Tensor weight = param("weight", {5, 7}, nn::init::normal(0, 0.5));
  std::optional<Lease> lease;
  Tensor forward(const Tensor& x) {
    lease.emplace(weight);
    return matmul(x, weight, false, true);
  }
};
struct AroundLending : nn::Module {
  nn::Child<LendsItsWeight> inner = child<LendsItsWeight>("inner");
  Tensor forward(const Tensor& x) { return inner(x); }
};

TEST(Leases, AUnitThatCouldNotBeGivenBackShowsNoOldValuesAfterALoad) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<AroundLending>();
    auto sharded = fully_shard(*model, group);
    NoGrad no_grad;
    EXPECT_TRUE(contains(message_of([&] { model(ones({1, 7})); }), "leased to DLPack"));
    model->inner->lease.reset();
    StateDict state = full_state_dict(*sharded, false);
    for (auto& [name, tensor] : state) tensor = tensor * 2.0;
    load_full_state_dict(*sharded, state);
    EXPECT_TRUE(contains(message_of([&] { values_of(model->inner->weight.detach()); }), "unit 'inner'"));
    EXPECT_EQ(weights_of(*sharded).at("inner.weight"), values_of(state.at("inner.weight")));
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
