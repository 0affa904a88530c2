// What the reduced gradient is: the sum over ranks, uses and passes, for parameters and inputs.

#include <shardgrad/fsdp/finite.h>
#include <shardgrad/fsdp/grad_scaler.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/autograd/support.h"
#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// The whole reduced gradient of every parameter that has one, on every rank.
Weights gradients_of(Sharded& sharded) {
  Weights gradients;
  for (const auto& [name, where] : sharded.index()) {
    const Slice& slice = where.flat->slices()[where.slice];
    std::vector<double> whole(size_t(slice.numel()));
    Owned own = where.flat->owned(where.slice);
    std::vector<double> mine = values_of(where.flat->grad().rows(own.at, own.at + own.count));
    std::ranges::copy(mine, whole.begin() + own.in_slice * (own.count > 0));
    if (dist::ProcessGroup* row = sharded.mesh().shard()) {
      Tensor sum = from_vector<double>(whole, {slice.numel()}, {DType::f64, kCpu});
      row->all_reduce(sum).host_wait();
      whole = sum.to_vector<double>();
    }
    gradients[name] = whole;
  }
  return gradients;
}

TEST(Gradients, I02_EveryOptimizerStepsAlikeUnderEveryStrategy) {
  using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<NamedParameter>)>;
  std::vector<Make> optimizers{
      [](auto p) { return std::make_unique<optim::SGD>(p, optim::SgdOptions{.lr = 0.1}); },
      [](auto p) {
        optim::SgdOptions options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
        return std::make_unique<optim::SGD>(p, options);
      },
      [](auto p) { return std::make_unique<optim::Adam>(p, optim::AdamOptions{.lr = 0.02, .weight_decay = 0.1}); },
      [](auto p) { return std::make_unique<optim::AdamW>(p, optim::AdamOptions{.lr = 0.02, .weight_decay = 0.1}); }};
  for (const Make& make : optimizers)
    for (int world : {2, 3})
      same_weights<Wide>(
          [&](nn::Child<Wide>& model, Sharded&, dist::ProcessGroup& group) {
            auto optimizer = make(model->named_parameters());
            for (int step = 0; step < 4; ++step) train_step(model, *optimizer, step, group.rank());
          },
          world);
}

TEST(Gradients, AParameterThatIsFrozenBetweenBackwardAndStepIsLeftAlone) {
  struct Two : nn::Module {
    Tensor a = param("a", {40}, nn::init::ones()), b = param("b", {40}, nn::init::ones());
    Tensor forward(const Tensor& x) { return sum(x * a) + sum(x * b); }
  };
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Two>();
    auto sharded = fully_shard(*model, group, {});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.25});
    model(ones({40})).backward();
    model->b.set_requires_grad(false);
    optimizer.step();
    auto weights = full_state_dict(*sharded, false);
    EXPECT_EQ(values_of(weights.at("a")), std::vector<double>(40, 0.5));
    EXPECT_EQ(values_of(weights.at("b")), std::vector<double>(40, 1));
  });
}

TEST(Gradients, MaximaAreTheLargestOfARanksOwnPart) {
  struct Slope : nn::Module {
    Tensor w = param("w", {100}, nn::init::ones());
    Tensor forward(const Tensor& x) { return sum(x * w); }
  };
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Slope>();
    auto sharded = fully_shard(*model, group, {});
    model(affine(arange(100, DType::f32), 0.25, -15)).backward();
    std::vector<GradMaxima> maxima = grad_maxima(*sharded);
    ASSERT_EQ(maxima.size(), 1);
    EXPECT_EQ(std::ranges::max(values_of(maxima[0].values)), group.rank() == 0 ? 30 : 19.5) << "of (i - 60) / 2";
  });
}

// The batch has one sample per rank, and sample r has gradient r everywhere.
TEST(Gradients, I04_B05_TheReducedGradientIsTheMeanOverTheGlobalBatch) {
  struct Ones : nn::Module {
    Tensor w = param("w", {40}, nn::init::ones());
    Tensor forward(const Tensor& x) { return sum(x * w); }
  };
  for (int world : {1, 2, 3, 4, 5, 8, 16})
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Ones>();
        auto sharded = fully_shard(*model, group, {.strategy = strategy});
        (model(full({40}, group.rank())) * (1.0 / world)).backward();
        double mean = double(world - 1) / 2, ulp = mean * std::numeric_limits<float>::epsilon();
        bool power_of_two = (world & (world - 1)) == 0;
        Weights gradients = gradients_of(*sharded);
        for (double g : gradients.at("w"))
          EXPECT_NEAR(g, mean, power_of_two ? 0 : ulp) << name_of(strategy) << " W=" << world;
      });
}

