// Muon of sharded models: its steps need whole matrices, which are brought together in rounds. What a step sends, what
// it needs in memory, and that no bit depends on how the matrices are cut.

#include <gtest/gtest.h>

#include <mutex>

#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/fsdp/setup/whole_rounds.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/optim/muon.h>

#include "tests/autograd/support.h"
#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// A unit of one matrix that all ranks hold a part of, one of several that lie on a rank or two, and the root's own.
struct Matrices : nn::Module {
  struct Block : nn::Module {
    nn::Child<nn::Linear> up = child<nn::Linear>("up", 13, 17), down = child<nn::Linear>("down", 17, 13);
    Tensor small = param("small", {2, 3}, nn::init::normal(0, 0.3));
    Tensor forward(const Tensor& x) { return x + down(tanh(up(x))) * sum(small); }
  };
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 13);
  nn::Child<Block> block = child<Block>("block");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 13, 5);
  Tensor mix = param("mix", {5, 5}, nn::init::normal(0, 0.4)), shift = param("shift", {5}, nn::init::zeros());
  Tensor forward(const Tensor& x) { return matmul(out(block(tanh(in(x)))), mix) + shift; }
};

/// Muon for the matrices of a model and AdamW for the rest.
struct Both {
  std::unique_ptr<optim::Muon> muon;
  std::unique_ptr<optim::AdamW> adamw;
  explicit Both(nn::Module& model) {
    std::vector<NamedParameter> matrices, others;
    for (const NamedParameter& p : model.named_parameters()) (p.tensor.ndim() == 2 ? matrices : others).push_back(p);
    muon = std::make_unique<optim::Muon>(matrices, optim::MuonOptions{.lr = 0.02});
    if (!others.empty()) adamw = std::make_unique<optim::AdamW>(others, optim::AdamOptions{.lr = 0.01});
  }
  void step(double grad_scale = 1) const {
    muon->step(grad_scale);
    if (adamw) adamw->step(grad_scale);
  }
  void zero_grad() const {
    muon->zero_grad();
    if (adamw) adamw->zero_grad();
  }
};

struct Use {
  DType dtype = DType::f32;
  int micro = 1;
  bool no_sync = false;
  double clip = 0;
  std::optional<DType> autocast = {};
};

template <class Model>
void train_steps(nn::Child<Model>& model, Sharded* sharded, const Both& both, const Use& use, int rank, int world,
                 int steps = 3) {
  for (int step = 0, batch = 0; step < steps; ++step) {
    for (int micro = 0; micro < use.micro; ++micro, ++batch) {
      std::optional<NoSync> local;
      if (sharded && use.no_sync && micro + 1 < use.micro) local.emplace(*sharded);
      int64_t begin = 12 * rank / world, end = 12 * (rank + 1) / world;
      Tensor x = rows_of_batch("x", batch, begin, end, 7, use.dtype);
      Autocast precision(use.autocast);
      mse_loss(output_of(model, x).to(use.dtype), rows_of_batch("t", batch, begin, end, 5, use.dtype), 60 * use.micro)
          .backward();
    }
    if (sharded && use.clip > 0) clip_grad_norm(*sharded, use.clip);
    both.step();
    both.zero_grad();
  }
}

/// Weights and momentum after some steps, which must be the same on every rank.
template <class Model> Weights trained(int world, const Config& config, const Use& use, Device device = kCpu) {
  std::vector<Weights> ends{size_t(world)};
  dist::run_ranks(world,
                  [&](dist::ProcessGroup& group) {
                    auto model = nn::make<Model>();
                    if (use.dtype != DType::f32) model->to(use.dtype);
                    auto sharded = fully_shard(*model, group, config);
                    Both both(*model);
                    train_steps(model, sharded.get(), both, use, group.rank(), world);
                    Weights& end = ends[size_t(group.rank())] = weights_of(*sharded);
                    for (auto& [name, tensor] : full_optim_state_dict(*sharded, *both.muon, false))
                      end[name] = values_of(tensor);
                  },
                  {.device = device});
  for (const Weights& end : ends) EXPECT_EQ(end, ends[0]) << "ranks differ";
  return ends[0];
}

