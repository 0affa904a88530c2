// The state of a model of which ranks hold parts: saved as the whole one's, and loaded on any other mesh.

#include <shardgrad/fsdp/state/state.h>

#include <functional>
#include <memory>
#include <mutex>

#include <gtest/gtest.h>

#include <shardgrad/fsdp/start.h>

#include "tests/parallel/messages.h"
#include "tests/parallel/split_mlp.h"

namespace shardgrad::parallel::testing {
namespace {

using Hashes = std::map<std::string, uint64_t>;
Hashes hashes_of(const StateDict& state) {
  Hashes hashes;
  for (const auto& [name, tensor] : state) hashes[name] = fsdp::hash_of_values(tensor);
  return hashes;
}

struct Place {
  int ranks, data;
  std::optional<fsdp::Config> config;  // unset: not sharded
};

std::vector<Place> places() {
  using fsdp::Strategy;
  fsdp::Config ddp{.strategy = Strategy::ddp}, zero3{.strategy = Strategy::zero3},
      hybrid{.strategy = Strategy::hybrid, .shard_ranks = 2};
  return {{1, 1, {}},    {2, 1, {}},    {4, 1, {}},     {4, 2, zero3}, {4, 2, ddp},
          {4, 1, zero3}, {4, 4, zero3}, {4, 4, hybrid}, {1, 1, zero3}};
}

std::string text_of(const Place& place) {
  return concat(place.data, " x ", place.ranks / place.data, ' ',
                place.config ? fsdp::name_of(place.config->strategy) : "not sharded");
}

/// Eighths, of which products and sums of a few are exact in f32, in any order.
Saved eighths() {
  Saved all;
  int next = 0;
  auto add = [&](const char* name, const Shape& shape) {
    Values& whole = all[name] = {shape, {}, DType::f32};
    for (int64_t i = 0; i < shape.numel(); ++i) whole.values.push_back(double((++next * 7) % 17 - 8) / 8);
  };
  add("scale", {6});
  add("up.weight", {5, 6});
  add("up.bias", {5});
  add("down.weight", {4, 5});
  add("down.bias", {4});
  return all;
}

TEST(JoinedState, HasTheHashesOfThePlainModelTrainedOnOneRank) {
  Hashes expected, expected_states;
  dist::run_ranks(1, [&](ProcessGroup&) {
    auto model = nn::make<PlainMlp>();
    model->load_state_dict(tensors_of(eighths()));
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.0625});
    step(model, optimizer, 0, 0, kBatch);
    expected = hashes_of(model->state_dict());
    expected_states = hashes_of(optimizer.state_dict());
  });
  for (const Place& place : places()) {
    dist::run_ranks(place.ranks, [&](ProcessGroup& world) {
      MeshRun run(world, place.data, place.config);
      StateDict given = tensors_of(eighths());
      run.load(given, run.states());
      run.train(0);
      EXPECT_EQ(hashes_of(run.parameters()), expected) << text_of(place);
      EXPECT_EQ(hashes_of(run.states()), expected_states) << text_of(place);
    });
  }
}

/// What a mesh of 2 x 2 has after three steps, and what one more step makes of it in the plain model on one rank.
struct Trained {
  Saved parameters, states, next;
};

Trained trained() {
  Trained all;
  dist::run_ranks(4, [&](ProcessGroup& world) {
    MeshRun run(world, 2, fsdp::Config{});
    for (int i = 0; i < 3; ++i) run.train(i);
    StateDict parameters = run.parameters(true), states = run.states(true);
    EXPECT_EQ(parameters.empty(), world.rank() != 0);
    EXPECT_EQ(states.empty(), world.rank() != 0);
    if (world.rank() == 0) all.parameters = saved(parameters), all.states = saved(states);
  });
  dist::run_ranks(1, [&](ProcessGroup&) {
    auto model = nn::make<PlainMlp>();
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.0625});
    model->load_state_dict(tensors_of(all.parameters));
    optimizer.load_state_dict(tensors_of(all.states));
    step(model, optimizer, 3, 0, kBatch);
    all.next = saved(model->state_dict());
  });
  return all;
}