// A step of size 1 of plain SGD: the gradient is what the weights lose.
template <class Model> Weights gradients_by_a_step(int world, const Config& config, bool recompute) {
  Weights gradients;
  dist::run_ranks(world, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Model>();
    model->to(DType::f64);
    if (recompute) nn::recompute_by_type(*model, {"Linear"});
    auto sharded = fully_shard(*model, group, config);
    int64_t begin = 12 * group.rank() / world, end = 12 * (group.rank() + 1) / world;
    Tensor x = rows_of_batch("x", 0, begin, end, 7, DType::f64), t = rows_of_batch("t", 0, begin, end, 5, DType::f64);
    mse_loss(model(x), t, 60).backward();
    Weights mine = gradients_of(*sharded);
    if (group.rank() == 0) gradients = mine;
  });
  return gradients;
}

// The reference has a copy of the weight for every use and adds up their gradients.
TEST(Gradients, AHookFromBeforeShardingSeesWhatItsRankHasComputed) {
  for (const Config& config : kAll)
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      Tensor x = rows_of_batch("x", 0, 4 * group.rank(), 4 * group.rank() + 4, 7, DType::f32);
      auto plain = nn::make<Wide>(), model = nn::make<Wide>();
      sum(plain(x)).backward();
      NamedParameter first = model->named_parameters()[0];
      std::vector<double> seen;
      first.tensor.register_hook([&](const Tensor& gradient) {
        seen = values_of(gradient);
        return gradient * 0;
      });
      auto sharded = fully_shard(*model, group, config);
      sum(model(x)).backward();
      EXPECT_EQ(seen, values_of(plain->named_parameters()[0].tensor.grad())) << name_of(config.strategy);
      std::vector<double> reduced = gradients_of(*sharded).at(first.name);
      EXPECT_EQ(reduced, std::vector<double>(reduced.size(), 0)) << name_of(config.strategy);
    });
}

TEST(Gradients, I06_AUnitUsedSeveralTimesHasTheSumOfItsUses) {
  struct Thrice : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6), mix = child<nn::Linear>("mix", 6, 6),
                          out = child<nn::Linear>("out", 6, 5);
    Tensor forward(const Tensor& x) { return out(tanh(mix(tanh(mix(tanh(mix(tanh(in(x))))))))); }
  };
  std::vector<double> expected(36);
  {
    Context context;
    auto model = nn::make<Thrice>();
    model->to(DType::f64);
    model->materialize();
    std::vector<Tensor> copies;
    Tensor h = tanh(model->in(rows_of_batch("x", 0, 0, 12, 7, DType::f64)));
    for (int use = 0; use < 3; ++use) {
      copies.push_back(clone(model->mix->weight.detach()).set_requires_grad());
      h = tanh(linear(h, copies.back(), model->mix->bias));
    }
    mse_loss(model->out(h), rows_of_batch("t", 0, 0, 12, 5, DType::f64), 60).backward();
    for (const Tensor& copy : copies)
      for (size_t i = 0; i < 36; ++i) expected[i] += values_of(copy.grad())[i];
  }
  for (int world : {1, 2, 3}) {
    Weights first = gradients_by_a_step<Thrice>(world, {.strategy = Strategy::ddp}, false);
    test::expect_close(first.at("mix.weight"), expected, 1e-13, concat("W=", world));
    for (const Config& config : kAll)
      for (bool recompute : {false, true})
        EXPECT_EQ(gradients_by_a_step<Thrice>(world, config, recompute), first)
            << name_of(config.strategy) << " W=" << world << " recompute " << recompute;
  }
}