template <class Model> Weights plainly_trained(const Use& use) {
  Context context;
  auto model = nn::make<Model>();
  if (use.dtype != DType::f32) model->to(use.dtype);
  model->materialize();
  Both both(*model);
  train_steps(model, nullptr, both, use, 0, 1);
  Weights end;
  for (auto& [name, tensor] : model->state_dict()) end[name] = values_of(tensor.detach());
  for (auto& [name, tensor] : both.muon->state_dict()) end[name] = values_of(tensor);
  return end;
}

TEST(ShardedMuon, I02_HasTheSameBitsUnderEveryStrategyHoweverGradientsAreMade) {
  for (const Use& use : {Use{}, Use{.micro = 3}, Use{.micro = 3, .no_sync = true, .clip = 0.1},
                         Use{.autocast = DType::bf16}, Use{.dtype = DType::f64}})
    for (int world : {1, 2, 3, 4}) {
      Weights expected;
      for (const Config& config : strategies(world)) {
        Weights end = trained<Matrices>(world, config, use);
        if (expected.empty()) expected = end;
        EXPECT_EQ(end, expected) << name_of(config.strategy) << " W=" << world << " micro " << use.micro;
      }
    }
}

TEST(ShardedMuon, HasTheSameBitsWhateverAreUnits) {
  for (int world : {2, 3}) {
    Weights expected = trained<Matrices>(world, {}, {});
    EXPECT_EQ(trained<Matrices>(world, {.wrap = wrap_by_size(1 << 30)}, {}), expected) << "one unit";
    EXPECT_EQ(trained<Matrices>(world, {.wrap = wrap_by_type({"Linear"})}, {}), expected) << "each layer";
    EXPECT_EQ(trained<Matrices>(world, {.strategy = Strategy::ddp}, {}), expected) << "buckets";
  }
}

TEST(ShardedMuon, OneRankIsThePlainModelToTheBitAndMoreRanksToRounding) {
  EXPECT_EQ(trained<Matrices>(1, {}, {}), plainly_trained<Matrices>({}));
  Weights expected = plainly_trained<Matrices>({.dtype = DType::f64});
  for (int world : {2, 3, 4})
    for (auto& [name, values] : trained<Matrices>(world, {}, {.dtype = DType::f64}))
      test::expect_close(values, expected.at(name), 1e-10, concat(name, " W=", world));
}

TEST(ShardedMuon, HasTheSameBitsWhereverShardsAndGradientsWait) {
  for (int world : {1, 2, 3}) {
    Weights expected = trained<Matrices>(world, {}, {}, kAcc);
    EXPECT_EQ(expected, trained<Matrices>(world, {}, {})) << "host and device";
    for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
      for (bool params : {false, true})
        for (bool grads : {false, true}) {
          Config config{.strategy = strategy, .move_params_to_cpu = params, .move_grads_to_cpu = grads};
          EXPECT_EQ(trained<Matrices>(world, config, {}, kAcc), expected) << params << grads << " W=" << world;
        }
  }
}

// The optimizer writes the shard, and what computes is a copy of it in 16 bits.
TEST(ShardedMuon, WritesTheCopiesIn16BitsToo) {
  for (int world : {1, 2, 3}) {
    Weights expected;
    for (Config config : strategies(world)) {
      config.param_dtype = DType::bf16;
      Weights end = trained<Matrices>(world, config, {});
      if (expected.empty()) expected = end;
      EXPECT_EQ(end, expected) << name_of(config.strategy) << " W=" << world;
    }
    for (bool offload : {false, true}) {
      Config config{.move_params_to_cpu = offload, .param_dtype = DType::bf16};
      EXPECT_EQ(trained<Matrices>(world, config, {}, kAcc), expected) << offload;
    }
  }
}

// Matrices of fewer elements than ranks have, frozen ones and such that a step does not use.
TEST(ShardedMuon, ModelsThatAreHardInOtherWaysTrainAlike) {
  for (int world : {2, 3, 4}) {
    auto alike = [&]<class Model>(std::type_identity<Model>) {
      Weights expected = trained<Model>(world, {.strategy = Strategy::ddp}, {});
      for (Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3})
        EXPECT_EQ(trained<Model>(world, {.strategy = strategy}, {}), expected) << typeid(Model).name();
    };
    alike(std::type_identity<Frozen>());
    alike(std::type_identity<Unused>());
    alike(std::type_identity<Tied>());
    alike(std::type_identity<Tiny>());
    alike(std::type_identity<Twice>());
  }
}

