// Parameters gathered and computed in 16 bits from shards in 32: the same bits under every strategy, half the traffic,
// and nothing added up in 16 bits.

#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/fsdp/plan.h>

#include <gtest/gtest.h>

#include <cmath>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

struct Dtypes {
  std::optional<DType> param, reduce;
};
const std::vector<Dtypes> kDtypes{{DType::bf16, {}}, {DType::f16, {}}, {DType::bf16, DType::bf16}, {{}, DType::bf16}};

Config with(Config config, const Dtypes& dtypes) {
  config.param_dtype = dtypes.param;
  config.reduce_dtype = dtypes.reduce;
  return config;
}

std::string describe_dtypes(const TrainingRun& setup) {
  const Config& c = setup.config;
  auto name = [](std::optional<DType> dtype) { return dtype ? name_of(*dtype) : "own"; };
  return concat(name_of(c.strategy), c.keep_params ? " keep_params" : "", " groups of ", c.shard_ranks,
                " W=", setup.world, " on ", setup.device, " params ", name(c.param_dtype), " reduced in ",
                name(c.reduce_dtype), setup.no_sync ? " no_sync" : "", " prefetch ", c.prefetch, " offload ",
                c.move_params_to_cpu, c.grads_to_cpu());
}

// With groups, sums in 16 bits are rounded once more between the groups.
bool same_sums(const Config& config, int world) {
  bool groups = config.strategy == Strategy::hybrid && config.shard_ranks > 1 && config.shard_ranks < world;
  return !groups || !config.reduce_dtype;
}

using ParamDtypeModels = ModelList<Rooted, Twice, Unused, Frozen, TiedAcross, Tiny>;
class ParamDtype : public ::testing::TestWithParam<MakeModel> {};
INSTANTIATE_TEST_SUITE_P(Models, ParamDtype, ParamDtypeModels::values(), ParamDtypeModels::title);

TEST_P(ParamDtype, I03_I05_I12_EveryStrategyGivesTheSameBits) {
  for (int world : {1, 2, 4})
    for (const Dtypes& dtypes : kDtypes)
      for (bool no_sync : {false, true}) {
        TrainingRun setup{
            .world = world, .optim = Optim::adamw, .steps = 2, .micro = 2, .no_sync = no_sync, .clip = 0.05};
        setup.config = with({.strategy = Strategy::ddp, .bucket_bytes = 0}, dtypes);
        Outcome expected = train(GetParam(), setup);
        for (const Config& config : strategies(world)) {
          setup.config = with(config, dtypes);
          if (!same_sums(setup.config, world)) continue;
          EXPECT_TRUE(train(GetParam(), setup) == expected) << describe_dtypes(setup);
        }
      }
}

TEST_P(ParamDtype, I03_PrefetchPlacementAndWrappingChangeNothing) {
  for (const Dtypes& dtypes : {kDtypes[0], kDtypes[2]}) {
    TrainingRun setup{.world = 2, .steps = 2, .micro = 2, .no_sync = true, .clip = 0.05};
    setup.config = with({.strategy = Strategy::ddp, .bucket_bytes = 0}, dtypes);
    Outcome expected = train(GetParam(), setup);
    setup.device = kAcc;
    for (const Config& config :
         {Config{.strategy = Strategy::zero1, .bucket_bytes = 0}, Config{.prefetch = 0}, Config{.prefetch = 2},
          Config{.move_params_to_cpu = true}, Config{.move_grads_to_cpu = true},
          Config{.move_params_to_cpu = true, .move_grads_to_cpu = false}, Config{.wrap = wrap_by_size(1)},
          Config{.wrap = wrap_by_size(1 << 30)}}) {
      setup.config = with(config, dtypes);
      EXPECT_TRUE(train(GetParam(), setup) == expected) << describe_dtypes(setup);
    }
    setup.delay_seed = 3;
    EXPECT_TRUE(train(GetParam(), setup) == expected) << describe_dtypes(setup) << " delayed";
  }
}

