// What users do with a sharded model, and what they must not do.

#include <gtest/gtest.h>

#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

TEST(Usage, AShardedParameterOutsideItsUnitIsRefusedWithItsNameAndTheRemedy) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    fully_shard(*model, group);
    std::string what = message_of([&] { sum(model->b->weight); });
    EXPECT_TRUE(contains(what, "'b.weight'") && contains(what, "unit 'b'") && contains(what, "SummonFullParams"))
        << what;
  });
}

TEST(Usage, ForwardOptimizerStepBackwardIsRefusedByName) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Chain>();
      fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
      mse_loss(model(x), t, 20).backward();
      Tensor loss = mse_loss(model(x), t, 20);
      optimizer.step();
      std::string what = message_of([&] { loss.backward(); });
      EXPECT_TRUE(contains(what, "changed in place") && contains(what, ".weight'")) << what;
    });
}

TEST(Usage, I42_B12_SummonedParametersAreWholeAndEqualToTheUnshardedModel) {
  std::map<std::string, std::vector<double>> expected;
  {
    Context context;
    auto model = nn::make<Rooted>();
    model->materialize();
    for (auto& p : model->named_parameters()) expected[p.name] = values_of(p.tensor.detach());
  }
  for (int world : {1, 2, 3})
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group);
      int64_t before = context().ledger().current();
      {
        SummonFullParams whole(*sharded);
        for (auto& p : model->named_parameters()) EXPECT_EQ(values_of(p.tensor.detach()), expected[p.name]) << p.name;
      }
      EXPECT_EQ(context().ledger().current(), before);
    });
}

// Runs `use` on a model of every strategy, on two ranks or four.
template <class Model>
void under_every_strategy(const std::function<void(nn::Child<Model>&, Sharded&, dist::ProcessGroup&)>& use) {
  for (int world : {1, 2, 4})
    for (const Config& config : strategies(world)) {
      SCOPED_TRACE(concat(name_of(config.strategy), " W=", world, " keep_params ", config.keep_params));
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Model>();
        auto sharded = fully_shard(*model, group, config);
        use(model, *sharded, group);
      });
    }
}

std::vector<double> bias_of(Sharded& sharded) { return values_of(full_state_dict(sharded, false).at("a.bias")); }

TEST(Usage, I40_EqualEditsPersistAndDifferentOnesAreRefused) {
  under_every_strategy<Chain>([](nn::Child<Chain>& model, Sharded& sharded, dist::ProcessGroup& group) {
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
    {
      SummonFullParams whole(sharded, true);
      fill_(model->a->bias, 42);
    }
    EXPECT_EQ(bias_of(sharded), std::vector<double>(13, 42.0));
    std::vector<double> y = values_of(model(x));
    for (const char* unit : {"a", "c"}) {
      if (group.size() == 1) continue;  // there is no other edit
      std::string what = message_of([&] {
        SummonFullParams whole(sharded, true);
        fill_(*unit == 'a' ? model->a->bias : model->c->bias, group.rank());
      });
      EXPECT_TRUE(contains(what, concat("unit '", unit, "'")) && contains(what, "differently")) << what;
    }
    EXPECT_EQ(bias_of(sharded), std::vector<double>(13, 42.0));
    EXPECT_EQ(values_of(model(x)), y);
  });
}

TEST(Usage, I40_EditsThatAreNotToBeWrittenBackAreDropped) {
  under_every_strategy<Chain>([](nn::Child<Chain>& model, Sharded& sharded, dist::ProcessGroup&) {
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
    std::vector<double> y = values_of(model(x)), bias = bias_of(sharded);
    {
      SummonFullParams whole(sharded);
      fill_(model->a->bias, 42);
    }
    EXPECT_THROW(
        {
          SummonFullParams whole(sharded, true);
          fill_(model->a->bias, 43);
          fail("boom");
        },
        Error);
    EXPECT_EQ(bias_of(sharded), bias);
    EXPECT_EQ(values_of(model(x)), y);
  });
}

// Between forward and backward `shift` is there, gathered in the root, and nothing has saved it.
TEST(Usage, I40_AnEditOfAGatheredCopyIsRefusedByNameAndHarmsNothing) {
  under_every_strategy<Rooted>([](nn::Child<Rooted>& model, Sharded& sharded, dist::ProcessGroup& group) {
    const FlatParam& flat = *sharded.index().at("shift").flat;
    if (flat.permanent()) return;  // no copy
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), other = ones({5});
    auto gradient = [&](const std::function<void()>& before_backward) {
      Tensor loss = sum(tanh(model(x)));
      before_backward();
      loss.backward();
      std::vector<double> values = values_of(flat.grad());
      model->zero_grad();
      return values;
    };
    std::vector<double> expected = gradient([] {});
    EXPECT_EQ(expected, gradient([&] {
                for (const std::function<void()>& edit : std::vector<std::function<void()>>{
                         [&] { fill_(model->shift, 2); }, [&] { copy_into(model->shift, other); },
                         [&] { group.all_reduce(model->shift).host_wait(); }, [&] { fill_(model->scale, 2); }}) {
                  std::string what = message_of(edit);
                  EXPECT_TRUE(contains(what, "cannot be changed here") && contains(what, "unit 'root'") &&
                              contains(what, "SummonFullParams"))
                      << what;
                }
                EXPECT_TRUE(contains(message_of([&] { fill_(model->shift, 2); }), "'shift'"));
              }))
        << "what was saved is what it was";
  });
}

