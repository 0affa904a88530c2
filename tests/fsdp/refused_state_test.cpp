// A state that does not fit is refused on every rank, and nothing has changed: no value, and no state that was not
// there.

#include <shardgrad/fsdp/state/state.h>

#include <gtest/gtest.h>

#include <mutex>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

/// A unit of which one parameter is frozen, and its optimizer, which has not stepped.
struct HalfFrozen {
  nn::Child<Flat> model = nn::make<Flat>();
  std::shared_ptr<Sharded> sharded;
  optim::AdamW optimizer;
  explicit HalfFrozen(dist::ProcessGroup& group)
      : sharded((model->bias.set_requires_grad(false), fully_shard(*model, group))),
        optimizer(model->named_parameters(), {.lr = 0.01}) {}
  std::map<std::string, std::vector<double>> parameters() {
    std::map<std::string, std::vector<double>> all;
    for (auto& [name, tensor] : full_state_dict(*sharded, false)) all[name] = values_of(tensor);
    return all;
  }
};

StateSlice whole(const std::string& name, const Shape& shape, double value) {
  Tensor values = empty({shape.numel()}, {DType::f32, kCpu});
  fill_(values, value);
  return {name, shape, 0, values};
}

/// What `load` says when it is refused on every rank: on rank 1 why, on rank 0 that it was another.
void expect_refused_for_rank_1(dist::ProcessGroup& group, const std::function<void()>& load, const std::string& why) {
  std::string what = message_of(load);
  EXPECT_TRUE(contains(what, group.rank() == 1 ? why : "does not fit on another rank")) << what;
  EXPECT_TRUE(contains(what, "nothing was changed")) << what;
}

TEST(RefusedState, LeavesFrozenAndTrainedParametersAsTheyWere) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    HalfFrozen run(group);
    auto before = run.parameters();
    auto load = [&](const StateSlice& weight) {
      std::vector<StateSlice> pieces = {whole("bias", {5}, 3), whole("weight", {5, 7}, 3)};
      if (group.rank() == 1) pieces[1] = weight;
      load_sharded_state_dict(*run.sharded, pieces);
    };
    StateSlice sound = whole("weight", {5, 7}, 3), misshapen = sound, outside = sound, of_meta = sound,
               undefined = sound;
    misshapen.values = sound.values.view({5, 7});
    outside.begin = 2;
    of_meta.values = empty({35}, {DType::f32, kMeta});
    undefined.values = Tensor();
    for (const StateSlice& weight : {misshapen, outside, of_meta, undefined})
      expect_refused_for_rank_1(
          group, [&] { load(weight); }, "'weight': a piece has no values in memory, more than one");
    EXPECT_EQ(run.parameters(), before);
    load(sound);
    for (const auto& [name, values] : run.parameters())
      EXPECT_EQ(values, std::vector<double>(values.size(), 3)) << name;
  });
}

// Also by an optimizer that keeps no state, and so has nothing that they could lack.
TEST(RefusedState, PiecesUnderNamesOfAnotherModelAreRefused) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    HalfFrozen run(group);
    optim::SGD stateless(run.model->named_parameters(), {.lr = 0.01});
    auto before = run.parameters();
    StateSlice weight = whole("weight", {5, 7}, 3), bias = whole("bias", {5}, 3);
    auto load = [&](const StateSlice& more) {
      std::vector<StateSlice> pieces{weight, bias};
      if (group.rank() == 1) pieces.push_back(more);
      load_sharded_state_dict(*run.sharded, pieces);
    };
    expect_refused_for_rank_1(
        group, [&] { load(whole("other", {5}, 3)); }, "unknown: 'other'");
    EXPECT_EQ(run.parameters(), before);
    load(bias);
    std::vector<StateSlice> on_rank_1(size_t(group.rank()), whole("weight.exp_avg", {5, 7}, 3));
    expect_refused_for_rank_1(
        group, [&] { load_sharded_optim_state_dict(*run.sharded, stateless, on_rank_1); }, "unknown: 'weight.exp_avg'");
    load_sharded_optim_state_dict(*run.sharded, stateless, {});
  });
}