TEST_P(ParamDtype, TrainsCloseToSinglePrecision) {
  TrainingRun setup{.world = 2};
  Outcome single = train(GetParam(), setup);
  for (const Dtypes& dtypes : kDtypes) {
    setup.config = with({}, dtypes);
    Outcome mixed = train(GetParam(), setup);
    for (size_t i = 0; i < single.losses.size(); ++i)
      EXPECT_NEAR(mixed.losses[i], single.losses[i], 0.02 * single.losses[i])
          << describe_dtypes(setup) << " step " << i;
  }
}

TEST(ParamDtypes, I03_RecomputeChangesNothing) {
  struct Again : Chain {
    Again() { nn::recompute_by_type(*this, {"Linear"}); }
  };
  struct Whole : Chain {
    Whole() { nn::recompute(*this); }
  };
  for (const Dtypes& dtypes : kDtypes)
    for (Device device : {kCpu, kAcc}) {
      TrainingRun setup{.world = 2, .config = with({}, dtypes), .device = device, .steps = 3};
      Outcome expected = train<Chain>(setup);
      EXPECT_TRUE(train<Again>(setup) == expected) << describe_dtypes(setup);
      EXPECT_TRUE(train<Whole>(setup) == expected) << describe_dtypes(setup);
    }
}

// --- dtypes ---------------------------------------------------------------------------------------------------------

// A summoned parameter is f32, and the memory of its gradient is not.
TEST(ParamDtypes, I40_WhatWasRecordedOfASummonedParameterHasNoBackward) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, group, with(config, {.param = DType::bf16}));
      Tensor total;
      {
        SummonFullParams whole(*sharded);
        total = sum(model->a->weight);
      }
      std::string what = message_of([&] { total.backward(); });
      EXPECT_TRUE(contains(what, "sum: input 0 had another dtype") && contains(what, "detach()")) << what;
    });
}

/// Notes what its parts see.
struct Witness : nn::Module {
  struct Inner : nn::Module {
    Tensor weight = param("weight", {5, 7}, nn::init::normal(0, 0.5)), shift = buffer("shift", {5}, DType::f32, 0.1),
           count = buffer("count", {1}, DType::i64, 3);
    DType input = DType::u8, seen = DType::u8;
    Tensor forward(const Tensor& x) {
      input = x.dtype();
      seen = weight.dtype();
      return matmul(x, weight, false, true) + shift.to(x.dtype());
    }
  };
  nn::Child<Inner> inner = child<Inner>("inner");
  DType input = DType::u8;
  Tensor forward(const Tensor& x) {
    input = x.dtype();
    return inner(x.to(DType::f32));  // a unit converts what it is given, too
  }
};

TEST(ParamDtypes, I11_I12_I13_B07_B08_B17_WhatEachThingIsComputedAndKeptIn) {
  for (DType narrow : {DType::bf16, DType::f16})
    for (int world : {1, 2})
      for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3})
        dist::run_ranks(world, [&](dist::ProcessGroup& group) {
          auto model = nn::make<Witness>();
          auto sharded = fully_shard(
              *model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy), .param_dtype = narrow});
          optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
          context().recorder().clear();
          Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
          x.set_requires_grad();
          Tensor y = model(x);
          EXPECT_EQ(y.dtype(), narrow);
          sum(y.to(DType::f32)).backward();
          EXPECT_EQ(model->input, narrow);
          EXPECT_EQ(model->inner->input, narrow);
          EXPECT_EQ(model->inner->seen, narrow);
          EXPECT_EQ(model->inner->shift.dtype(), DType::f32) << "buffers only when asked for";
          for (const Record& record : context().recorder().records()) {
            if (record.op == "reshard") continue;
            EXPECT_EQ(record.dtype, record.op == "all_gather" ? narrow : DType::f32) << record.op;
          }
          const FlatParam& flat = *sharded->units()[0]->flat_params()[0];
          EXPECT_EQ(flat.shard().dtype(), DType::f32);
          EXPECT_EQ(flat.grad().dtype(), DType::f32);
          ASSERT_EQ(x.grad().dtype(), DType::f32);
          std::vector<double> column(7), seen = values_of(x.grad()),
                                         weight = values_of(full_state_dict(*sharded, false).at("inner.weight"));
          for (size_t i = 0; i < 35; ++i) column[i % 7] += weight[i];
          for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], column[i % 7], 0.03);
          optimizer.step();
          for (const auto& slice : optimizer.state_slices()) EXPECT_EQ(slice.values.dtype(), DType::f32);
          auto state = full_state_dict(*sharded, false);
          for (const auto& [name, where] : sharded->index()) EXPECT_EQ(state.at(name).dtype(), DType::f32) << name;
        });
}