TEST(Usage, I40_NothingButLookingAndEditingIsAllowedInside) {
  under_every_strategy<Chain>([](nn::Child<Chain>& model, Sharded& sharded, dist::ProcessGroup&) {
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), waiting = sum(model(x));
    sum(model(x)).backward();
    {
      SummonFullParams whole(sharded);
      for (const auto& wrong : std::vector<std::function<void()>>{
               [&] { SummonFullParams again(sharded); }, [&] { model(x); }, [&] { waiting.backward(); },
               [&] { sum(model->a->weight * model->a->weight).backward(); }, [&] { optimizer.step(); },
               [&] { full_state_dict(sharded); }, [&] { load_full_state_dict(sharded, {}); },
               [&] { sharded_state_dict(sharded); }, [&] { load_sharded_state_dict(sharded, {}); },
               [&] { visit_pieces(sharded, {}); }, [&] { fill_pieces(sharded, {}); },
               [&] { full_optim_state_dict(sharded, optimizer); },
               [&] { load_full_optim_state_dict(sharded, optimizer, {}); },
               [&] { sharded_optim_state_dict(optimizer); },
               [&] { load_sharded_optim_state_dict(sharded, optimizer, {}); },
               [&] { visit_optim_pieces(optimizer, {}); }, [&] { fill_optim_pieces(sharded, optimizer, {}); }}) {
        std::string what = message_of(wrong);
        EXPECT_TRUE(contains(what, "SummonFullParams; leave the scope first")) << what;
      }
    }
    optimizer.zero_grad();
    sum(model(x)).backward();
    optimizer.step();
  });
}

// Written to as often as the parameter was, a copy's value would be taken for it.
TEST(Usage, I40_WhatWasSavedOfACopyIsRefusedForTheParameter) {
  under_every_strategy<Chain>([](nn::Child<Chain>& model, Sharded& sharded, dist::ProcessGroup&) {
    for (int edits : {0, 1, 2}) {
      Tensor energy;
      {
        SummonFullParams whole(sharded);
        for (int i = 0; i < edits; ++i) fill_(model->a->weight, 2);
        energy = sum(model->a->weight * model->a->weight);
      }
      std::string what = message_of([&] { energy.backward(); });
      EXPECT_TRUE(contains(what, "'a.weight' was changed in place")) << edits << ": " << what;
    }
  });
}

TEST(Usage, I37_AFullStateDictLoadsAtAnyNumberOfRanks) {
  std::map<std::string, std::vector<double>> saved;
  dist::run_ranks(3, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group);
    auto state = full_state_dict(*sharded);
    if (group.rank() == 0)
      for (auto& [name, tensor] : state) saved[name] = values_of(tensor);
    else
      EXPECT_TRUE(state.empty());
  });
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    context();
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group);
    std::map<std::string, Tensor> state;
    for (auto& [name, where] : sharded->index()) {
      std::vector<float> values(saved[name].begin(), saved[name].end());
      for (float& v : values) v += 1;
      state[name] = from_vector(values, where.flat->slices()[where.slice].shape);
    }
    load_full_state_dict(*sharded, state);
    auto loaded = full_state_dict(*sharded, false);
    for (auto& [name, values] : saved)
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(values_of(loaded.at(name))[i], float(float(values[i]) + 1)) << name;
    state.erase("shift");
    state["stranger"] = zeros({2});
    std::string what = message_of([&] { load_full_state_dict(*sharded, state); });
    EXPECT_TRUE(contains(what, "missing: 'shift'") && contains(what, "unknown: 'stranger'")) << what;
  });
}

TEST(Usage, I43_B20_AnEditBetweenEvaluationsIsSeen) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Flat>();
    auto sharded = fully_shard(*model, group);
    Tensor x = zeros({1, 7});
    NoGrad no_grad;
    EXPECT_EQ(model(x).to_vector<float>()[0], 0);
    {
      SummonFullParams whole(*sharded, true);
      fill_(model->bias, 3);
    }
    EXPECT_EQ(model(x).to_vector<float>()[0], 3);
  });
}

