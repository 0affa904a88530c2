// State in pieces and as whole tensors, saved and loaded at different numbers of ranks.

#include <shardgrad/fsdp/state/state.h>

#include <algorithm>

#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/nn/normalization.h>

#include <gtest/gtest.h>

#include <mutex>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

// A slice as plain values, to carry it from one set of ranks to another.
struct Saved {
  std::string name;
  Shape shape;
  int64_t begin;
  std::vector<float> values;
};

struct Checkpoint {
  std::vector<Saved> parameters, optimizer;
  std::map<std::string, int64_t> steps;
};

std::vector<Saved> saved(const std::vector<StateSlice>& slices) {
  std::vector<Saved> result;
  for (const StateSlice& slice : slices)
    result.push_back({slice.name, slice.shape, slice.begin, slice.values.to_vector<float>()});
  return result;
}

std::vector<StateSlice> slices(const std::vector<Saved>& saved) {
  std::vector<StateSlice> result;
  for (const Saved& s : saved)
    result.push_back({s.name, s.shape, s.begin, from_vector(s.values, {int64_t(s.values.size())}, {DType::f32, kCpu})});
  return result;
}

template <class Model>
void step(nn::Child<Model>& model, optim::Optimizer& optimizer, dist::ProcessGroup& group, int n) {
  int64_t begin = 12 * group.rank() / group.size(), end = 12 * (group.rank() + 1) / group.size();
  Tensor x = rows_of_batch("x", n, begin, end, 7, DType::f32), t = rows_of_batch("t", n, begin, end, 5, DType::f32);
  mse_loss(model(x), t, 60).backward();
  optimizer.step();
  optimizer.zero_grad();
}

using Whole = std::map<std::string, std::vector<double>>;

Whole whole_of(const StateDict& state) {
  Whole whole;
  for (const auto& [name, tensor] : state) whole[name] = values_of(tensor);
  return whole;
}

struct Training {
  std::shared_ptr<Sharded> sharded;
  optim::AdamW optimizer;
  template <class Model>
  Training(nn::Child<Model>& model, dist::ProcessGroup& group, const Config& config)
      : sharded(fully_shard(*model, group, config)), optimizer(model->named_parameters(), {.lr = 0.02}) {}
  std::pair<Whole, Whole> state() {
    return {whole_of(full_state_dict(*sharded, false)), whole_of(full_optim_state_dict(*sharded, optimizer, false))};
  }
};

Checkpoint save_at(int world, const Config& config, std::pair<Whole, Whole>& later) {
  Checkpoint checkpoint;
  std::mutex mutex;
  dist::run_ranks(world, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Wide>();
    Training run(model, group, config);
    for (int i = 0; i < 3; ++i) step(model, run.optimizer, group, i);
    {
      std::lock_guard lock(mutex);
      for (Saved& s : saved(sharded_state_dict(*run.sharded))) checkpoint.parameters.push_back(s);
      for (Saved& s : saved(sharded_optim_state_dict(run.optimizer))) checkpoint.optimizer.push_back(s);
      for (auto& [name, count] : run.optimizer.steps())
        checkpoint.steps[name] = std::max(checkpoint.steps[name], count);
    }
    for (int i = 3; i < 6; ++i) step(model, run.optimizer, group, i);
    auto state = run.state();
    if (group.rank() == 0) later = state;
  });
  return checkpoint;
}

TEST(State, I38_PiecesLoadAtAnyNumberOfRanksAndTheRunGoesOn) {
  std::pair<Whole, Whole> later;
  Checkpoint checkpoint = save_at(3, {}, later);
  for (int world : {1, 2, 3, 4})
    for (const Config& config :
         {Config{.strategy = Strategy::ddp, .bucket_bytes = 0}, Config{.strategy = Strategy::zero1, .bucket_bytes = 0},
          Config{}, Config{.strategy = Strategy::hybrid, .shard_ranks = world == 4 ? 2 : 1}})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Wide>();
        Training run(model, group, config);
        load_sharded_state_dict(*run.sharded, slices(checkpoint.parameters));
        load_sharded_optim_state_dict(*run.sharded, run.optimizer, slices(checkpoint.optimizer));
        run.optimizer.set_steps(checkpoint.steps);
        for (const auto& [name, values] : whole_of(full_state_dict(*run.sharded, false)))
          for (const Saved& s : checkpoint.parameters)
            for (size_t i = 0; i < s.values.size() && s.name == name; ++i)
              ASSERT_EQ(values[size_t(s.begin) + i], s.values[i]) << name << " at W=" << world;
        for (int i = 3; i < 6; ++i) step(model, run.optimizer, group, i);
        if (world == 3 && config.strategy != Strategy::hybrid) {  // which adds in another order
          EXPECT_EQ(run.state(), later) << "the run that was not interrupted";
        }
      });
}