struct Buffered : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6), out = child<nn::Linear>("out", 6, 5);
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 6);
  nn::Child<Witness::Inner> inner = child<Witness::Inner>("inner");
  Tensor forward(const Tensor& x) { return out(norm(in(x))) + inner(x); }
};

TEST(ParamDtypes, I12_BuffersAreConvertedWhenAskedForAndIntegersNever) {
  for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::bf16)})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Buffered>();
      fully_shard(*model, group, {.param_dtype = DType::bf16, .buffer_dtype = dtype});
      DType expected = dtype.value_or(DType::f32);
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
      sum(model(x)).backward();
      EXPECT_EQ(model->norm->running_mean.dtype(), expected);
      EXPECT_EQ(model->norm->running_var.dtype(), expected);
      EXPECT_EQ(model->inner->shift.dtype(), expected);
      EXPECT_EQ(model->inner->count.dtype(), DType::i64);
      EXPECT_EQ(model->inner->count.item(), 3);
      EXPECT_NEAR(model->inner->shift.rows(0, 1).item(), 0.1, 1e-3);
      EXPECT_NE(model->norm->running_mean.rows(0, 1).item(), 0);
      model->eval();
      NoGrad no_grad;
      EXPECT_EQ(model(x).dtype(), DType::bf16);
    });
}

// --- nothing is added up in 16 bits --------------------------------------------------------------------------------

struct Scale : nn::Module {
  Tensor weight = param("weight", {40}, nn::init::ones());
  Tensor forward(const Tensor& x) { return x * weight; }
};

TEST(ParamDtypes, I05_B41_PassesAreAddedUpInSinglePrecision) {
  constexpr int kPasses = 300;  // a sum of ones in bf16 stays at 256
  auto first_grad = [&](int world, Config config, DType own, bool no_sync, Device device) {
    double result = 0;
    auto body = [&](dist::ProcessGroup& group) {
      auto model = nn::make<Scale>();
      model->to(own);
      auto sharded = fully_shard(*model, group, config);
      for (int i = 0; i < kPasses; ++i) {
        std::optional<NoSync> local;
        if (no_sync && i + 1 < kPasses) local.emplace(*sharded);
        sum(model(ones({40}, own))).backward();
      }
      FlatParam& flat = *sharded->units()[0]->flat_params()[0];
      flat.bring_grad();
      flat.wait_to_update();
      if (group.rank() == 0) result = values_of(flat.grad())[0];
    };
    dist::run_ranks(world, body, {.device = device, .threads = 1});
    return result;
  };
  for (bool no_sync : {false, true})
    for (int world : {1, 2}) {
      for (const Config& config : strategies(world)) {
        Config mixed = with(config, kDtypes[0]);
        EXPECT_EQ(first_grad(world, mixed, DType::f32, no_sync, kCpu), kPasses * world) << name_of(config.strategy);
      }
      Config offload{.move_params_to_cpu = true, .param_dtype = DType::bf16};
      EXPECT_EQ(first_grad(world, offload, DType::f32, no_sync, kAcc), kPasses * world);
      EXPECT_EQ(first_grad(world, {}, DType::bf16, no_sync, kCpu), 256 * world) << "a model that is in bf16 altogether";
    }
}

TEST(ParamDtypes, B24_SmallStepsAreNotLost) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Scale>();
      auto sharded = fully_shard(*model, group, with(config, kDtypes[0]));
      optim::SGD optimizer(model->named_parameters(), {.lr = 0x1p-12});  // bf16 has no number between 1 - 2⁻⁸ and 1
      for (int i = 0; i < 8; ++i) {
        sum(model(ones({40}))).backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      EXPECT_EQ(values_of(full_state_dict(*sharded, false).at("weight"))[0], 1 - 16 * 0x1p-12);
      NoGrad no_grad;
      EXPECT_EQ(model(ones({40})).rows(0, 1).item(), 1 - 0x1p-8);
    });
}

