// Passes whose gradients are added by neighbours: the same bits on any number of ranks, what is kept meanwhile, and
// what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/autograd/progress.h>

#include "tests/devices.h"
#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Grains {
  int count = 8;
  Config config = {};
  Device device = kCpu;
  int steps = 3;
};

constexpr int64_t kRowsOfABatch = 16;

Tensor grain_loss(AnyModel& model, int step, int64_t grain, int64_t grains) {
  int64_t begin = kRowsOfABatch * grain / grains, end = kRowsOfABatch * (grain + 1) / grains;
  progress() = {uint64_t(step), begin};
  Tensor x = rows_of_batch("x", step, begin, end, 7, DType::f32),
         t = rows_of_batch("t", step, begin, end, 5, DType::f32);
  return mse_loss(model.output(x).to(DType::f32), t, double(kRowsOfABatch * 5));
}

Outcome train_rank(MakeModel make, const Grains& setup, dist::ProcessGroup& group) {
  AnyModel model = make();
  auto sharded = fully_shard(model.module, group, setup.config);
  auto optimizer = make_optimizer(Optim::adamw, model.module.named_parameters());
  Outcome outcome;
  for (int step = 0; step < setup.steps; ++step) {
    PairwiseSum sum(*sharded);
    for (int64_t grain = group.rank(); grain < setup.count; grain += group.size()) {
      sum.begin_pass();
      grain_loss(model, step, grain, setup.count).backward();
    }
    sum.finish();
    outcome.norms.push_back(clip_grad_norm(*sharded, 0.5));
    optimizer->step();
    optimizer->zero_grad();
  }
  for (auto& [name, tensor] : full_state_dict(*sharded, false)) outcome.weights[name] = values_of(tensor);
  collect_state(*optimizer, Optim::adamw, sharded->mesh().shard(), outcome);
  return outcome;
}

Outcome train(MakeModel make, const Grains& setup, int world) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  dist::run_ranks(world,
                  [&](dist::ProcessGroup& group) { outcomes[size_t(group.rank())] = train_rank(make, setup, group); },
                  {.device = setup.device, .threads = 1});
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome == outcomes[0]) << "the ranks ended differently";
  return outcomes[0];
}

// What the sums must be, without anything of fsdp: each grain's gradients by itself, and a tree over them.
std::map<std::string, std::vector<float>> tree_of_gradients(MakeModel make, int64_t grains) {
  Context context;
  AnyModel model = make();
  std::map<std::string, std::vector<std::vector<float>>> all;
  for (int64_t grain = 0; grain < grains; ++grain) {
    grain_loss(model, 0, grain, grains).backward();
    for (NamedParameter& parameter : model.module.named_parameters()) {
      if (parameter.tensor.grad().defined()) all[parameter.name].push_back(parameter.tensor.grad().to_vector<float>());
      parameter.tensor.zero_grad();
    }
  }
  std::map<std::string, std::vector<float>> sums;
  for (auto& [name, parts] : all) {
    while (parts.size() > 1) {
      std::vector<std::vector<float>> next;
      for (size_t i = 0; i < parts.size(); i += 2) {
        next.push_back(parts[i]);
        for (size_t k = 0; i + 1 < parts.size() && k < parts[i].size(); ++k) next.back()[k] += parts[i + 1][k];
      }
      parts = next;
    }
    sums[name] = parts[0];
  }
  return sums;
}

class PairwiseSums : public ::testing::TestWithParam<MakeModel> {};

TEST_P(PairwiseSums, AreTheTreeOverTheGrains) {
  for (int64_t grains : {1, 5, 8}) {
    auto expected = tree_of_gradients(GetParam(), grains);
    dist::run_ranks(1, [&](dist::ProcessGroup& group) {
      AnyModel model = GetParam()();
      auto sharded = fully_shard(model.module, group);
      PairwiseSum sum(*sharded);
      for (int64_t grain = 0; grain < grains; ++grain) {
        sum.begin_pass();
        grain_loss(model, 0, grain, grains).backward();
      }
      sum.finish();
      for (NamedParameter& parameter : model.module.named_parameters()) {
        Tensor grad = parameter.tensor.grad();
        ASSERT_EQ(grad.defined(), expected.contains(parameter.name)) << parameter.name;
        if (!grad.defined()) continue;
        EXPECT_EQ(grad.to_vector<float>(), expected[parameter.name]) << parameter.name << " of " << grains;
      }
    });
  }
}