TEST(ShardedMuon, AMatrixMayBeFrozenAndThawedBetweenSteps) {
  same_weights<Matrices>([](nn::Child<Matrices>& model, Sharded& sharded, dist::ProcessGroup& group) {
    Both both(*model);
    train_steps(model, &sharded, both, {}, group.rank(), 2, 1);
    std::vector<double> before = weights_of(sharded).at("block.up.weight");
    model->block->up->weight.set_requires_grad(false);
    train_steps(model, &sharded, both, {}, group.rank(), 2, 2);
    EXPECT_EQ(weights_of(sharded).at("block.up.weight"), before);
    model->block->up->weight.set_requires_grad();
    train_steps(model, &sharded, both, {}, group.rank(), 2, 1);
    EXPECT_NE(weights_of(sharded).at("block.up.weight"), before);
  });
}

TEST(ShardedMuon, AnOverflowOnOneRankLeavesTheStepOutOnAll) {
  same_weights<Matrices>([](nn::Child<Matrices>& model, Sharded& sharded, dist::ProcessGroup& group) {
    Both both(*model);
    auto scaler = sharded_grad_scaler(sharded, {.init_scale = 8});
    for (bool overflow : {true, false}) {
      Weights before = weights_of(sharded);
      Tensor loss = loss_of(model, 0, 4 * group.rank(), 4 * group.rank() + 4);
      scaler.scale(overflow && group.rank() == 1 ? loss * 1e38 * 1e38 : loss).backward();
      EXPECT_EQ(scaler.step(*both.muon), !overflow);
      EXPECT_EQ(weights_of(sharded) == before, overflow);
      scaler.update();
      both.zero_grad();
    }
  });
}

TEST(ShardedMuon, StateLoadsAtAnyNumberOfRanksUnderAnyStrategyWholeAndInPieces) {
  StateDict weights, state;
  std::vector<StateSlice> pieces;
  std::mutex mutex;
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Matrices>();
    auto sharded = fully_shard(*model, group);
    Both both(*model);
    train_steps(model, sharded.get(), both, {}, group.rank(), 2);
    StateDict mine = full_state_dict(*sharded), optimizer = full_optim_state_dict(*sharded, *both.muon);
    std::vector<StateSlice> some = sharded_optim_state_dict(*both.muon);
    std::lock_guard lock(mutex);
    pieces.insert(pieces.end(), some.begin(), some.end());
    if (group.rank() == 0) weights = mine, state = optimizer;
  });
  ASSERT_TRUE(state.contains("block.up.weight.momentum_buffer"));
  for (int world : {1, 2, 3, 4}) {
    Weights expected;
    for (const Config& config : strategies(world))
      for (bool whole : {true, false})
        dist::run_ranks(world, [&](dist::ProcessGroup& group) {
          auto model = nn::make<Matrices>();
          auto sharded = fully_shard(*model, group, config);
          Both both(*model);
          load_full_state_dict(*sharded, weights);
          if (whole)
            load_full_optim_state_dict(*sharded, *both.muon, state);
          else
            load_sharded_optim_state_dict(*sharded, *both.muon, pieces);
          for (auto& [name, tensor] : full_optim_state_dict(*sharded, *both.muon, false))
            if (whole || !name.ends_with(".step")) {
              EXPECT_EQ(values_of(tensor), values_of(state.at(name))) << name;
            }
          train_steps(model, sharded.get(), both, {}, group.rank(), world, 1);
          Weights end = weights_of(*sharded);
          if (group.rank() > 0) return;
          if (expected.empty()) expected = end;
          EXPECT_EQ(end, expected) << name_of(config.strategy) << " W=" << world;
        });
  }
}

// --- rounds --------------------------------------------------------------------------------------------------------