TEST(Usage, I43_B20_AnOptimizerStepWhileParametersAreGatheredIsSeenByTheNextForward) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Flat>();
    auto sharded = fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
    mse_loss(model(x), t, 20).backward();
    std::vector<float> before = model(x).to_vector<float>();  // no backward follows: the root stays gathered
    EXPECT_EQ(sharded->units()[0]->state(), UnitState::unsharded);
    optimizer.step();
    std::vector<float> seen = model(x).to_vector<float>();
    EXPECT_NE(seen, before);
    auto state = full_state_dict(*sharded, false);
    EXPECT_EQ(seen, linear(x, state.at("weight"), state.at("bias")).to_vector<float>());
  });
}

TEST(Usage, AnUnusedParameterOfAUsedUnitHasAZeroGradientThere) {
  dist::run_ranks(
      2,
      [](dist::ProcessGroup& group) {
        auto model = nn::make<Unused>();
        auto sharded = fully_shard(*model, group);
        for (int pass = 0; pass < 3; ++pass) {  // freed memory of this device is poisoned, not zero
          Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
          mse_loss(model(x), t, 20).backward();
          const FlatParam& flat = *sharded->index().at("lucky.extra").flat;
          const Slice& slice = flat.slices()[sharded->index().at("lucky.extra").slice];
          std::vector<double> grad = values_of(flat.grad());
          for (int64_t i = std::max(int64_t(0), slice.offset - flat.shard_begin()); i < flat.grad().numel(); ++i)
            EXPECT_EQ(grad[size_t(i)], 0);
          model->zero_grad();
        }
      },
      {.device = kAcc});
}

TEST(Usage, ShardingTwiceIsRefused) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    fully_shard(*model, group);
    EXPECT_TRUE(contains(message_of([&] { fully_shard(*model, group); }), "sharded already"));
  });
}

// What one rank may have otherwise than the others.
struct Variant {
  const char* what;
  const char *name = "weight", *buffer = "seen";
  Shape shape{5, 7}, buffer_shape{3};
  DType buffer_dtype = DType::f32;
  bool swapped = false, frozen = false, one_unit = false;
};

struct OfOneWeight : nn::Module {
  OfOneWeight(const char* name, const Shape& shape) { param(name, shape, nn::init::ones()); }
  Tensor forward(const Tensor& x) { return x; }
};

struct OfVariant : nn::Module {
  explicit OfVariant(const Variant& variant) {
    for (const char* name : {variant.swapped ? "b" : "a", variant.swapped ? "a" : "b"})
      child<OfOneWeight>(name, *name == 'a' ? variant.name : "weight", *name == 'a' ? variant.shape : Shape{5, 7});
    buffer(variant.buffer, variant.buffer_shape, variant.buffer_dtype);
    if (variant.frozen) named_parameters()[0].tensor.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) { return x; }
};

// All of these would train on, and mix what does not belong together.
TEST(Usage, RanksWithDifferentModelsAreRefusedAtOnce) {
  const Variant variants[] = {{.what = "the same"},
                              {.what = "name", .name = "weights"},
                              {.what = "shape of as many elements", .shape = {7, 5}},
                              {.what = "order", .swapped = true},
                              {.what = "frozen", .frozen = true},
                              {.what = "name of a buffer", .buffer = "saw"},
                              {.what = "shape of a buffer", .buffer_shape = {1, 3}},
                              {.what = "dtype of a buffer", .buffer_dtype = DType::i32},
                              {.what = "units", .one_unit = true}};
  for (const Variant& other : variants)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      const Variant& mine = variants[group.rank() == 0 ? 0 : &other - variants];
      auto model = nn::make<OfVariant>(mine);
      Config config{.wrap = wrap_by_name({mine.one_unit ? "a" : "?"})};
      std::string expected = "fully_shard: rank 1 and rank 0 have different models or sharding options; build the same";
      std::string what = message_of([&] { fully_shard(*model, group, config); });
      EXPECT_EQ(contains(what, expected), &other != variants) << other.what << ": " << what;
    });
}

TEST(Usage, I44_B36_AnOptimizerBuiltBeforeShardingIsRefusedWithTheLineToMove) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    model->materialize();
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    fully_shard(*model, group);
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
    mse_loss(model(x), t, 20).backward();
    EXPECT_TRUE(contains(message_of([&] { optimizer.step(); }), "after")) << message_of([&] { optimizer.step(); });
  });
}

TEST(Usage, GradientsAccumulateOverBackwardPasses) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto once = [&](int passes) {
        auto model = nn::make<Chain>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
        Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
        for (int i = 0; i < passes; ++i) mse_loss(model(x), t, 20).backward();
        return values_of(sharded->units()[0]->flat_params()[0]->grad());
      };
      std::vector<double> one = once(1), two = once(2);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(two[i], 2 * one[i]);
    });
}

