// Parts that do not make a whole, copies that differ and states that do not fit are refused on every rank.

#include <shardgrad/fsdp/state/state.h>

#include <limits>

#include <gtest/gtest.h>

#include <shardgrad/optim/sgd.h>

#include "tests/parallel/messages.h"
#include "tests/parallel/split_mlp.h"

namespace shardgrad::parallel::testing {
namespace {

struct OneWeight : nn::Module {
  OneWeight(const std::string& name, const Shape& shape, nn::Part part) { param(name, shape, nn::init::zeros(), part); }
  Tensor forward(const Tensor& x) { return x; }
};

TEST(RefusedParts, PartsThatDoNotMakeAWholeAreRefusedOnEveryRank) {
  struct Weight {
    std::string name;
    Shape shape;
    nn::Part part;
  };
  struct Case {
    Weight ranks[2];
    std::string why;
  };
  std::vector<Case> cases{
      {{{"w", {3, 2}, {0, 0, 8}}, {"w", {4, 2}, {0, 4, 8}}},
       "'w' [8, 2]: along dimension 0 no rank has [3, 4), rank 0 has [0, 3), rank 1 has [4, 8)"},
      {{{"w", {2, 5}, {1, 0, 8}}, {"w", {2, 4}, {1, 4, 8}}},
       "'w' [2, 8]: along dimension 1 more than one rank has [4, 5), rank 0 has [0, 5), rank 1 has [4, 8)"},
      {{{"w", {3, 2}, {0, 0, 8}}, {"w", {3, 2}, {0, 3, 8}}},
       "along dimension 0 no rank has [6, 8), rank 0 has [0, 3), rank 1 has [3, 6)"},
      {{{"w", {4, 2}, {0, 0, 8}}, {"w", {4, 2}, {0, 0, 8}}}, "no rank has [4, 8), rank 0 has [0, 4)"},
      {{{"w", {4, 2}, {0, 0, 8}}, {"w", {4, 3}, {0, 4, 8}}},
       "'w' is of f32[8, 2] on rank 0 and of f32[8, 3] on rank 1"},
      {{{"w", {4, 8}, {0, 0, 8}}, {"w", {8, 4}, {1, 4, 8}}},
       "'w' is split along dimension 1 on rank 1 and along dimension 0 on rank 0"},
      {{{"w", {8, 2}, {}}, {"w", {4, 2}, {0, 4, 8}}}, "more than one rank has [4, 8), rank 0 has [0, 8)"},
      {{{"w", {4, 2}, {0, 0, 8}}, {"w", {4, 2}, {0, 6, 8}}}, "'w': 4 indices from 6 on along dimension 0"},
      {{{"w", {4, 2}, {0, 0, 8}}, {"w", {4, 2}, {0, std::numeric_limits<int64_t>::max() - 1, 8}}},
       "'w': 4 indices from 9223372036854775806 on along dimension 0"},
      {{{"w", {4, 2}, {0, 0, 8}}, {"v", {4, 2}, {0, 4, 8}}}, "there is no 'w', which rank 0 has"},
  };
  for (const Case& refused : cases)
    dist::run_ranks(2, [&](ProcessGroup& world) {
      Mesh mesh(world, {{"data", 1}, {"model", 2}});
      const Weight& mine = refused.ranks[world.rank()];
      auto model = nn::make<OneWeight>(mine.name, mine.shape, mine.part);
      expect_message(message_of([&] { fsdp::fully_shard(model.module(), mesh, "data"); }), refused.why);
      expect_message(message_of([&] { fsdp::full_state_dict(model.module(), world); }), refused.why);
      expect_message(message_of([&] { fsdp::load_full_state_dict(model.module(), world, {}); }), refused.why);
    });
}

// Behind the back of the other copies: SummonFullParams would compare.
void fill_shard(fsdp::Sharded& sharded, const std::string& name, double value) {
  for (fsdp::FlatParam* flat : sharded.flats())
    for (size_t i = 0; i < flat->slices().size(); ++i) {
      if (flat->slices()[i].name != name) continue;
      fsdp::Owned owned = flat->owned(i);
      flat->before_write();
      fill_(flat->shard().alias_rows(owned.at, owned.at + owned.count), value);
      flat->shard_written();
    }
}

TEST(RefusedParts, CopiesThatDifferAreRefusedOnEveryRank) {
  const std::string why = "rank 1 and rank 0 hold copies of 'scale";
  for (bool sharded : {true, false})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      MeshRun run(world, sharded ? 2 : 1, sharded ? std::optional(fsdp::Config{}) : std::nullopt);
      run.train(0);
      EXPECT_EQ(message_of([&] { run.parameters(), run.states(); }), "");
      if (run.mesh.coordinate("model") == 1)
        for (const auto& slice : run.optimizer.state_slices())
          if (slice.name == "scale.exp_avg") fill_(slice.values, 3);
      expect_message(message_of([&] { run.states(); }), why + ".exp_avg' that are not the same");
      if (run.mesh.coordinate("model") == 1) {
        NoGrad no_grad;
        sharded ? fill_shard(*run.sharded, "scale", 3) : fill_(run.model->scale, 3);
      }
      expect_message(message_of([&] { run.parameters(); }), why + "' that are not the same");
    });
}

