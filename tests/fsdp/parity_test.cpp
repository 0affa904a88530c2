// A strategy changes memory and traffic, never the numbers.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/devices.h"
#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

using ParityModels = ModelList<Chain, Rooted, Flat, Twice, Unused, Frozen, Tied, TiedAcross, Tiny, Dropping, Wide,
                               FrozenAround, TwoIn, TwoOut, Siamese, Within<TwoIn>, Within<TwoOut>, Within<Siamese>>;
class Parity : public ::testing::TestWithParam<MakeModel> {};
INSTANTIATE_TEST_SUITE_P(Models, Parity, ParityModels::values(), ParityModels::title);

// Prefetching is tried where there is most to gather, on both devices.
std::vector<TrainingRun> variations(int world) {
  std::vector<TrainingRun> all;
  for (const Config& config : strategies(world)) all.push_back({.world = world, .config = config});
  for (int prefetch : {0, 1, 2})
    for (Device device : {kCpu, kAcc})
      for (Strategy strategy : {Strategy::zero1, Strategy::zero3}) {
        if (strategy == Strategy::zero1 && prefetch > 0) continue;
        all.push_back({.world = world, .config = {.strategy = strategy, .prefetch = prefetch}, .device = device});
      }
  return all;
}

/// Numbers of ranks take turns with the optimizers.
Optim one_of(int world) { return world % 2 ? Optim::adamw : Optim::sgd; }

std::string describe(const TrainingRun& setup) {
  const Config& config = setup.config;
  std::ostringstream out;
  out << name_of(config.strategy) << (config.keep_params ? " keep_params" : "") << " W=" << setup.world;
  if (config.shard_ranks > 0) out << " groups of " << config.shard_ranks;
  if (config.move_params_to_cpu) out << " params on cpu";
  if (config.move_grads_to_cpu) out << " grads on cpu: " << *config.move_grads_to_cpu;
  out << " prefetch=" << config.prefetch << " on " << setup.device << (setup.optim == Optim::sgd ? " sgd" : " adamw");
  if (setup.micro > 1) out << ' ' << setup.micro << (setup.no_sync ? " micro-batches, no_sync" : " micro-batches");
  if (setup.clip > 0) out << " clipped, p=" << setup.norm_type;
  if (config.param_dtype) out << " params in " << *config.param_dtype;
  return out.str();
}

// How strategies are compared: everything on.
TrainingRun full_setup(int world) {
  return {.world = world, .optim = Optim::adamw, .steps = 3, .micro = 2, .clip = 0.05};
}

TEST_P(Parity, I05_I14_AccumulationAndClippingGiveTheSameBitsUnderEveryStrategy) {
  for (int world : {1, 2, 4})
    for (bool no_sync : {false, true}) {
      TrainingRun setup = full_setup(world);
      setup.no_sync = no_sync;
      setup.config.strategy = Strategy::ddp;
      Outcome expected = train(GetParam(), setup);
      for (const Config& config : strategies(world)) {
        setup.config = config;
        EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup);
      }
    }
}

TEST_P(Parity, I11_I14_OneRankGivesTheBitsOfThePlainModelAndItsNorms) {
  TrainingRun setup = full_setup(1);
  setup.no_sync = true;  // a plain leaf adds every contribution of every pass to one sum
  for (double p : {1.0, 2.0, 3.0, double(INFINITY)}) {
    setup.norm_type = p;
    setup.shard = false;
    Outcome expected = train(GetParam(), setup);
    setup.shard = true;
    for (const Config& config : strategies(1)) {
      setup.config = config;
      EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup);
    }
  }
}

TEST_P(Parity, I14_TheNormHasTheSameBitsForEveryPAndWrapping) {
  for (double p : {1.0, 2.0, 3.0, double(INFINITY)}) {
    TrainingRun setup{.world = 3, .steps = 2, .clip = 0.1, .norm_type = p};
    setup.config.strategy = Strategy::ddp;
    Outcome expected = train(GetParam(), setup);
    for (Strategy strategy : {Strategy::zero1, Strategy::zero3})
      for (int64_t least : {1, 60, 1 << 30}) {
        setup.config = {.strategy = strategy, .wrap = wrap_by_size(least)};
        EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup) << " units of at least " << least;
      }
  }
}

TEST_P(Parity, I03_I05_B02_OffloadGivesTheSameBitsAlsoWhenAccumulating) {
  for (int world : {1, 2}) {
    TrainingRun setup = full_setup(world);
    Outcome expected = train(GetParam(), setup);
    setup.device = kAcc;
    for (bool params : {false, true})
      for (bool grads : {false, true}) {
        setup.config = {.strategy = Strategy::zero3, .move_params_to_cpu = params, .move_grads_to_cpu = grads};
        EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup);
      }
  }
}