TEST(Usage, I44_B01_ImpossibleOptionsAreRefusedNamingThem) {
  dist::run_ranks(4, [](dist::ProcessGroup& group) {
    auto refusal = [&](Config config) {
      auto model = nn::make<Chain>();
      return message_of([&] { fully_shard(*model, group, config); });
    };
    EXPECT_TRUE(contains(refusal({.strategy = Strategy::hybrid}), "shard_ranks"));
    EXPECT_TRUE(contains(refusal({.strategy = Strategy::hybrid, .shard_ranks = 3}), "divides 4"));
    EXPECT_TRUE(contains(refusal({.strategy = Strategy::zero3, .shard_ranks = 2}), "only hybrid"));
    EXPECT_TRUE(contains(refusal({.strategy = Strategy::zero3, .keep_params = true}), "keep_params is for zero2"));
    EXPECT_TRUE(contains(refusal({.prefetch = -1}), "prefetch"));
    for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
      for (int64_t bytes : {0, 1, 25 << 20})
        EXPECT_TRUE(contains(refusal({.strategy = strategy, .bucket_bytes = bytes}), "bucket_bytes is for ddp"));
    for (Strategy strategy : {Strategy::ddp, Strategy::zero1})
      EXPECT_TRUE(
          contains(refusal({.strategy = strategy, .bucket_bytes = no_buckets(strategy), .move_params_to_cpu = true}),
                   "move_params_to_cpu"));
    EXPECT_TRUE(contains(
        refusal({.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0, .move_grads_to_cpu = true}),
        "move_grads_to_cpu"));
  });
}

TEST(Usage, NamesOfOtherSystemsAreUnderstood) {
  std::map<Strategy, std::vector<std::string>> names{
      {Strategy::ddp, {"ddp", "DDP", "NO_SHARD", "no-shard"}},
      {Strategy::zero1, {"zero1", "ZeRO-1", "OSS"}},
      {Strategy::zero2, {"zero2", "ZeRO-2", "SHARD_GRAD_OP", "ShardedDDP", "sharded_ddp"}},
      {Strategy::zero3, {"zero3", "ZeRO-3", "FSDP", "FULL_SHARD"}},
      {Strategy::hybrid, {"hybrid", "HSDP", "HYBRID_SHARD"}}};
  for (auto& [strategy, known] : names)
    for (const std::string& name : known) EXPECT_EQ(parse_strategy(name), strategy) << name;
  EXPECT_TRUE(contains(message_of([] { parse_strategy("zero4"); }), "hybrid_shard"));
}

TEST(Usage, I43_AKeptParameterThatIsOutOfDateCannotBeRead) {
  for (Config config : {Config{.strategy = Strategy::zero1, .bucket_bytes = 0},
                        Config{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0}})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Flat>();
      auto sharded = fully_shard(*model, group, config);
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
      mse_loss(model(x), t, 20).backward();
      values_of(model->weight.detach());
      optimizer.step();
      EXPECT_TRUE(contains(message_of([&] { sum(model->weight); }), "SummonFullParams"));
      NoGrad no_grad;
      model(x);
      EXPECT_EQ(values_of(model->weight.detach()), values_of(full_state_dict(*sharded, false).at("weight")));
    });
}

// Rank 1 holds only the parameter that is never used, so its optimizer updates nothing of the unit; it must gather all
// the same.
TEST(Usage, ARankWhoseShardIsNotUpdatedGathersWithTheOthers) {
  struct Halves : nn::Module {
    Tensor used = param("used", {32}, nn::init::ones()), spare = param("spare", {32}, nn::init::ones());
    Tensor forward(const Tensor& x) { return x * used; }
  };
  for (Config config : {Config{.strategy = Strategy::zero1, .bucket_bytes = 0},
                        Config{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0}})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Halves>();
      fully_shard(*model, group, config);
      optim::SGD optimizer(model->named_parameters(), {.lr = 1});
      sum(model(ones({32}))).backward();
      optimizer.step();
      EXPECT_EQ(sum(model(ones({32}))).item(), 32 * (1 - 2));
    });
}

TEST(Usage, MetaDeviceRunsTheWholeStepWithoutMemory) {
  dist::run_ranks(4,
                  [](dist::ProcessGroup& group) {
                    auto model = nn::make<Rooted>();
                    fully_shard(*model, group);
                    Tensor x = empty({1 << 20, 7});
                    mse_loss(model(x), empty({1 << 20, 5}), 1).backward();
                    EXPECT_GT(context().ledger().peak(), int64_t(1) << 26);
                  },
                  {.device = kMeta});
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