TEST(JoinedState, OfAMeshLoadsOnAnyOtherAndOnOneRankAndTheRunGoesOn) {
  Trained from = trained();
  for (const Place& place : places())
    dist::run_ranks(place.ranks,
                    [&](ProcessGroup& world) {
                      MeshRun run(world, place.data, place.config);
                      run.load(tensors_of(from.parameters), tensors_of(from.states));
                      EXPECT_EQ(saved(run.parameters()), from.parameters) << text_of(place);
                      EXPECT_EQ(saved(run.states()), from.states) << text_of(place);
                      run.train(3);
                      for (const auto& [name, whole] : saved(run.parameters()))
                        for (size_t i = 0; i < whole.values.size(); ++i)
                          EXPECT_NEAR(whole.values[i], from.next.at(name).values[i], 1e-6)
                              << text_of(place) << ' ' << name;
                    },
                    {.seed = 5});  // other values than those that are loaded
}

TEST(JoinedState, HasWhatIsLeftOutOfShardingToo) {
  dist::run_ranks(4, [](ProcessGroup& world) {
    MeshRun run(world, 2, fsdp::Config{.leave_out = {"up.*", "scale"}});
    load_full_state_dict(*run.sharded, tensors_of(eighths()));
    EXPECT_EQ(saved(run.parameters()), eighths());
    std::vector<double> whole = eighths().at("up.bias").values;
    Range mine(5, run.mesh.group("model"));
    for (int64_t i = 0; i < mine.size; ++i)
      EXPECT_EQ(run.model->up->bias.to_vector<float>()[size_t(i)], whole[size_t(mine.begin + i)]);
  });
}

/// Pieces that outlive the ranks they were saved on.
struct Piece {
  std::string name;
  Shape shape;
  int64_t begin;
  std::vector<float> values;
};

std::vector<StateSlice> slices_of(const std::vector<Piece>& pieces) {
  std::vector<StateSlice> slices;
  for (const Piece& piece : pieces)
    slices.push_back({piece.name, piece.shape, piece.begin,
                      from_vector(piece.values, {int64_t(piece.values.size())}, {DType::f32, kCpu})});
  return slices;
}

/// Takes a piece's values out of whole tensors, as a reader of a file does.
fsdp::VisitPiece reader_of(const Saved& whole) {
  return [&whole](const StateSlice& piece) {
    const Values& from = whole.at(piece.name);
    EXPECT_EQ(piece.shape, from.shape) << piece.name;
    std::vector<float> values;
    for (int64_t i = 0; i < piece.values.numel(); ++i) values.push_back(float(from.values[size_t(piece.begin + i)]));
    copy_into(piece.values, from_vector(values, piece.values.shape(), {DType::f32, kCpu}));
  };
}

TEST(JoinedState, InPiecesHasRowsOfPartsAndLoadsOnAnyMesh) {
  Saved whole, states;
  std::vector<Piece> pieces, state_pieces, visited;
  std::map<std::string, int64_t> steps;
  std::mutex mutex;
  dist::run_ranks(4, [&](ProcessGroup& world) {
    MeshRun run(world, 2, fsdp::Config{});
    for (int i = 0; i < 2; ++i) run.train(i);
    Saved all = saved(run.parameters()), all_states = saved(run.states());
    auto counts = optim_steps(*run.sharded, run.optimizer);
    std::lock_guard lock(mutex);
    auto keep_in = [](std::vector<Piece>& to) {
      return [&to](const StateSlice& s) { to.push_back({s.name, s.shape, s.begin, s.values.to_vector<float>()}); };
    };
    for (const StateSlice& slice : sharded_state_dict(*run.sharded)) keep_in(pieces)(slice);
    for (const StateSlice& slice : fsdp::sharded_optim_state_dict(run.optimizer)) keep_in(state_pieces)(slice);
    visit_pieces(*run.sharded, keep_in(visited));
    if (world.rank() == 0) whole = all, states = all_states, steps = counts;
  });
  ASSERT_EQ(visited.size(), pieces.size());
  for (const std::vector<Piece>* all : {&pieces, &visited})
    for (const Piece& piece : *all)
      for (size_t i = 0; i < piece.values.size(); ++i)
        ASSERT_EQ(piece.values[i], whole.at(piece.name).values[size_t(piece.begin) + i]) << piece.name;
  for (int data : {1, 2, 4})
    for (bool read : {false, true})
      dist::run_ranks(4,
                      [&](ProcessGroup& world) {
                        MeshRun run(world, data, fsdp::Config{});
                        if (read) {
                          fill_pieces(*run.sharded, reader_of(whole));
                          run.optimizer.allocate_states();
                          fill_optim_pieces(*run.sharded, run.optimizer, reader_of(states));
                        } else {
                          load_sharded_state_dict(*run.sharded, slices_of(pieces));
                          load_sharded_optim_state_dict(*run.sharded, run.optimizer, slices_of(state_pieces));
                        }
                        run.optimizer.set_steps(steps);
                        EXPECT_EQ(saved(run.parameters()), whole) << data << ' ' << read;
                        EXPECT_EQ(saved(run.states()), states) << data << ' ' << read;
                      },
                      {.seed = 5});
}