TEST(RefusedState, OfAnOptimizerMakesNoStateOfFrozenParameters) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    HalfFrozen run(group);
    std::vector<StateSlice> pieces;
    for (const char* kind : {".exp_avg", ".exp_avg_sq"}) {
      pieces.push_back(whole(std::string("bias") + kind, {5}, 3));
      pieces.push_back(whole(std::string("weight") + kind, {5, 7}, 3));
    }
    StateDict full;
    for (const StateSlice& piece : pieces) full[piece.name] = piece.values.view(piece.shape);
    for (const char* name : {"weight.step", "bias.step"})
      full[name] = from_vector<int64_t>({7}, {1}, {DType::i64, kCpu});
    auto refused = pieces;
    auto refused_full = full;
    if (group.rank() == 1) {
      refused.pop_back();
      refused_full["weight.exp_avg_sq"] = empty({5, 7}, {DType::f32, kMeta});
    }
    auto state_of_bias = [&] {
      std::vector<double> all;
      for (const auto& [name, tensor] : full_optim_state_dict(*run.sharded, run.optimizer, false))
        if (name.starts_with("bias.exp")) all.push_back(values_of(tensor)[0]);
      return all;
    };
    expect_refused_for_rank_1(
        group, [&] { load_sharded_optim_state_dict(*run.sharded, run.optimizer, refused); },
        "missing: 'weight.exp_avg_sq'");
    expect_refused_for_rank_1(
        group, [&] { load_full_optim_state_dict(*run.sharded, run.optimizer, refused_full); },
        "'weight.exp_avg_sq': a piece has no values in memory");
    auto none_of_weight = pieces;  // which rank 0 has, so rank 1 must have it too
    if (group.rank() == 1)
      std::erase_if(none_of_weight, [](const StateSlice& piece) { return piece.name.starts_with("weight."); });
    expect_refused_for_rank_1(
        group, [&] { load_sharded_optim_state_dict(*run.sharded, run.optimizer, none_of_weight); },
        "missing: 'weight.exp_avg'");
    EXPECT_EQ(bytes(Category::optimizer_state), 0);
    EXPECT_FALSE(run.optimizer.has_state(1)) << "zeros that the next save would keep";
    EXPECT_EQ(state_of_bias(), std::vector<double>());
    load_sharded_optim_state_dict(*run.sharded, run.optimizer, pieces);
    EXPECT_EQ(state_of_bias(), (std::vector<double>{3, 3}));
  });
}

/// Part of a bias of five elements.
StateSlice part_of_bias(const std::string& name, int64_t begin, const std::vector<float>& values) {
  return {name, {5}, begin, from_vector(values, {int64_t(values.size())}, {DType::f32, kCpu})};
}

// One of the values would win, and nobody would know which.
TEST(RefusedState, PiecesThatOverlapMustHaveTheSameValues) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Flat>();
    auto sharded = fully_shard(*model, group, {.strategy = Strategy::ddp});  // each rank takes all
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
    auto load = [&](std::vector<StateSlice> pieces) {
      pieces.push_back(whole("weight", {5, 7}, 3));
      load_sharded_state_dict(*sharded, pieces);
    };
    StateSlice all = part_of_bias("bias", 0, {1, 2, 3, 4, 5});
    load({all, part_of_bias("bias", 1, {2}), part_of_bias("bias", 3, {4, 5})});
    auto bias = [&] { return values_of(full_state_dict(*sharded, false).at("bias")); };
    std::vector<double> before{1, 2, 3, 4, 5};
    EXPECT_EQ(bias(), before);
    std::string what = message_of([&] { load({all, part_of_bias("bias", 1, {2}), part_of_bias("bias", 3, {4, 7})}); });
    EXPECT_TRUE(contains(what, "'bias': element 4 is 5 in one piece and 7 in another, 2 apart")) << what;
    EXPECT_TRUE(contains(what, "nothing was changed")) << what;
    EXPECT_EQ(bias(), before);

    std::vector<StateSlice> states{whole("weight.exp_avg", {5, 7}, 3), whole("weight.exp_avg_sq", {5, 7}, 3),
                                   whole("bias.exp_avg", {5}, 3), whole("bias.exp_avg_sq", {5}, 3),
                                   part_of_bias("bias.exp_avg_sq", 2, {3, 3, 4})};
    what = message_of([&] { load_sharded_optim_state_dict(*sharded, optimizer, states); });
    EXPECT_TRUE(contains(what, "'bias.exp_avg_sq': element 4 is 3 in one piece and 4 in another")) << what;
    EXPECT_EQ(bytes(Category::optimizer_state), 0);
  });
}

// sharded_state_dict sends nothing, so it cannot know.
TEST(RefusedState, ReplicasThatHaveDriftedAreSeenWhereTheirPiecesAreLoaded) {
  std::vector<std::vector<StateSlice>> saved(4);
  dist::run_ranks(4, [&](dist::ProcessGroup& group) {
    auto first = nn::make<Chain>(), second = nn::make<Chain>();
    auto from = fully_shard(*first, group, {.strategy = Strategy::hybrid, .shard_ranks = 2});
    auto to = fully_shard(*second, group, {.strategy = Strategy::ddp});
    auto load_all = [&] {
      saved[size_t(group.rank())] = sharded_state_dict(*from);
      group.barrier();
      std::vector<StateSlice> all;
      for (const auto& of_rank : saved) all.insert(all.end(), of_rank.begin(), of_rank.end());
      std::string what = message_of([&] { load_sharded_state_dict(*to, all); });
      all.clear();
      group.barrier();
      saved[size_t(group.rank())].clear();
      return what;
    };
    EXPECT_EQ(load_all(), "");
    auto before = values_of(full_state_dict(*to, false).at("b.bias"));
    const auto& bias = from->index().at("b.bias");
    Owned own = bias.flat->owned(bias.slice);
    if (group.rank() >= 2 && own.count > 0) {
      NoGrad no_grad;
      fill_(bias.flat->shard().rows(own.at, own.at + 1).detach(), 7);
    }
    std::string what = load_all();
    EXPECT_TRUE(contains(what, "'b.bias': element 0 is ") && contains(what, " in one piece and 7 in another")) << what;
    EXPECT_EQ(values_of(full_state_dict(*to, false).at("b.bias")), before);
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