TEST(ParamDtypes, I14_B06_TheNormIsThatOfTheSinglePrecisionGradients) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Scale>();
      auto sharded = fully_shard(
          *model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy), .param_dtype = DType::f16});
      sum(model(full({40}, 40000)).to(DType::f32)).backward();  // squares are beyond f16, the sum of the ranks too
      EXPECT_NEAR(clip_grad_norm(*sharded, 1.0), 80000 * std::sqrt(40.0), 1);
      EXPECT_NEAR(grad_norm(*sharded), 1, 1e-5);
    });
}

// --- traffic and memory --------------------------------------------------------------------------------------------

std::map<std::string, int64_t> bytes_sent(int world, const Config& config) {
  std::map<std::string, int64_t> sent;
  dist::run_ranks(world, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group, config);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    context().recorder().clear();
    for (int i = 0; i < 2; ++i) {
      Tensor x = rows_of_batch("x", i, 0, 4, 7, DType::f32);
      mse_loss(model(x).to(DType::f32), rows_of_batch("t", i, 0, 4, 5, DType::f32), 20).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    for (const Record& record : context().recorder().records())
      if (group.rank() == 0 && !record.unit.empty())
        sent[record.op == "all_gather" ? "gathers" : "reductions"] += record.bytes_sent;
  });
  return sent;
}

TEST(ParamDtypes, I19_B26_GathersAndReductionsInSixteenBitsSendExactlyHalf) {
  for (int world : {2, 4})
    for (const Config& config : strategies(world)) {
      auto single = bytes_sent(world, config), params = bytes_sent(world, with(config, {DType::bf16, {}})),
           both = bytes_sent(world, with(config, {DType::f16, DType::bf16})),
           reductions = bytes_sent(world, with(config, {{}, DType::f16}));
      EXPECT_EQ(2 * params["gathers"], single["gathers"]) << name_of(config.strategy);
      EXPECT_EQ(params["reductions"], single["reductions"]) << name_of(config.strategy);
      EXPECT_EQ(2 * both["gathers"], single["gathers"]) << name_of(config.strategy);
      EXPECT_EQ(2 * both["reductions"], single["reductions"]) << name_of(config.strategy);
      EXPECT_EQ(reductions["gathers"], single["gathers"]) << name_of(config.strategy);
      EXPECT_EQ(2 * reductions["reductions"], single["reductions"]) << name_of(config.strategy);
      EXPECT_GT(single["reductions"], 0);
    }
}

// Bytes per element of the model, in twelfths: between steps, and the gradients before the step.
struct DtypeRow {
  Config config;
  int64_t params, grads, grads_reduced_in_16;
};

TEST(ParamDtypes, I26_I27_I29_MemoryOfEveryStrategyEqualsTheTable) {
  for (int world : {1, 2, 3}) {
    int64_t all = 4 * 12, part = all / world, copy = 2 * 12;
    std::vector<DtypeRow> table{
        {{.strategy = Strategy::ddp, .bucket_bytes = 0}, all + copy, all, all},
        {{.strategy = Strategy::zero1, .bucket_bytes = 0}, part + copy, all, part},
        {{.strategy = Strategy::zero2}, part, part, part},
        {{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0}, part + copy, part, part},
        {{.strategy = Strategy::zero3}, part, part, part}};
    for (const DtypeRow& row : table)
      for (bool narrow : {false, true})
        dist::run_ranks(world, [&](dist::ProcessGroup& group) {
          auto model = nn::make<Rooted>();
          auto sharded = fully_shard(*model, group, with(row.config, kDtypes[narrow ? 2 : 0]));
          SCOPED_TRACE(concat(name_of(row.config.strategy), " W=", world, narrow ? " all bf16" : ""));
          int64_t padded = 0;
          for (const auto& unit : sharded->units()) padded += unit->flat_params()[0]->padded();
          Ledger& ledger = context().ledger();
          auto pass = [&](int number) {
            Tensor x = rows_of_batch("x", number, 0, 4, 7, DType::f32);
            mse_loss(model(x).to(DType::f32), rows_of_batch("t", number, 0, 4, 5, DType::f32), 20).backward();
          };
          EXPECT_EQ(12 * ledger.current(), row.params * padded) << "after construction";
          optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
          for (int step = 0; step < 2; ++step) {
            pass(step);
            int64_t grads = ledger.current(Category::full_gradient) + ledger.current(Category::gradient_shard);
            EXPECT_EQ(12 * grads, (narrow ? row.grads_reduced_in_16 : row.grads) * padded);
            optimizer.step();
            optimizer.zero_grad();
            EXPECT_EQ(12 * ledger.current(), row.params * padded);
          }
          NoSync local(*sharded);
          for (int i = 0; i < 2; ++i) {
            pass(i);
            EXPECT_EQ(ledger.current(Category::full_gradient), 4 * padded) << "added up in f32";
          }
          optimizer.zero_grad();
          EXPECT_EQ(12 * ledger.current(), row.params * padded);
        });
  }
}