/// A tensor of these elements, cut at multiples of `shard` counted from `offset`.
WholeTensor cut(size_t index, int64_t numel, int ranks, int64_t shard, int64_t offset, double cost,
                DType dtype = DType::f32) {
  WholeTensor tensor{index, {.dtype = dtype}, cost};
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t begin = std::clamp<int64_t>(rank * shard - offset, 0, numel);
    tensor.spread.parts.push_back({begin, std::clamp<int64_t>((rank + 1) * shard - offset, 0, numel) - begin});
  }
  return tensor;
}

TEST(WholeRounds, HaveOneTensorForEachRankTheDearestFirst) {
  std::vector<WholeTensor> tensors{cut(0, 90, 3, 30, 0, 5), cut(1, 60, 3, 40, 0, 9), cut(2, 60, 3, 40, 60, 9),
                                   cut(3, 30, 3, 10, 0, 1), cut(4, 0, 3, 10, 0, 7),  cut(5, 9, 3, 3, 0, 2)};
  std::vector<WholeRound> rounds = plan_rounds(tensors, 3);
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].tensors, (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(rounds[0].slot, 40) << "what rank 0 holds of tensor 1";
  EXPECT_EQ(rounds[1].tensors, (std::vector<size_t>{5, 3})) << "the empty one is left out";
  EXPECT_EQ(rounds[1].slot, 10);
}

TEST(WholeRounds, AreOfOneDtype) {
  std::vector<WholeTensor> tensors{cut(0, 8, 2, 4, 0, 1, DType::f64), cut(1, 8, 2, 4, 0, 2),
                                   cut(2, 8, 2, 4, 0, 3, DType::f64)};
  std::vector<WholeRound> rounds = plan_rounds(tensors, 2);
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].tensors.size() + rounds[1].tensors.size(), 3u);
  for (const WholeRound& round : rounds)
    for (size_t i : round.tensors) EXPECT_EQ(tensors[i].spread.dtype, tensors[round.tensors[0]].spread.dtype);
}

/// The rounds of the model's matrices as they lie on ranks.
std::vector<WholeRound> rounds_of(const Sharded& sharded, const optim::Muon& muon) {
  std::vector<WholeTensor> tensors;
  for (const NamedParameter& p : muon.parameters()) {
    const Location& where = sharded.index().at(p.name);
    double rows = double(p.tensor.shape()[0]), columns = double(p.tensor.shape()[1]), least = std::min(rows, columns);
    tensors.push_back(
        {tensors.size(), where.flat->spread(where.slice), least * least * (2 * rows * columns / least + least)});
  }
  return plan_rounds(tensors, sharded.mesh().parts());
}

TEST(ShardedMuon, AStepSendsTwoSlotsForEachPairOfRanksInEachRound) {
  for (int world : {1, 2, 3, 4})
    for (const Config& config : strategies(world))
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        SCOPED_TRACE(concat(name_of(config.strategy), " W=", world));
        auto model = nn::make<Matrices>();
        auto sharded = fully_shard(*model, group, config);
        Both both(*model);
        loss_of(model, 0, 0, 4).backward();
        context().recorder().clear();
        both.muon->step();
        int64_t sent = 0, expected = 0, parts = sharded->mesh().parts(), calls = 0;
        for (const Record& record : context().recorder().records())
          if (record.op == "all_to_all") sent += record.bytes_sent, ++calls;
        if (parts == 1) {
          EXPECT_EQ(calls, 0) << "every rank has whole matrices";
          return;
        }
        std::vector<WholeRound> rounds = rounds_of(*sharded, *both.muon);
        EXPECT_EQ(rounds.size(), (6 + size_t(parts) - 1) / size_t(parts));
        for (const WholeRound& round : rounds) expected += 2 * 4 * round.slot * (parts - 1);
        EXPECT_EQ(sent, expected);
        EXPECT_EQ(calls, 2 * int64_t(rounds.size()));
      });
}