TEST_P(PairwiseSums, GiveTheSameBitsOnAnyNumberOfRanksUnderEveryStrategy) {
  Outcome expected = train(GetParam(), {}, 1);
  for (int world : {1, 2, 4, 8})
    for (const Config& config : strategies(world))
      EXPECT_TRUE(train(GetParam(), {.config = config}, world) == expected)
          << name_of(config.strategy) << " on " << world << ", groups of " << config.shard_ranks;
}

INSTANTIATE_TEST_SUITE_P(Models, PairwiseSums,
                         ::testing::Values(any_model<Rooted>, any_model<Twice>, any_model<Unused>, any_model<Frozen>,
                                           any_model<Tied>, any_model<Dropping>));

// Else the test above would say nothing.
TEST(PairwiseSum, OneAfterTheOtherAreOtherBitsOnOtherNumbersOfRanks) {
  auto weights = [](int world) {
    std::vector<double> values;
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      AnyModel model = any_model<Rooted>();
      auto sharded = fully_shard(model.module, group);
      for (int64_t grain = group.rank(); grain < 8; grain += group.size()) grain_loss(model, 0, grain, 8).backward();
      make_optimizer(Optim::sgd, model.module.named_parameters())->step();
      auto state = full_state_dict(*sharded, false);
      if (group.rank() == 0) values = values_of(state.at("b1.weight"));
    });
    return values;
  };
  EXPECT_FALSE(same_bits(weights(1), weights(4)));
}

// A number of grains that is no power of two has a tree as well, of which ranks that are one hold whole subtrees.
TEST(PairwiseSum, GrainsNeedOnlyBeAMultipleOfTheRanks) {
  Outcome expected = train(any_model<Rooted>, {.count = 12}, 1);
  for (int world : {2, 4}) EXPECT_TRUE(train(any_model<Rooted>, {.count = 12}, world) == expected) << world;
}

TEST(PairwiseSumOnDevices, NarrowerParametersAndGradientsInHostMemoryChangeNoBit) {
  std::vector<Device> devices = test::kernel_devices();
  devices.push_back(kAcc);
  for (Config config :
       {Config{.param_dtype = DType::bf16, .reduce_dtype = DType::f32},
        Config{.strategy = Strategy::zero2, .move_grads_to_cpu = true}, Config{.move_params_to_cpu = true}})
    for (Device device : devices) {
      Grains setup{.config = config, .device = device, .steps = 2};
      Outcome expected = train(any_model<Rooted>, setup, 1);
      for (int world : {2, 4}) EXPECT_TRUE(train(any_model<Rooted>, setup, world) == expected) << world;
      if (config.move_params_to_cpu) continue;  // then the optimizer is the host's
      setup.config.move_grads_to_cpu = {};
      EXPECT_TRUE(train(any_model<Rooted>, setup, 2) == expected) << "in the device's memory";
    }
}

// One of two units in every other pair of passes: what is missing is a 0 that nobody adds.
struct ByTurns : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 5), b = child<nn::Linear>("b", 7, 5);
  Tensor forward(const Tensor& x, bool first) { return first ? a(x) : b(x); }
};

TEST(PairwiseSum, UnitsThatAPassDoesNotUseAreLeftOut) {
  auto weights = [](int world) {
    std::vector<double> values;
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<ByTurns>();
      auto sharded = fully_shard(*model, group);
      PairwiseSum sum(*sharded);
      for (int64_t grain = group.rank(); grain < 12; grain += group.size()) {
        sum.begin_pass();
        bool first = grain / 2 % 3 != 1;
        Tensor x = rows_of_batch("x", 0, grain, grain + 1, 7, DType::f32);
        mse_loss(model(x, first), rows_of_batch("t", 0, grain, grain + 1, 5, DType::f32), 60).backward();
      }
      sum.finish();
      make_optimizer(Optim::sgd, model->named_parameters())->step();
      auto state = full_state_dict(*sharded, false);
      if (group.rank() != 0) return;
      for (const char* name : {"a.weight", "b.weight"}) {
        std::vector<double> part = values_of(state.at(name));
        values.insert(values.end(), part.begin(), part.end());
      }
    });
    return values;
  };
  EXPECT_TRUE(same_bits(weights(1), weights(2)));
}