TEST(State, I39_TheFullOptimizerStateIsThatOfThePlainModelAndLoadsAnywhere) {
  Whole plain;
  {
    Context context;
    auto model = nn::make<Wide>();
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    for (int i = 0; i < 3; ++i) {
      Tensor x = rows_of_batch("x", i, 0, 12, 7, DType::f32), t = rows_of_batch("t", i, 0, 12, 5, DType::f32);
      mse_loss(model(x), t, 60).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    plain = whole_of(optimizer.state_dict());
  }
  for (int world : {1, 2, 4})
    for (Config config :
         {Config{.strategy = Strategy::ddp, .bucket_bytes = 0}, Config{.strategy = Strategy::zero1, .bucket_bytes = 0},
          Config{}, Config{.strategy = Strategy::hybrid, .shard_ranks = std::max(1, world / 2)}})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Wide>();
        Training run(model, group, config);
        for (int i = 0; i < 3; ++i) step(model, run.optimizer, group, i);
        StateDict state = full_optim_state_dict(*run.sharded, run.optimizer, false);
        Whole whole = whole_of(state);
        ASSERT_EQ(whole.size(), plain.size());
        for (auto& [name, values] : plain)
          for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(whole.at(name)[i], values[i], 1e-6) << name;
        EXPECT_EQ(full_optim_state_dict(*run.sharded, run.optimizer).empty(), group.rank() != 0);

        auto other = nn::make<Wide>();
        Training fresh(other, group, {});
        load_full_optim_state_dict(*fresh.sharded, fresh.optimizer, state);
        EXPECT_EQ(whole_of(full_optim_state_dict(*fresh.sharded, fresh.optimizer, false)), whole);

        StateDict negative = state;
        negative["out.bias.step"] = from_vector<int64_t>({-1}, {1}, {DType::i64, kCpu});
        for (auto& [name, tensor] : negative)
          if (tensor.dtype() == DType::f32) tensor = zeros(tensor.shape(), {DType::f32, kCpu});
        EXPECT_TRUE(contains(message_of([&] { load_full_optim_state_dict(*fresh.sharded, fresh.optimizer, negative); }),
                             "is -1"));
        EXPECT_EQ(whole_of(full_optim_state_dict(*fresh.sharded, fresh.optimizer, false)), whole) << "nothing changed";

        state.erase("out.bias.exp_avg");
        state["stranger.exp_avg"] = zeros({2});
        try {
          load_full_optim_state_dict(*fresh.sharded, fresh.optimizer, state);
          FAIL() << "not refused";
        } catch (const Error& error) {
          std::string what = error.what();
          EXPECT_NE(what.find("unknown: 'stranger.exp_avg'"), std::string::npos) << what;
        }
      });
}

TEST(State, LearningRatesGoAlongWithTheOptimizersState) {
  std::map<std::string, optim::Optimizer::Rates> expected;
  StateDict state;
  auto same = [](const auto& a, const auto& b) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.lr == y.second.lr && x.second.own == y.second.own &&
             x.second.ratio == y.second.ratio;
    });
  };
  for (int world : {2, 1, 3})
    for (const Config& config : strategies(world))
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Wide>();
        Training run(model, group, config);
        if (state.empty()) {  // the first
          run.optimizer.set_lr_of(0, 0.7);
          run.optimizer.set_lr(0.3);
          run.optimizer.set_lr_of(1, 0.013);
          StateDict mine = full_optim_state_dict(*run.sharded, run.optimizer);
          group.barrier();
          if (group.rank() == 0) state = mine, expected = run.optimizer.rates();
          group.barrier();
          return;
        }
        load_full_optim_state_dict(*run.sharded, run.optimizer, state);
        EXPECT_TRUE(same(run.optimizer.rates(), expected));
        StateDict wrong = state, before = state;  // as they were once saved, without rates
        std::erase_if(before, [](const auto& each) { return each.first.ends_with(".lr"); });
        run.optimizer.set_lr(11);
        load_full_optim_state_dict(*run.sharded, run.optimizer, before);
        EXPECT_EQ(run.optimizer.lr(), 11);
        if (group.rank() == world - 1) wrong["out.bias.lr"] = from_vector<double>({1, -1, 1}, {3}, {DType::f64, kCpu});
        EXPECT_TRUE(
            contains(message_of([&] { load_full_optim_state_dict(*run.sharded, run.optimizer, wrong); }),
                     group.rank() == world - 1 ? "'out.bias' has -1 among its learning rates" : "another rank"));
        EXPECT_EQ(run.optimizer.lr(), 11);
      });
}