TEST_P(Parity, I02_I03_EveryStrategyPrefetchAndDeviceGivesTheSameBits) {
  for (int world : {1, 2, 3, 4}) {
    std::vector<TrainingRun> setups = variations(world);
    for (TrainingRun& setup : setups) setup.optim = one_of(world);
    Outcome expected = train(GetParam(), setups[0]);
    for (const TrainingRun& setup : setups) EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup);
  }
}

TEST_P(Parity, I03_EveryWrappingGivesTheSameBits) {
  TrainingRun setup{.world = 3};
  Outcome expected = train(GetParam(), setup);
  setup.config.wrap = wrap_by_size(1);
  EXPECT_TRUE(train(GetParam(), setup) == expected) << "every module a unit";
  setup.config.wrap = wrap_by_size(60);
  EXPECT_TRUE(train(GetParam(), setup) == expected) << "units of at least 60";
  setup.config.wrap = wrap_by_size(1 << 30);
  EXPECT_TRUE(train(GetParam(), setup) == expected) << "one unit";
  setup.config.wrap = [](const nn::Module& module, const auto&, int64_t) {
    return module.type_name() == "Linear";
  };  // or none
  EXPECT_TRUE(train(GetParam(), setup) == expected) << "every Linear";
}

TEST_P(Parity, I03_BucketsOfAnySizeGiveTheSameBits) {
  TrainingRun setup = full_setup(2);
  Outcome expected = train(GetParam(), setup);
  for (const Config& config : strategies(2))
    for (int64_t bytes : {300, 1 << 20}) {
      if (!config.keeps_params()) continue;
      setup.config = config;
      setup.config.bucket_bytes = bytes;
      EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup) << " buckets of " << bytes;
    }
}

// Largest difference over a tensor's values, relative to its largest element.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 1e-300, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  return worst / largest;
}

void expect_close(const std::map<std::string, std::vector<double>>& a,
                  const std::map<std::string, std::vector<double>>& b, double tolerance, const std::string& where) {
  ASSERT_EQ(a.size(), b.size()) << where;
  for (const auto& [name, values] : b) {
    ASSERT_TRUE(a.contains(name)) << name;
    EXPECT_LE(difference(a.at(name), values), tolerance) << where << " " << name;
  }
}

TEST_P(Parity, I01_AnyNumberOfRanksTrainsTheRunOfOneProcessInDouble) {
  for (Optim optim : {Optim::sgd, Optim::adamw}) {
    TrainingRun setup{.shard = false, .optim = optim, .dtype = DType::f64, .batch = 11};
    Outcome expected = train(GetParam(), setup);
    setup.shard = true;
    for (int world : {1, 2, 3, 4}) {
      setup.world = world;
      setup.config = {};
      Outcome outcome = train(GetParam(), setup);
      expect_close(outcome.weights, expected.weights, 1e-12, describe(setup));
      expect_close(outcome.state, expected.state, 1e-12, describe(setup));
      EXPECT_LE(difference(outcome.losses, expected.losses), 1e-12) << describe(setup);
      for (Strategy strategy : {Strategy::zero2, Strategy::ddp}) {
        setup.config.strategy = strategy;
        EXPECT_TRUE(train(GetParam(), setup) == outcome) << describe(setup);
      }
    }
  }
}

TEST_P(Parity, I01_AnyNumberOfRanksTrainsTheRunOfOneProcessInSingle) {
  TrainingRun setup{.shard = false, .batch = 11};
  Outcome sgd = train(GetParam(), setup);
  setup.optim = Optim::adamw;
  Outcome adamw = train(GetParam(), setup);
  setup.shard = true;
  for (int world : {2, 3, 4}) {
    setup.world = world;
    setup.optim = Optim::sgd;
    Outcome outcome = train(GetParam(), setup);
    expect_close(outcome.weights, sgd.weights, 1e-6, describe(setup));
    EXPECT_LE(difference(outcome.losses, sgd.losses), 1e-6) << describe(setup);
    setup.optim = Optim::adamw;
    outcome = train(GetParam(), setup);
    EXPECT_LE(difference(outcome.losses, adamw.losses), 1e-6) << describe(setup);
    for (const auto& [name, values] : adamw.weights)
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_LE(std::abs(outcome.weights[name][i] - values[i]), 1e-2 * 0.01 * setup.steps) << name;
  }
}