TEST(ParamDtypes, I30_OffloadKeepsAConvertedCopyInHostMemoryToo) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& group) {
                    auto model = nn::make<Flat>();
                    Config config{.move_params_to_cpu = true, .param_dtype = DType::bf16};
                    auto sharded = fully_shard(*model, group, config);
                    const FlatParam& flat = *sharded->units()[0]->flat_params()[0];
                    sum(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32))).backward();
                    EXPECT_EQ(context().ledger().current(Category::pinned_host), (4 + 2 + 4) * flat.padded() / 2);
                    EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0);
                  },
                  {.device = kAcc});
}

TEST(ParamDtypes, ThePlanIsWhatIsMeasured) {
  for (int world : {1, 2})
    for (const Config& config : strategies(world)) {
      auto plan_on = [&](Device device) {
        Plan plan;
        auto body = [&](dist::ProcessGroup& group) {
          auto model = nn::make<Rooted>();
          auto sharded = fully_shard(*model, group, with(config, kDtypes[0]));
          optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
          Plan mine = make_plan(*sharded, [&] {
            sum(model(zeros({4, 7}))).backward();
            optimizer.step();
            optimizer.zero_grad();
          });
          if (group.rank() == 0) plan = mine;
        };
        dist::run_ranks(world, body, {.device = device, .threads = 1});
        return plan;
      };
      Plan predicted = plan_on(kMeta), measured = plan_on(kCpu);
      EXPECT_EQ(predicted, measured) << name_of(config.strategy) << predicted.table() << measured.table();
      EXPECT_EQ(predicted.units[1].full_bytes, 2 * (world == 1 ? 96 : 128)) << "(9, 7) and (9), padded";
    }
}

// --- looking, loading, scaling, refusing ---------------------------------------------------------------------------

TEST(ParamDtypes, I37_I40_StateAndSummonedParametersAreTheMasters) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, group, with(config, kDtypes[0]));
      auto state = full_state_dict(*sharded, false);
      bool rounded = true;
      for (double v : values_of(state.at("a.weight"))) rounded = rounded && double(float(bf16(float(v)))) == v;
      EXPECT_FALSE(rounded) << "that of a 16-bit copy";
      {
        SummonFullParams whole(*sharded, true);
        for (const NamedParameter& p : model->named_parameters()) {
          EXPECT_EQ(p.tensor.dtype(), DType::f32);
          EXPECT_EQ(values_of(p.tensor.detach()), values_of(state.at(p.name))) << p.name;
        }
        fill_(model->a->bias, 0.1);
      }
      EXPECT_EQ(model->a->bias.dtype(), DType::bf16);
      EXPECT_EQ(values_of(full_state_dict(*sharded, false).at("a.bias"))[0], double(0.1f));
      NoGrad no_grad;
      Tensor x = zeros({1, 7});
      Tensor before = model(x);
      load_full_state_dict(*sharded, state);
      EXPECT_EQ(values_of(full_state_dict(*sharded, false).at("a.bias")), values_of(state.at("a.bias")));
      EXPECT_NE(values_of(model(x)), values_of(before)) << "gathered anew";
    });
}