struct NormedNet : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6);
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 6);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 6, 5);
  Tensor forward(const Tensor& x) { return out(norm(in(x))); }
};

TEST(State, BuffersGoAlongWithTheParameters) {
  StateDict state;
  for (int world : {2, 1, 3})
    for (const Config& config : strategies(world))
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<NormedNet>();
        Training run(model, group, config);
        step(model, run.optimizer, group, 0);  // each rank's statistics are of its own rows
        StateDict mine = full_state_dict(*run.sharded, false);
        EXPECT_EQ(whole_of(mine).at("norm.running_mean"),
                  whole_of(mean_buffers(*model, group)).at("norm.running_mean"));
        if (state.empty()) {  // the first
          group.barrier();
          if (group.rank() == 0) state = mine;
          group.barrier();
          return;
        }
        load_full_state_dict(*run.sharded, state);
        EXPECT_EQ(whole_of(full_state_dict(*run.sharded, false)), whole_of(state));
        EXPECT_EQ(values_of(model->norm->running_var), whole_of(state).at("norm.running_var")) << "on every rank";
        auto plain = nn::make<NormedNet>();
        plain->load_state_dict(state);
        StateDict before = state, half = state;
        for (const char* name : {"norm.running_mean", "norm.running_var"})
          before.erase(name);  // as they were once saved
        fill_(model->norm->running_var, 5);
        load_full_state_dict(*run.sharded, before);
        EXPECT_EQ(values_of(model->norm->running_var), std::vector<double>(6, 5));
        half.erase("norm.running_mean");
        std::string what = message_of([&] { load_full_state_dict(*run.sharded, half); });
        EXPECT_TRUE(contains(what, "missing: 'norm.running_mean'")) << what;
        EXPECT_EQ(values_of(model->norm->running_var), std::vector<double>(6, 5));
      });
}

TEST(State, I39_AUnitWithoutStateAndParametersWithoutStepsAreNoTrouble) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Frozen>();
    Training run(model, group, {});
    step(model, run.optimizer, group, 0);
    StateDict state = full_optim_state_dict(*run.sharded, run.optimizer, false);
    EXPECT_FALSE(state.contains("b.weight.exp_avg"));
    EXPECT_EQ(state.at("b.weight.step").item(), 0);
    EXPECT_EQ(state.at("a.weight.step").item(), 1);
    load_full_optim_state_dict(*run.sharded, run.optimizer, state);
  });
}

TEST(State, I38_B04_MissingPiecesAreRefusedAndTheirOrderDoesNotMatter) {
  std::pair<Whole, Whole> later;
  Checkpoint checkpoint = save_at(2, {}, later);
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Wide>();
    Training run(model, group, {});
    std::vector<StateSlice> pieces = slices(checkpoint.parameters);
    load_sharded_state_dict(*run.sharded, pieces);
    Whole before = whole_of(full_state_dict(*run.sharded, false));
    std::reverse(pieces.begin(), pieces.end());
    load_sharded_state_dict(*run.sharded, pieces);
    EXPECT_EQ(whole_of(full_state_dict(*run.sharded, false)), before);
    std::erase_if(pieces, [&](const StateSlice& piece) { return piece.begin > 0; });  // rank 1's file is lost
    for (StateSlice& piece : pieces) fill_(piece.values, 7);
    pieces.push_back(pieces[0]);
    try {
      load_sharded_state_dict(*run.sharded, pieces);
      FAIL() << "not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(group.rank() == 1 ? "is in no piece" : "on another rank"),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(whole_of(full_state_dict(*run.sharded, false)), before);
  });
}