// Numbers that divide neither the batch nor any parameter, and leave some ranks without a part of most.
TEST(ParityOfManyRanks, FiveAndSevenTrainTheRunOfOneProcess) {
  TrainingRun setup{.shard = false, .optim = Optim::adamw, .dtype = DType::f64, .batch = 11, .clip = 0.05};
  Outcome expected = train<Rooted>(setup);
  setup.shard = true;
  for (int world : {5, 7})
    for (const Config& config : strategies(world)) {
      setup.world = world;
      setup.config = config;
      Outcome outcome = train<Rooted>(setup);
      expect_close(outcome.weights, expected.weights, 1e-12, describe(setup));
      expect_close(outcome.state, expected.state, 1e-12, describe(setup));
      EXPECT_LE(difference(outcome.losses, expected.losses), 1e-12) << describe(setup);
    }
}

// On devices with the kernels of kernels/cuda: the same bits for every strategy, and the CPU's numbers.
TEST_P(Parity, I03_EveryStrategyGivesTheSameBitsOnDevices) {
  for (Device device : test::kernel_devices())
    for (int world : {1, 2, 3}) {
      TrainingRun setup{.world = world, .optim = one_of(world), .device = device, .steps = 4};
      setup.config.strategy = Strategy::ddp;
      Outcome expected = train(GetParam(), setup);
      for (Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
        setup.config.strategy = strategy;
        EXPECT_TRUE(train(GetParam(), setup) == expected) << describe(setup);
      }
      setup.device = kCpu;
      if (setup.optim == Optim::sgd)
        expect_close(expected.weights, train(GetParam(), setup).weights, 1e-5, describe(setup));
    }
}

// What one model is trained with on those devices: every strategy, and everything that may change where bytes are.
std::vector<Config> configurations(int world) {
  std::vector<Config> all = strategies(world);
  for (int prefetch : {0, 2}) all.push_back({.prefetch = prefetch});
  for (bool grads : {false, true}) all.push_back({.move_params_to_cpu = true, .move_grads_to_cpu = grads});
  all.push_back({.move_grads_to_cpu = true});
  all.push_back({.prefetch = 0, .move_params_to_cpu = true});
  return all;
}

void expect_the_grid_agrees(TrainingRun setup) {
  double tolerance = setup.config.param_dtype ? 1e-2 : 1e-5;
  TrainingRun on_cpu = setup;
  on_cpu.device = kCpu;
  Outcome cpu = train<Rooted>(on_cpu), expected = train<Rooted>(setup);
  auto expect_numbers = [&](const Outcome& outcome) {
    expect_close(outcome.weights, cpu.weights, tolerance, describe(setup));
    expect_close(outcome.state, cpu.state, tolerance, describe(setup));
    EXPECT_LE(difference(outcome.losses, cpu.losses), tolerance) << describe(setup);
    EXPECT_LE(difference(outcome.norms, cpu.norms), tolerance) << describe(setup);
  };
  expect_numbers(expected);
  for (Config config : configurations(setup.world)) {
    config.param_dtype = setup.config.param_dtype;
    setup.config = config;
    Outcome outcome = train<Rooted>(setup);
    if (config.move_params_to_cpu)
      expect_numbers(outcome);  // the CPU's kernels make the step
    else
      EXPECT_TRUE(outcome == expected) << describe(setup);
  }
}

struct Tried {
  int world;
  bool no_sync;
  std::optional<DType> params = {};
};
void expect_the_grids_agree(std::initializer_list<Tried> all) {
  for (Device device : test::kernel_devices())
    for (auto [world, no_sync, params] : all) {
      TrainingRun setup = full_setup(world);
      setup.device = device;
      setup.steps = 2;
      setup.no_sync = no_sync;
      setup.config = {.strategy = Strategy::ddp, .param_dtype = params};
      expect_the_grid_agrees(setup);
    }
}
TEST(ParityOnDevices, I02_I03_I05_I14_EveryConfigurationGivesTheSameBitsAndTheNumbersOfTheCpu) {
  expect_the_grids_agree({{1, false}, {2, true, DType::bf16}, {3, true}});
}
TEST(ParityOnDevicesSlow, I02_I03_I05_I14_OnMoreRanksToo) {
  expect_the_grids_agree({{2, false}, {4, false}, {4, false, DType::bf16}});
}

TEST_P(Parity, I03_RandomLegalDelaysChangeNothing) {
  TrainingRun setup{.world = 2, .device = kAcc, .steps = 4};
  Outcome expected = train(GetParam(), setup);
  for (uint64_t seed : {1, 2, 3}) {
    setup.delay_seed = seed;
    EXPECT_TRUE(train(GetParam(), setup) == expected) << "delays with seed " << seed;
  }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