// What is sent and what arrives is each at most one unit's; the matrix is there when these are given back.
TEST(ShardedMuon, AStepNeedsTheElementsOfOneRoundTwiceAndOneMatrix) {
  for (int world : {2, 3, 4})
    for (Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Matrices>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
        Both both(*model);
        int64_t largest_unit = 0, slots = 0;
        for (const FlatParam* flat : sharded->flats()) largest_unit = std::max(largest_unit, 4 * flat->padded());
        for (int i = 0; i < 2; ++i) {
          loss_of(model, i, 0, 4).backward();
          int64_t before = context().ledger().current();
          if (i > 0) context().ledger().reset_peaks();
          both.muon->step();
          if (i > 0) {
            EXPECT_LE(context().ledger().current(), before) << "nothing is left but what was there";
          }
          EXPECT_EQ(bytes(Category::whole_tensor), 0);
          both.zero_grad();
        }
        for (const WholeRound& round : rounds_of(*sharded, *both.muon)) slots = std::max(slots, 4 * world * round.slot);
        EXPECT_LE(slots, largest_unit);
        // Of the matrix 13 x 17: X twice, and products of 13 x 13.
        int64_t matrix = 4 * 13 * 17, product = 4 * 13 * 13;
        EXPECT_GE(context().ledger().peak(Category::whole_tensor), 2 * slots);
        EXPECT_LE(context().ledger().peak(Category::whole_tensor),
                  std::max(2 * slots + matrix, 2 * matrix + 3 * product));
      });
}

TEST(ShardedMuon, EachMatrixIsComputedByOneOfTheRanksThatShareIt) {
  for (Strategy strategy : {Strategy::zero1, Strategy::zero3, Strategy::ddp}) {
    std::array<double, 3> flops{};
    dist::run_ranks(3, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Matrices>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      Both both(*model);
      loss_of(model, 0, 0, 4).backward();
      FlopCount count;
      both.muon->step();
      flops[size_t(group.rank())] = count.get();
    });
    double all = 0;  // two products of the shorter side squared by the longer, one of its cube, five times
    for (auto [shorter, longer] :
         std::vector<std::pair<double, double>>{{7, 13}, {13, 17}, {13, 17}, {2, 3}, {5, 13}, {5, 5}})
      all += 5 * 2 * (2 * shorter * shorter * longer + shorter * shorter * shorter);
    double sum = flops[0] + flops[1] + flops[2];
    EXPECT_EQ(sum, strategy == Strategy::ddp ? 3 * all : all);
    if (strategy != Strategy::ddp) {
      EXPECT_LT(*std::ranges::max_element(flops), 0.6 * sum) << "no rank does most";
    }
  }
}

TEST(ShardedMuon, APlanKnowsWhatAStepNeedsAndSends) {
  for (int world : {1, 2, 3}) {
    Plan planned, measured;
    for (Device device : {kMeta, kCpu})
      dist::run_ranks(world,
                      [&](dist::ProcessGroup& group) {
                        auto model = nn::make<Matrices>();
                        auto sharded = fully_shard(*model, group);
                        Both both(*model);
                        Plan plan = make_plan(*sharded, [&] {
                          mse_loss(model(zeros({4, 7})), zeros({4, 5}), 60).backward();
                          both.step();
                          both.zero_grad();
                        });
                        if (group.rank() == 0) (device == kMeta ? planned : measured) = plan;
                      },
                      {.device = device, .threads = 1});
    EXPECT_GT(planned.peaks[Category::whole_tensor], 0);
    EXPECT_EQ(planned, measured) << planned.table() << measured.table();
  }
}

TEST(ShardedMuon, WhatIsNoMatrixAndAPartOfALargerOneAreRefusedByName) {
  struct Split : nn::Module {
    Tensor weight;
    explicit Split(int rank) { weight = param("weight", {3, 7}, nn::init::normal(0, 1), {0, 3 * rank, 6}); }
    Tensor forward(const Tensor& x) { return linear(x, weight, {}); }
  };
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Matrices>();
    auto sharded = fully_shard(*model, group);
    std::string what = message_of([&] { optim::Muon(model->named_parameters(), {}); });
    EXPECT_TRUE(contains(what, "Muon: ") && contains(what, "such as AdamW")) << what;
    parallel::Mesh mesh(group, {{"data", 1}, {"model", 2}});
    auto split = nn::make<Split>(mesh.group("model").rank());
    auto over_data = fully_shard(*split, mesh, "data");
    what = message_of([&] { optim::Muon(split->named_parameters(), {}); });
    EXPECT_TRUE(contains(what, "'weight' is a part of a larger matrix")) << what;
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