TEST(State, PiecesOfAnotherShapeAreRefusedThoughTheirCountFits) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Wide>();
    Training run(model, group, {});
    std::vector<StateSlice> pieces = sharded_state_dict(*run.sharded);
    for (StateSlice& piece : pieces) piece.shape = Shape{1, piece.shape.numel()};
    std::string what = message_of([&] { load_sharded_state_dict(*run.sharded, pieces); });
    EXPECT_TRUE(contains(what, "the state does not fit; nothing was changed:") && contains(what, "': not f32["))
        << what;
  });
}

TEST(State, I38_B45_PiecesAreCopies) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Wide>();
    Training run(model, group, {});
    std::vector<StateSlice> pieces = sharded_state_dict(*run.sharded);
    std::vector<Saved> before = saved(pieces);
    step(model, run.optimizer, group, 0);
    for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(saved(pieces)[i].values, before[i].values);
    EXPECT_NE(saved(sharded_state_dict(*run.sharded))[0].values, before[0].values);
  });
}

TEST(State, PiecesOfAFrozenParametersStateAreSavedAndLoaded) {
  std::mutex mutex;
  std::vector<StateSlice> all;
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto trained = [&](nn::Child<Chain>& model, optim::Optimizer& optimizer) {
      sum(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32))).backward();
      optimizer.step();
      optimizer.zero_grad();
    };
    auto first = nn::make<Chain>(), second = nn::make<Chain>();
    auto from = fully_shard(*first, group), to = fully_shard(*second, group);
    optim::AdamW of_first(first->named_parameters(), {.lr = 0.01}), of_second(second->named_parameters(), {.lr = 0.01});
    trained(first, of_first);
    first->a->weight.set_requires_grad(false);
    second->a->weight.set_requires_grad(false);
    {
      std::lock_guard lock(mutex);
      for (StateSlice& slice : sharded_optim_state_dict(of_first)) all.push_back(slice);
    }
    group.barrier();
    load_sharded_optim_state_dict(*to, of_second, all);
    second->a->weight.set_requires_grad(true);
    StateDict saved = full_optim_state_dict(*from, of_first, false),
              loaded = full_optim_state_dict(*to, of_second, false);
    ASSERT_TRUE(saved.contains("a.weight.exp_avg"));
    for (auto& [name, tensor] : saved)
      if (!name.ends_with(".step")) {
        EXPECT_EQ(values_of(loaded.at(name)), values_of(tensor)) << name;
      }
    group.barrier();
    if (group.rank() == 0) all.clear();
  });
}

TEST(State, AnOptimizerOfWhatIsNotShardedIsRefusedOnEveryRank) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    auto sharded = fully_shard(*model->a, group);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
    for (const auto& call :
         std::vector<std::function<void()>>{[&] { full_optim_state_dict(*sharded, optimizer); },
                                            [&] { load_full_optim_state_dict(*sharded, optimizer, {}); }}) {
      std::string what = message_of(call);
      EXPECT_TRUE(contains(what, "'b.weight' is not a parameter of a sharded model")) << what;
    }
  });
}

// A checkpoint in the midst of accumulation, or the last one before a program gives up.
TEST(State, OptimizerStateIsSavedWhateverTheGradientsAre) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, group, config);
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
      auto loss = [&] { return sum(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32))); };
      auto saved = [&] {
        std::map<std::string, std::vector<double>> all;
        for (auto& [name, tensor] : full_optim_state_dict(*sharded, optimizer, false)) all[name] = values_of(tensor);
        for (const StateSlice& slice : sharded_optim_state_dict(optimizer))
          all[slice.name + " here"] = values_of(slice.values);
        visit_optim_pieces(optimizer, [&](const StateSlice& slice) {
          EXPECT_EQ(values_of(slice.values), all.at(slice.name + " here"));
        });
        return all;
      };
      loss().backward();
      optimizer.step();
      optimizer.zero_grad();
      auto before = saved();
      {
        NoSync local(*sharded);
        loss().backward();
        EXPECT_EQ(saved(), before);
      }
      leaf_of(model->a->bias).add_ready_hook([] { fail("boom"); });
      EXPECT_THROW(loss().backward(), Error);
      EXPECT_EQ(saved(), before);
    });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