/// Split along each of its dimensions, of which the last has nothing for one of four ranks.
struct Cubes : nn::Module {
  Tensor cubes[3];
  explicit Cubes(const ProcessGroup& model) {
    Shape whole{4, 5, 3};
    for (int dim : {0, 1, 2}) {
      Range mine(whole[dim], model);
      cubes[dim] =
          param(concat("cube", dim), whole.with(dim, mine.size), nn::init::normal(), {dim, mine.begin, whole[dim]});
    }
  }
  Tensor forward(const Tensor& x) { return x; }
};

TEST(JoinedState, OfPartsAlongAnyDimensionIsTheWholes) {
  struct Case {
    int data;
    bool sharded;
    Device device = kCpu;
  };
  for (auto [data, sharded, device] : {Case{1, false}, Case{1, true}, Case{2, true}, Case{2, true, kAcc}})
    dist::run_ranks(
        4,
        [&, data = data, sharded = sharded](ProcessGroup& world) {
          Mesh mesh(world, {{"data", data}, {"model", 4 / data}});
          auto model = nn::make<Cubes>(mesh.group("model"));
          std::shared_ptr<fsdp::Sharded> shards;
          if (sharded) shards = fsdp::fully_shard(model.module(), mesh, "data");
          auto state = [&] {
            return shards ? full_state_dict(*shards, false) : fsdp::full_state_dict(model.module(), world, false);
          };
          StateDict begun = state();
          for (auto& [name, tensor] : begun) {  // as the whole one is initialised
            Tensor whole = empty({4, 5, 3});
            nn::init::normal().fill(whole, 0, whole.shape(), name);
            EXPECT_EQ(tensor.to_vector<float>(), whole.to_vector<float>()) << name;
            tensor = tensor * 2.0;
          }
          shards ? load_full_state_dict(*shards, begun) : fsdp::load_full_state_dict(model.module(), world, begun);
          EXPECT_EQ(saved(state()), saved(begun));
        },
        {.device = device});
}

/// A part, and what each rank has seen.
struct Counting : nn::Module {
  Tensor weight, seen = buffer("seen", {2});
  explicit Counting(const ProcessGroup& model) {
    Range mine(5, model);
    weight = param("weight", {mine.size}, nn::init::normal(), {0, mine.begin, 5});
  }
  Tensor forward(const Tensor& x) { return x; }
};

using Shards = std::shared_ptr<fsdp::Sharded>;

// Calls `check` on four ranks, of which each axis has two, with a model that is sharded and with one that is not.
void on_a_mesh(const std::function<void(ProcessGroup&, Mesh&, Counting&, const Shards&)>& check) {
  for (bool sharded : {true, false})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      Mesh mesh(world, {{"data", 2}, {"model", 2}});
      auto model = nn::make<Counting>(mesh.group("model"));
      Shards shards = sharded ? fsdp::fully_shard(model.module(), mesh, "data") : nullptr;
      model->materialize();
      check(world, mesh, *model, shards);
    });
}