TEST(PairwiseSum, KeepsAsManyShardsAsACounterHasDigits) {
  for (Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      AnyModel model = any_model<Rooted>();
      auto sharded = fully_shard(model.module, group, {.strategy = strategy});
      int64_t shard = 0;
      for (const auto& unit : sharded->units())
        for (const auto& flat : unit->flat_params()) shard += int64_t(flat->shard().bytes());
      PairwiseSum sum(*sharded);
      std::vector<int64_t> kept;
      for (int pass = 0; pass < 8; ++pass) {
        sum.begin_pass();
        grain_loss(model, 0, 2 * pass + group.rank(), 16).backward();
        kept.push_back(bytes(Category::gradient_shard) / shard);
        EXPECT_EQ(bytes(Category::full_gradient), 0);
      }
      EXPECT_THAT(kept, ElementsAre(1, 1, 2, 1, 2, 2, 3, 1)) << name_of(strategy);
      EXPECT_EQ(context().ledger().peak(Category::gradient_shard), 3 * shard)
          << "what arrives to be added is no gradient yet";
      sum.finish();
      EXPECT_EQ(bytes(Category::gradient_shard), shard);
    });
}

TEST(PairwiseSum, IsAddedToWhatWasThereBefore) {
  dist::run_ranks(1, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Flat>();
    auto sharded = fully_shard(model.module, group);
    auto grad = [&] { return model.module.named_parameters()[0].tensor.grad().to_vector<float>(); };
    auto sum_of_two = [&](int step) {
      PairwiseSum sum(*sharded);
      for (int64_t grain : {0, 1}) {
        sum.begin_pass();
        grain_loss(model, step, grain, 2).backward();
      }
      sum.finish();
    };
    sum_of_two(1);
    std::vector<float> second = grad();
    for (NamedParameter& parameter : model.module.named_parameters()) parameter.tensor.zero_grad();
    grain_loss(model, 0, 0, 1).backward();
    std::vector<float> first = grad();
    sum_of_two(1);
    for (size_t i = 0; i < first.size(); ++i) first[i] += second[i];
    EXPECT_EQ(grad(), first);
  });
}

TEST(PairwiseSum, IsAddedToAGradientThatAStepHasTakenFromHostMemory) {
  std::vector<double> norms;
  for (bool to_cpu : {false, true})
    for (bool steps : {false, true})
      dist::run_ranks(2,
                      [&](dist::ProcessGroup& group) {
                        AnyModel model = any_model<Rooted>();
                        auto sharded = fully_shard(model.module, group, {.move_grads_to_cpu = to_cpu});
                        optim::SGD optimizer(model.module.named_parameters(), {.lr = 0});
                        grain_loss(model, 0, group.rank(), 2).backward();
                        steps ? optimizer.step() : void(grad_norm(*sharded));
                        PairwiseSum sum(*sharded);
                        for (int64_t grain : {0, 1}) {
                          sum.begin_pass();
                          grain_loss(model, 1, 2 * grain + group.rank(), 4).backward();
                        }
                        sum.finish();
                        double norm = grad_norm(*sharded);
                        if (group.rank() == 0) norms.push_back(norm);
                      },
                      {.device = kAcc, .threads = 1});
  EXPECT_EQ(norms, std::vector<double>(4, norms[0]));
}

TEST(PairwiseSum, ShowsNoGradientBeforeItIsFinished) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Flat>();
    auto sharded = fully_shard(model.module, group, {.strategy = Strategy::ddp});
    Tensor weight = model.module.named_parameters()[0].tensor;
    grain_loss(model, 0, group.rank(), 2).backward();
    auto before = weight.grad().to_vector<float>();
    PairwiseSum sum(*sharded);
    sum.begin_pass();
    grain_loss(model, 0, group.rank(), 2).backward();
    EXPECT_THAT(message_of([&] { weight.grad(); }), HasSubstr("of a PairwiseSum before finish()"));
    sum.finish();
    for (float& value : before) value *= 2;
    EXPECT_EQ(weight.grad().to_vector<float>(), before);
  });
}