// Beside parameters that are split the copies are compared all the same.
TEST(RefusedParts, EditsThatMakeCopiesDifferAreRefusedOnEveryRank) {
  dist::run_ranks(4, [&](ProcessGroup& world) {
    MeshRun run(world, 2, fsdp::Config{});
    run.train(0);
    auto edit_to = [&](double value) {
      return message_of([&] {
        fsdp::SummonFullParams scope(*run.sharded, true);
        NoGrad no_grad;
        fill_(run.model->scale, value);
      });
    };
    expect_message(edit_to(run.mesh.coordinate("model")), "along another axis of the mesh, edited it differently");
    EXPECT_EQ(message_of([&] { run.parameters(); }), "") << "and nothing was kept";
    EXPECT_EQ(edit_to(3), "");
    EXPECT_EQ(message_of([&] { run.parameters(); }), "");
  });
}

TEST(RefusedParts, CopiesThatBeginWithOtherValuesAreRefusedOnEveryRank) {
  for (bool sync : {false, true})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      Mesh mesh(world, {{"data", 2}, {"model", 2}});
      fsdp::Config config{.sync_module_states = sync};
      auto set = [&](SplitMlp& model, int value) {
        NoGrad no_grad;
        model.materialize();
        fill_(model.scale, value);
      };
      auto model = nn::make<SplitMlp>(mesh.group("model")), other = nn::make<SplitMlp>(mesh.group("model"));
      set(*model, mesh.coordinate("model"));
      expect_message(message_of([&] { fsdp::fully_shard(model.module(), mesh, "data", config); }),
                     "rank 1 and rank 0 have copies of 'scale' that begin with other values");
      set(*other, mesh.coordinate("data"));  // with sync, the first ranks' values are all ranks'
      EXPECT_EQ(message_of([&] { fsdp::fully_shard(other.module(), mesh, "data", config); }).empty(), sync);
    });
}

TEST(RefusedParts, AStateThatDoesNotFitOneRankIsRefusedOnAllAndChangesNothing) {
  for (bool sharded : {true, false})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      MeshRun run(world, 2, sharded ? std::optional(fsdp::Config{}) : std::nullopt);
      StateDict parameters = run.parameters(), states = run.states();
      Saved before = saved(parameters), states_before = saved(states);
      for (StateDict* state : {&parameters, &states})
        for (auto& [name, tensor] : *state)
          if (!name.ends_with(".step")) tensor = tensor + 1.0;
      StateDict cut = parameters, cut_states = states;
      if (world.rank() == 3) {
        cut["up.weight"] = empty({3, 6});  // a part, where there is to be the whole
        cut_states.erase("down.weight.exp_avg");
      }
      const char* why =
          world.rank() == 3 ? "'up.weight' is f32[5, 6] here, but f32[3, 6] was given" : "on another rank";
      const char* why_states = world.rank() == 3 ? "missing: 'down.weight.exp_avg', f32[4, 5]" : "on another rank";
      expect_message(message_of([&] { run.load(cut, states); }), why);
      expect_message(message_of([&] {
                       sharded ? load_full_optim_state_dict(*run.sharded, run.optimizer, cut_states)
                               : fsdp::load_full_optim_state_dict(run.optimizer, world, cut_states);
                     }),
                     why_states);
      EXPECT_EQ(saved(run.parameters()), before);
      EXPECT_EQ(saved(run.states()), states_before);
      run.load(parameters, states);
      EXPECT_EQ(saved(run.parameters()), saved(parameters));
    });
}

TEST(RefusedParts, AStateOfRanksThatMadeOtherNumbersOfStepsIsRefusedOnEveryRank) {
  for (bool sharded : {true, false})
    dist::run_ranks(2, [&](ProcessGroup& world) {
      MeshRun run(world, 1, sharded ? std::optional(fsdp::Config{}) : std::nullopt);
      run.states();
      std::map<std::string, int64_t> steps = run.optimizer.steps();
      for (auto& [name, count] : steps) count = 3 + world.rank();  // as when rank 0 alone has left one out
      run.optimizer.set_steps(steps);
      optim::SGD stateless(run.model->named_parameters(), {.lr = 0.1});
      stateless.set_steps(steps);
      auto state_of_stateless = [&] {
        sharded ? full_optim_state_dict(*run.sharded, stateless) : fsdp::full_optim_state_dict(stateless, world);
      };
      const std::string why = "the ranks have trained apart; a gradient scaler must ask all ranks";
      expect_message(message_of([&] { run.states(); }), why);
      expect_message(message_of(state_of_stateless), why);
    });
}

// Also where there is no state but the numbers of steps.
TEST(RefusedParts, OptimizersOfOtherNamesAreRefusedOnEveryRank) {
  for (double momentum : {0.0, 0.9})
    dist::run_ranks(2, [&](ProcessGroup& world) {
      auto model = nn::make<OneWeight>(world.rank() ? "v" : "w", Shape{4, 2}, nn::Part{0, 4 * world.rank(), 8});
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = momentum});
      expect_message(message_of([&] { fsdp::full_optim_state_dict(optimizer, world); }),
                     "there is no 'w', which rank 0 has");
    });
}

TEST(RefusedParts, RanksWithOtherSeedsAlongTheModelAxisAreRefused) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    Mesh mesh(world, {{"data", 1}, {"model", 2}});
    Context seeded({.rank = world.rank(), .world_size = 2, .seed = 7 + uint64_t(world.rank())});
    auto model = nn::make<SplitMlp>(mesh.group("model"));
    expect_message(message_of([&] { fsdp::fully_shard(model.module(), mesh, "data"); }),
                   "rank 1 and rank 0 have different seeds, 8 and 7");
  });
}

}  // namespace
}  // namespace shardgrad::parallel::testing