TEST(JoinedState, HasTheMeanOfBuffersOverTheCopiesOfEachPart) {
  on_a_mesh([](ProcessGroup& world, Mesh& mesh, Counting& model, const Shards& shards) {
    fill_(model.seen, mesh.coordinate("data") * 4);
    StateDict state = shards ? full_state_dict(*shards, false) : fsdp::full_state_dict(model, world, false);
    EXPECT_EQ(state.at("weight").shape(), Shape({5}));
    EXPECT_EQ(state.at("seen").to_vector<float>(), std::vector<float>({2, 2}));
    shards ? load_full_state_dict(*shards, state) : fsdp::load_full_state_dict(model, world, state);
    EXPECT_EQ(model.seen.to_vector<float>(), std::vector<float>({2, 2}));
  });
}

// Statistics of split channels: the mean over the model axis would be that of other channels.
TEST(JoinedState, BuffersThatBelongToAPartAreRefusedByName) {
  on_a_mesh([](ProcessGroup& world, Mesh& mesh, Counting& model, const Shards& shards) {
    fill_(model.seen, mesh.coordinate("model"));
    auto save = [&] { shards ? full_state_dict(*shards) : fsdp::full_state_dict(model, world); };
    expect_message(message_of(save), "'seen' differs between ranks that hold different parts");
  });
}

/// Four weights of 16 KiB, split over the model axis where it has more than one rank, unevenly for 3, and a gain that
/// all have, which begins elsewhere in each one's flat parameter.
struct Wide : nn::Module {
  explicit Wide(const ProcessGroup& model) {
    for (int i = 0; i < 4; ++i) {
      Range mine(64, model);
      param(concat("w", i), i % 2 ? Shape{64, mine.size} : Shape{mine.size, 64}, nn::init::normal(),
            {i % 2, mine.begin, 64});
    }
    param("w4", {500}, nn::init::normal());
  }
  Tensor forward(const Tensor& x) { return x; }
};

TEST(JoinedState, OfTensorsOfWhichSeveralRanksHavePiecesIsWhole) {
  for (auto [data, model_ranks] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 3)})
    dist::run_ranks(data * model_ranks, [&, data = data, model_ranks = model_ranks](ProcessGroup& world) {
      Mesh mesh(world, {{"data", data}, {"model", model_ranks}});
      auto model = nn::make<Wide>(mesh.group("model"));
      auto sharded = fsdp::fully_shard(model.module(), mesh, "data");
      StateDict state = full_state_dict(*sharded, false);
      EXPECT_EQ(state.size(), 5U);
      for (auto& [name, tensor] : state) {
        Tensor whole = empty(tensor.shape());
        nn::init::normal().fill(whole, 0, whole.shape(), name);
        EXPECT_EQ(tensor.to_vector<float>(), whole.to_vector<float>()) << name;
        tensor = tensor * 2.0;
      }
      load_full_state_dict(*sharded, state);
      EXPECT_EQ(saved(full_state_dict(*sharded, false)), saved(state)) << data << " x " << model_ranks;
    });
}

TEST(JoinedState, TakesNoMoreThanOneTensorBesideTheShardsAndTheResult) {
  constexpr int64_t kWeight = 64 * 64 * 4;
  for (bool sharded : {true, false})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      Mesh mesh(world, {{"data", sharded ? 2 : 1}, {"model", sharded ? 2 : 4}});
      auto model = nn::make<Wide>(mesh.group("model"));
      std::shared_ptr<fsdp::Sharded> shards;
      if (sharded) shards = fsdp::fully_shard(model.module(), mesh, "data");
      model->materialize();
      int64_t before = context().ledger().current();
      context().ledger().reset_peaks();
      shards ? full_state_dict(*shards) : fsdp::full_state_dict(model.module(), world);
      int64_t result = world.rank() == 0 ? 4 * kWeight + 500 * 4 : 0;
      EXPECT_LE(context().ledger().peak() - before, result + kWeight) << sharded << ", rank " << world.rank();
    });
}

}  // namespace
}  // namespace shardgrad::parallel::testing