TEST(PairwiseSum, AGradientThatIsGivenUpMeanwhileLeavesItsSumsToo) {
  dist::run_ranks(1, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Flat>();
    auto sharded = fully_shard(model.module, group);
    auto parameters = model.module.named_parameters();  // of one flat parameter
    auto sums = [&](int64_t first, bool give_up) {
      PairwiseSum sum(*sharded);
      for (int64_t grain = 0; grain < 4; ++grain) {
        sum.begin_pass();
        if (grain < first) continue;
        grain_loss(model, 0, grain, 4).backward();
        if (give_up && grain == 0) parameters[1].tensor.zero_grad();
      }
      sum.finish();
      std::vector<std::vector<float>> grads;
      for (NamedParameter& parameter : parameters) {
        grads.push_back(parameter.tensor.grad().to_vector<float>());
        parameter.tensor.zero_grad();
      }
      return grads;
    };
    auto whole = sums(0, false), given_up = sums(0, true), without = sums(1, false);
    EXPECT_EQ(given_up[0], whole[0]);
    EXPECT_EQ(given_up[1], without[1]);
    EXPECT_NE(given_up[1], whole[1]);
  });
}

TEST(PairwiseSum, OneThatWasNotFinishedIsRefused) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Rooted>();
    auto sharded = fully_shard(model.module, group);
    auto optimizer = make_optimizer(Optim::sgd, model.module.named_parameters());
    {
      PairwiseSum sum(*sharded);
      EXPECT_THAT(message_of([&] { PairwiseSum second(*sharded); }), HasSubstr("another one of this model"));
      sum.begin_pass();
      grain_loss(model, 0, group.rank(), 2).backward();
      EXPECT_THAT(message_of([&] { optimizer->step(); }), HasSubstr("was not finished"));
      EXPECT_THAT(message_of([&] { clip_grad_norm(*sharded, 1); }), HasSubstr("was not finished"));
    }
    EXPECT_THAT(
        message_of([&] { optimizer->step(); }),
        HasSubstr("a PairwiseSum ended before finish() had added up its passes, so its gradients are incomplete"));
    optimizer->zero_grad();
    EXPECT_EQ(bytes(Category::gradient_shard), 0);
    PairwiseSum sum(*sharded);
    sum.begin_pass();
    grain_loss(model, 0, group.rank(), 2).backward();
    sum.finish();
    EXPECT_THAT(message_of([&] { sum.begin_pass(); }), HasSubstr("after finish()"));
    optimizer->step();
  });
}

TEST(PairwiseSum, OneThatWasNotFinishedIsRefusedWithoutBeginPassToo) {
  dist::run_ranks(1, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Flat>();
    auto sharded = fully_shard(model.module, group);
    {
      PairwiseSum sum(*sharded);
      grain_loss(model, 0, 0, 1).backward();
    }
    Tensor weight = model.module.named_parameters()[0].tensor;
    EXPECT_THAT(message_of([&] { weight.grad(); }), HasSubstr("a PairwiseSum ended before finish()"));
    weight.zero_grad();
    EXPECT_THAT(message_of([&] { grad_norm(*sharded); }), HasSubstr("a PairwiseSum ended before finish()"));
  });
}

TEST(PairwiseSum, TwoPassesThatAreNotToldApartAreRefused) {
  dist::run_ranks(1, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Flat>();
    auto sharded = fully_shard(model.module, group);
    PairwiseSum sum(*sharded);
    sum.begin_pass();
    grain_loss(model, 0, 0, 4).backward();
    EXPECT_THAT(message_of([&] { grain_loss(model, 0, 1, 4).backward(); }),
                HasSubstr("since begin_pass(); call it before"));
  });
}

TEST(PairwiseSum, AFailedPassIsRefusedUntilAllIsZeroed) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    AnyModel model = any_model<Rooted>();
    auto sharded = fully_shard(model.module, group);
    auto optimizer = make_optimizer(Optim::sgd, model.module.named_parameters());
    EXPECT_THROW(
        {
          PairwiseSum sum(*sharded);
          sum.begin_pass();
          grain_loss(model, 0, group.rank(), 4).backward();
          sum.begin_pass();
          fail("no more data");
        },
        Error);
    EXPECT_THAT(message_of([&] { optimizer->step(); }), HasSubstr("incomplete; call zero_grad()"));
    optimizer->zero_grad();
    grain_loss(model, 0, group.rank(), 2).backward();
    optimizer->step();
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