template <class Model> void expect_tied(const char* first, const char* second, const char* unit) {
  TrainingRun plain{.shard = false, .dtype = DType::f64, .no_sync = true};
  Outcome expected = train<Model>(plain);
  for (int world : {1, 2, 3}) {
    TrainingRun setup = plain;
    setup.shard = true;
    setup.world = world;
    Outcome outcome = train<Model>(setup);
    EXPECT_TRUE(world > 1 || outcome == expected) << unit;
    for (const auto& [name, values] : expected.weights)
      test::expect_close(outcome.weights.at(name), values, 1e-12, name);
  }
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Model>();
    auto aliases = model->aliases();
    auto sharded = fully_shard(*model, group);
    EXPECT_EQ(aliases.at(second), first);
    EXPECT_EQ(sharded->index().at(first).unit->name(), unit);
    EXPECT_FALSE(sharded->index().contains(second)) << "one owner, one gradient, one place in memory";
    int64_t numel = 0, distinct = 0;
    for (const auto& u : sharded->units()) numel += u->numel();
    for (const NamedParameter& parameter : model->named_parameters()) distinct += parameter.tensor.numel();
    EXPECT_EQ(numel, distinct);
  });
}

TEST(Gradients, I07_ATiedParameterIsOneParameterWhicheverUnitsUseIt) {
  expect_tied<Tied>("pair.first.weight", "pair.second.weight", "pair");
  expect_tied<TiedAcross>("first.weight", "second.weight", "root");
  expect_tied<TiedToParent>("weight", "inner.weight", "root");
}

TEST(Gradients, I11_B17_OneRankInMixedPrecisionHasTheSinglePrecisionGradientsOfAPlainModel) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Weights expected;
    auto pass = [&](nn::Child<Chain>& model) {
      Autocast precision(dtype);
      mse_loss(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32)), rows_of_batch("t", 0, 0, 4, 5, DType::f32), 20)
          .backward();
    };
    {
      Context context;
      auto model = nn::make<Chain>();
      pass(model);
      for (const NamedParameter& p : model->named_parameters()) expected[p.name] = values_of(p.tensor.grad());
    }
    for (const Config& config : strategies(1))
      dist::run_ranks(1, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Chain>();
        auto sharded = fully_shard(*model, group, config);
        pass(model);
        for (const auto& unit : sharded->units()) EXPECT_EQ(unit->flat_params()[0]->grad().dtype(), DType::f32);
        EXPECT_EQ(gradients_of(*sharded), expected) << name_of(config.strategy) << ' ' << dtype;
      });
  }
}

// In f16 2048 + 1 is 2048.
TEST(Gradients, I05_B41_PassesInF16AddUpInF32) {
  for (bool no_sync : {false, true})
    for (const Config& config : kAll)
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Flat>();
        auto sharded = fully_shard(*model, group, config);
        int64_t padded_bytes = 4 * sharded->units()[0]->flat_params()[0]->padded();
        for (int pass = 0; pass < 5; ++pass) {
          std::optional<NoSync> local;
          if (no_sync && pass < 4) local.emplace(*sharded);
          Autocast precision(DType::f16);
          Tensor y = model(ones({1, 7}));
          EXPECT_EQ(y.dtype(), DType::f16);
          y.backward(full({1, 5}, pass == 0 ? 2048 : 1, DType::f16));
          if (local) {
            EXPECT_EQ(context().ledger().current(Category::full_gradient), padded_bytes);
          }
        }
        EXPECT_EQ(gradients_of(*sharded).at("weight"), std::vector<double>(35, 2 * (2048 + 4)))
            << name_of(config.strategy) << " no_sync " << no_sync;
      });
}

// Rows of the batch do not mix, so a rank's inputs have the gradient that the plain model gives them.
TEST(Gradients, I13_B07_InputsHaveGradientsAlsoThroughCasts) {
  auto gradient = [](auto& model, std::optional<DType> dtype, int64_t begin, int64_t end) {
    Tensor x = rows_of_batch("x", 0, begin, end, 7, DType::f32).set_requires_grad();
    Autocast precision(dtype);
    mse_loss(model(tanh(x)), rows_of_batch("t", 0, begin, end, 5, DType::f32), 40).backward();
    EXPECT_EQ(x.grad().dtype(), DType::f32);
    return values_of(x.grad());
  };
  for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
    std::vector<std::vector<double>> expected;
    std::vector<double> single;
    {
      Context context;
      auto model = nn::make<Rooted>();
      for (int64_t rank : {0, 1}) expected.push_back(gradient(model, dtype, 4 * rank, 4 * rank + 4));
      single = gradient(model, {}, 0, 4);
    }
    test::expect_close(expected[0], single, dtype ? 0.05 : 0, "the cast changes little");
    for (const Config& config : kAll)
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Rooted>();
        fully_shard(*model, group, config);
        int64_t rank = group.rank();
        EXPECT_EQ(gradient(model, dtype, 4 * rank, 4 * rank + 4), expected[size_t(rank)]) << name_of(config.strategy);
      });
  }
}