TEST(ParamDtypes, I15_AnOverflowInSixteenBitsStopsTheStepOnAllRanks) {
  for (int world : {1, 2, 4})
    for (const Config& config : strategies(world)) {
      std::vector<std::vector<bool>> stepped(static_cast<size_t>(world));
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Chain>();
        auto sharded = fully_shard(*model, group, with(config, kDtypes[1]));
        optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
        auto scaler = sharded_grad_scaler(*sharded, {.init_scale = 0x1p26});
        for (int i = 0; i < 20; ++i) {
          Tensor x = rows_of_batch("x", i, 4 * group.rank(), 4 * group.rank() + 4, 7, DType::f32);
          Tensor t = rows_of_batch("t", i, 4 * group.rank(), 4 * group.rank() + 4, 5, DType::f32);
          scaler.scale(mse_loss(model(x).to(DType::f32), t, 20)).backward();
          stepped[size_t(group.rank())].push_back(scaler.step(optimizer));
          scaler.update();
          optimizer.zero_grad();
        }
        for (auto& [name, tensor] : full_state_dict(*sharded, false))
          for (double value : values_of(tensor)) ASSERT_TRUE(std::isfinite(value)) << name;
      });
      EXPECT_FALSE(stepped[0].front()) << "2²⁶ is beyond f16";
      EXPECT_TRUE(stepped[0].back());
      for (const auto& rank : stepped) EXPECT_EQ(rank, stepped[0]) << name_of(config.strategy);
    }
}

TEST(ParamDtypes, I44_WhatCannotWorkIsRefusedByName) {
  auto refusal = [](const Config& config, DType own = DType::f32) {
    return message_of([&] {
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Chain>();
        model->to(own);
        fully_shard(*model, group, config);
      });
    });
  };
  EXPECT_TRUE(contains(refusal({.param_dtype = DType::i32}), "param_dtype is i32; it must be f32, bf16 or f16"));
  EXPECT_TRUE(contains(refusal({.reduce_dtype = DType::f64}), "reduce_dtype is f64"));
  EXPECT_TRUE(contains(refusal({.buffer_dtype = DType::u8}), "buffer_dtype is u8"));
  EXPECT_TRUE(contains(refusal({.param_dtype = DType::f32}, DType::bf16), "'a.weight' is bf16"));
  EXPECT_TRUE(contains(refusal({.param_dtype = DType::f16}, DType::bf16), "build the model in f32"));
  EXPECT_EQ(refusal({.param_dtype = DType::f32}), "") << "its own dtype";
  EXPECT_EQ(refusal({.param_dtype = DType::f32}, DType::f64), "");
  std::string ranks = message_of([] {
    dist::run_ranks(2, [](dist::ProcessGroup& group) {
      auto model = nn::make<Chain>();
      fully_shard(*model, group, {.reduce_dtype = group.rank() == 0 ? DType::f32 : DType::bf16});
    });
  });
  EXPECT_TRUE(contains(ranks, "different models or sharding options")) << ranks;
}

TEST(OutputDtype, ResultsOfTheRootAreConvertedDifferentiably) {
  for (auto dtype : {std::optional<DType>(), std::optional(DType::f32), std::optional(DType::f16)})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<TwoIn>();
      auto sharded = fully_shard(*model, group, {.param_dtype = DType::bf16, .output_dtype = dtype});
      auto named = model(ones({2, 7}), ones({2, 7}), true);
      for (const auto& [name, tensor] : named) EXPECT_EQ(tensor.dtype(), dtype.value_or(DType::bf16)) << name;
      EXPECT_EQ(model->left(ones({2, 7})).dtype(), DType::bf16) << "not of a unit inside";
      sum(named.at("mixed")).backward();
      for (const FlatParam* flat : sharded->flats()) EXPECT_TRUE(flat->grad().defined());
    });
  std::string refused = message_of([] {
    dist::run_ranks(
        1, [](dist::ProcessGroup& group) { fully_shard(*nn::make<Chain>(), group, {.output_dtype = DType::i64}); });
  });
  EXPECT_TRUE(contains(refused, "output_dtype is i64; it must be f32")) << refused;
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