TEST(Gradients, I16_AShardedModelsGradientsAgreeWithDifferencesOfItsLoss) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    model->to(DType::f64);
    auto sharded = fully_shard(*model, group);
    int64_t begin = 2 * group.rank();
    Tensor x = rows_of_batch("x", 0, begin, begin + 2, 7, DType::f64);
    Tensor t = rows_of_batch("t", 0, begin, begin + 2, 5, DType::f64);
    auto loss = [&] { return mse_loss(model(x), t, 20); };
    loss().backward();
    Weights gradients = gradients_of(*sharded);
    NoGrad no_grad;
    auto state = full_state_dict(*sharded, false);
    auto loss_with = [&](const std::string& name, size_t i, double change) {
      double& value = state.at(name).template data<double>()[i];
      value += change;
      load_full_state_dict(*sharded, state);
      value -= change;
      Tensor total = loss();
      group.all_reduce(total).host_wait();
      return total.item();
    };
    constexpr double h = 1e-5;
    for (const auto& [name, values] : gradients)
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR((loss_with(name, i, h) - loss_with(name, i, -h)) / (2 * h), values[i], 1e-8) << name << ' ' << i;
  });
}

TEST(Gradients, I14_B30_ANormThatIsNotFiniteOnOneRankIsRefusedOnAll) {
  for (const Config& config : kAll)
    dist::run_ranks(3, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Wide>();
      auto sharded = fully_shard(*model, group, config);
      Weights before = weights_of(*sharded);
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
      if (group.rank() == 1) fill_(x, std::nan(""));
      mse_loss(model(x), zeros({4, 5}), 20).backward();
      EXPECT_TRUE(contains(message_of([&] { clip_grad_norm(*sharded, 1); }), "not a number"))
          << name_of(config.strategy);
      optimizer.zero_grad();
      EXPECT_EQ(weights_of(*sharded), before);
    });
}

TEST(Gradients, I14_B25_AParameterThawedLaterCountsInTheNorm) {
  double expected = 0, without = 0;
  {
    Context context;
    auto model = nn::make<Frozen>();
    loss_of(model, 0, 0, 8).backward();
    without = optim::grad_norm(model->named_parameters());
    model->zero_grad();
    model->b->weight.set_requires_grad();
    loss_of(model, 0, 0, 8).backward();
    expected = optim::grad_norm(model->named_parameters());
  }
  ASSERT_GT(expected, 1.001 * without);
  same_weights<Frozen>([&](nn::Child<Frozen>& model, Sharded& sharded, dist::ProcessGroup& group) {
    for (bool thawed : {false, true}) {
      loss_of(model, 0, 4 * group.rank(), 4 * group.rank() + 4).backward();
      EXPECT_NEAR(grad_norm(sharded), thawed ? expected : without, 1e-6 * expected);
      model->zero_grad();
      model->b->weight.set_requires_grad();
    }
  });
}

TEST(Gradients, I14_B39_ScaledGradientsAreClippedByTheSameCall) {
  auto train = [](double scale) {
    return same_weights<Rooted>([&](nn::Child<Rooted>& model, Sharded& sharded, dist::ProcessGroup& group) {
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
      auto scaler = sharded_grad_scaler(sharded, {.init_scale = scale});
      for (int step = 0; step < 3; ++step) {
        scaler.scale(loss_of(model, step, 4 * group.rank(), 4 * group.rank() + 4)).backward();
        EXPECT_TRUE(scaler.finite(optimizer));
        double norm = clip_grad_norm(sharded, 0.01 * scaler.factor());
        EXPECT_GT(norm, 0.01 * scaler.factor()) << "the bound must bite";
        EXPECT_NEAR(grad_norm(sharded), 0.01 * scaler.factor(), 1e-4 * scaler.factor());
        EXPECT_TRUE(scaler.step(optimizer));
        scaler.update();
        optimizer.zero_grad();
      }
    });
  };
  Weights plain = train(1), scaled = train(1024);
  for (const auto& [name, values] : plain) test::expect_close(scaled.at(name), values, 1e-4, name);
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
