// reshard_after_forward = n: what each rank keeps of a unit, whom it is gathered from for backward, and that no bit
// depends on it.

#include <gmock/gmock.h>

#include <shardgrad/fsdp/plan.h>
#include <shardgrad/fsdp/setup/wrap.h>

#include "tests/fsdp/regions.h"
#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing::resharding {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// W ranks in groups of n.
struct Groups {
  int world, ranks;
};
const std::vector<Groups> kGroups{{4, 2}, {6, 2}, {6, 3}};
std::string text_of(const Groups& groups) { return concat("W=", groups.world, " n=", groups.ranks, " "); }

void on(int world, Device device, const std::function<void(dist::ProcessGroup&)>& body, const std::string& kind = "") {
  dist::VirtualOptions options{.device = device, .threads = 1};
  options.group.kind = kind;
  dist::run_ranks(world, body, options);
}

int64_t bytes_of(const Unit& unit) {
  int64_t bytes = 0;
  for (const auto& flat : unit.flat_params()) bytes += int64_t(flat->full_bytes());
  return bytes;
}

/// What a rank sends of so many bytes that it gathers among so many ranks.
int64_t sent_of(int64_t bytes, int ranks) { return bytes / ranks * (ranks - 1); }

struct Gather {
  std::string unit, phase;
  int64_t sent;
  bool operator==(const Gather&) const = default;
  friend void PrintTo(const Gather& g, std::ostream* out) { *out << g.unit << ' ' << g.phase << ' ' << g.sent; }
};

// Since the recorder was cleared.
std::vector<Gather> gathers_of(const std::string& unit) {
  std::vector<Gather> all;
  for (const Record& record : context().recorder().records())
    if (record.op == "all_gather" && record.unit == unit) all.push_back({unit, record.phase, record.bytes_sent});
  return all;
}

// --- bits -----------------------------------------------------------------------------------------------------------

using ReshardModels = ModelList<Rooted, Twice, Frozen, FrozenAround, Net<Where::around_units>>;
class ReshardBits : public ::testing::TestWithParam<MakeModel> {};
INSTANTIATE_TEST_SUITE_P(Models, ReshardBits, ReshardModels::values(), ReshardModels::title);
using MoreReshardModels =
    ModelList<Unused, Tied, TiedAcross, TiedToParent, Tiny, Dropping, TwoOut, Siamese, Within<Rooted>,
              Net<Where::inside_units>, Net<Where::nested>, Net<Where::everything>>;
using ReshardBitsSlow = ReshardBits;
INSTANTIATE_TEST_SUITE_P(Models, ReshardBitsSlow, MoreReshardModels::values(), MoreReshardModels::title);

// In common memory, too, and on a device whose streams run beside each other, with delays.
void expect_same_bits_as_without_groups(const MakeModel& model) {
  for (const Groups& groups : kGroups) {
    TrainingRun setup{.world = groups.world, .optim = Optim::adamw, .steps = 3, .micro = 2, .clip = 0.05};
    setup.no_sync = groups.ranks == 2;
    Outcome expected = train(model, setup);
    for (int prefetch : {0, 2}) {
      setup.config = {.reshard_after_forward = groups.ranks, .prefetch = prefetch};
      setup.group = prefetch == 2 ? "shared_memory" : "threads";
      EXPECT_TRUE(train(model, setup) == expected) << text_of(groups) << "prefetch " << prefetch;
    }
    setup.group = "threads";
    setup.device = kAcc;
    setup.delay_seed = 5;
    setup.max_delay = std::chrono::microseconds(20);
    for (bool to_cpu : {false, true}) {
      setup.config = {.reshard_after_forward = groups.ranks, .move_params_to_cpu = to_cpu};
      EXPECT_TRUE(train(model, setup) == expected) << text_of(groups) << "on acc, offload " << to_cpu;
    }
  }
}
TEST_P(ReshardBits, I03_GroupsOfAnySizeGiveTheSameBits) { expect_same_bits_as_without_groups(GetParam()); }
TEST_P(ReshardBitsSlow, I03_GroupsOfAnySizeGiveTheSameBits) { expect_same_bits_as_without_groups(GetParam()); }

TEST(Reshard, I03_SixteenBitsAndRowsOfHybridGiveTheSameBits) {
  for (Config config :
       {Config{.param_dtype = DType::bf16}, Config{.move_params_to_cpu = true, .param_dtype = DType::bf16},
        Config{.strategy = Strategy::hybrid, .shard_ranks = 4}}) {
    int world = config.strategy == Strategy::hybrid ? 8 : 4;
    TrainingRun setup{.world = world, .config = config, .device = kAcc, .steps = 3, .batch = 16, .micro = 2};
    Outcome expected = train<Rooted>(setup);
    setup.config.reshard_after_forward = 2;
    EXPECT_TRUE(train<Rooted>(setup) == expected) << name_of(config.strategy) << config.move_params_to_cpu;
  }
}

// Both are recorded with the parameters that the second forward gathered in its group.
TEST(Reshard, I03_TwoForwardsBeforeOneBackwardGiveTheSameBits) {
  auto train_with_groups_of = [](int ranks) {
    Weights end;
    on(4, kCpu, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.reshard_after_forward = ranks});
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
      for (int step = 0; step < 3; ++step) {
        int64_t rank = group.rank();
        Tensor first = loss_of(model, 2 * step, 4 * rank, 4 * rank + 4);
        context().recorder().clear();
        (first + loss_of(model, 2 * step + 1, 4 * rank, 4 * rank + 4)).backward();
        int64_t bytes = bytes_of(*sharded->units()[1]);
        int64_t sent = sent_of(bytes, ranks > 0 ? ranks : 4);
        EXPECT_THAT(gathers_of("b0"), ElementsAre(Gather{"b0", "forward", sent}, Gather{"b0", "backward", sent}));
        optimizer.step();
        optimizer.zero_grad();
      }
      Weights mine = weights_of(*sharded);
      if (group.rank() == 0) end = mine;
    });
    return end;
  };
  EXPECT_EQ(train_with_groups_of(2), train_with_groups_of(0));
}

// --- traffic --------------------------------------------------------------------------------------------------------

// Of Rooted `b0` and `b1` are resharded; the root and `b2`, which runs last, stay until backward.
TEST(Reshard, ForwardGathersFromAllBackwardFromTheGroupAndNothingElseIsSent) {
  for (const Groups& groups : kGroups)
    for (std::string kind : {"threads", "shared_memory"})
      on(
          groups.world, kCpu,
          [&](dist::ProcessGroup& group) {
            SCOPED_TRACE(text_of(groups) + kind);
            auto model = nn::make<Rooted>();
            auto sharded = fully_shard(*model, group, {.reshard_after_forward = groups.ranks});
            optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
            for (int step = 0; step < 3; ++step) {
              context().recorder().clear();
              int64_t before = context().recorder().total_bytes_sent(), expected = 0;
              loss_of(model, step, 0, 4).backward();
              int64_t sent = context().recorder().total_bytes_sent() - before;
              if (step > 0) {  // when the order of units is known
                for (const auto& unit : sharded->units()) {
                  int64_t bytes = bytes_of(*unit), whole = sent_of(bytes, groups.world);
                  bool returns = unit->name() == "b0" || unit->name() == "b1";
                  std::vector<Gather> gathers{{unit->name(), "forward", whole}};
                  if (returns) gathers.push_back({unit->name(), "backward", sent_of(bytes, groups.ranks)});
                  EXPECT_EQ(gathers_of(unit->name()), gathers);
                  expected += 2 * whole + (returns ? sent_of(bytes, groups.ranks) : 0);
                }
                EXPECT_EQ(sent, expected);
              }
              optimizer.step();
              optimizer.zero_grad();
            }
          },
          kind);
}

// Until the step values are what they were, so a unit comes from all ranks once in a step, whatever its micro-batches.
TEST(Reshard, LaterMicroBatchesGatherInTheGroupUntilTheStep) {
  on(4, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group, {.reshard_after_forward = 2});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    int64_t bytes = bytes_of(*sharded->units()[1]), whole = sent_of(bytes, 4), part = sent_of(bytes, 2);
    for (int step = 0; step < 2; ++step) {
      context().recorder().clear();
      {
        NoSync local(*sharded);
        loss_of(model, 0, 0, 4).backward();
      }
      loss_of(model, 1, 0, 4).backward();
      EXPECT_THAT(gathers_of("b0"), ElementsAre(Gather{"b0", "forward", whole}, Gather{"b0", "backward", part},
                                                Gather{"b0", "forward", part}, Gather{"b0", "backward", part}));
      optimizer.step();
      optimizer.zero_grad();
    }
  });
}

// What is frozen is never written. In step 0 `around` comes in one call, later what is trained of it comes from all.
TEST(Reshard, AFrozenParameterIsGatheredFromAllRanksOnce) {
  on(4, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<FrozenAround>();
    auto sharded = fully_shard(*model, group, {.reshard_after_forward = 2});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    int64_t bytes = bytes_of(*sharded->units()[1]);
    int64_t frozen = int64_t(sharded->units()[1]->flat_params()[0]->full_bytes()), trained = bytes - frozen;
    ASSERT_FALSE(sharded->units()[1]->flat_params()[0]->parameters()[0].requires_grad());
    for (int step = 0; step < 3; ++step) {
      context().recorder().clear();
      loss_of(model, step, 0, 4).backward();
      std::vector<Gather> expected{{"around", "forward", sent_of(bytes, 4)}};
      if (step > 0) expected = {{"around", "forward", sent_of(trained, 4)}, {"around", "forward", sent_of(frozen, 2)}};
      expected.push_back({"around", "backward", sent_of(bytes, 2)});
      EXPECT_EQ(gathers_of("around"), expected) << "step " << step;
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_EQ(fsdp::testing::bytes(Category::secondary_shard), frozen / 2);
    }
  });
}

// A region's units are called again inside backward.
TEST(Reshard, WhatIsComputedAgainIsGatheredInTheGroup) {
  on(4, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<Net<Where::around_units>>();
    auto sharded = fully_shard(*model, group, {.reshard_after_forward = 2, .wrap = kWrap});
    Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
    for (int pass = 0; pass < 2; ++pass) {
      context().recorder().clear();
      progress() = {uint64_t(pass), 0};
      sum(model(x)).backward();
      for (const auto& unit : sharded->units())
        if (unit->name().starts_with("first.")) {
          EXPECT_EQ(gathers_of(unit->name()).back(), (Gather{unit->name(), "backward", sent_of(bytes_of(*unit), 2)}))
              << "pass " << pass;
        }
    }
  });
}

TEST(Reshard, GroupsOfHybridLieInItsRows) {
  on(8, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded =
        fully_shard(*model, group, {.strategy = Strategy::hybrid, .shard_ranks = 4, .reshard_after_forward = 2});
    loss_of(model, 0, 0, 4).backward();
    int64_t bytes = bytes_of(*sharded->units()[1]);
    EXPECT_THAT(gathers_of("b0"),
                ElementsAre(Gather{"b0", "forward", sent_of(bytes, 4)}, Gather{"b0", "backward", sent_of(bytes, 2)}));
    dist::ProcessGroup* near = sharded->units()[1]->flat_params()[0]->near();
    ASSERT_TRUE(near);
    EXPECT_EQ(near->global_rank(0), group.rank() / 2 * 2);
    EXPECT_EQ(near->global_rank(1), group.rank() / 2 * 2 + 1);
  });
}

// --- memory ---------------------------------------------------------------------------------------------------------

TEST(Reshard, EachRankKeepsOneNthFromForwardToTheStep) {
  for (const Groups& groups : kGroups)
    for (Config config :
         {Config{}, Config{.param_dtype = DType::bf16, .output_dtype = DType::f32}, Config{.move_params_to_cpu = true}})
      on(groups.world, kAcc, [&](dist::ProcessGroup& group) {
        SCOPED_TRACE(text_of(groups));
        Config with_groups = config;
        with_groups.reshard_after_forward = groups.ranks;
        auto model = nn::make<Rooted>();
        auto sharded = fully_shard(*model, group, with_groups);
        optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
        auto unit = [&](size_t i) { return bytes_of(*sharded->units()[i]); };
        for (int step = 0; step < 3; ++step) {
          Tensor loss = loss_of(model, step, 0, 4);
          int64_t part = (unit(1) + unit(2)) / groups.ranks;
          if (step > 0) {  // b2 is known to run last
            EXPECT_EQ(bytes(Category::secondary_shard), part);
            EXPECT_EQ(bytes(Category::gathered_parameter), unit(0) + unit(3)) << "the root and what ran last";
          }
          loss.backward();
          EXPECT_EQ(bytes(Category::gathered_parameter), 0);
          EXPECT_EQ(bytes(Category::secondary_shard), step > 0 ? part : part + unit(3) / groups.ranks);
          optimizer.step();
          optimizer.zero_grad();
          EXPECT_EQ(bytes(Category::secondary_shard), 0) << "the step has other values";
          NoGrad no_grad;
          loss_of(model, step, 0, 4);
          EXPECT_EQ(bytes(Category::secondary_shard), 0) << "no backward follows";
        }
      });
}

TEST(Reshard, InCommonMemoryNothingIsKept) {
  on(
      4, kCpu,
      [](dist::ProcessGroup& group) {
        auto model = nn::make<Rooted>();
        fully_shard(*model, group, {.reshard_after_forward = 2});
        loss_of(model, 0, 0, 4).backward();
        EXPECT_EQ(context().ledger().peak(Category::secondary_shard), 0);
        EXPECT_EQ(context().ledger().peak(Category::gathered_parameter), 0);
      },
      "shared_memory");
}

TEST(Reshard, OneKeepsUnitsAsZero2DoesAndAllRanksAreZero3) {
  for (int ranks : {1, 4})
    on(4, kCpu, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.reshard_after_forward = ranks});
      Tensor loss = loss_of(model, 0, 0, 4);
      UnitState state = ranks == 1 ? UnitState::unsharded : UnitState::sharded;
      EXPECT_EQ(sharded->units()[1]->state(), state);
      context().recorder().clear();
      loss.backward();
      std::vector<Gather> expected;
      if (ranks == 4) expected.push_back({"b0", "backward", sent_of(bytes_of(*sharded->units()[1]), 4)});
      EXPECT_EQ(gathers_of("b0"), expected);
      EXPECT_EQ(context().ledger().peak(Category::secondary_shard), 0);
    });
  on(1, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    fully_shard(*model, group, {.reshard_after_forward = 1});
    loss_of(model, 0, 0, 4).backward();
  });
}

Plan plan_of_two_passes(const Groups& groups, Config config, Device device, const std::string& kind = "threads") {
  Plan plan;
  config.reshard_after_forward = groups.ranks;
  auto body = [&](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group, config);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
    Plan mine = make_plan(*sharded, [&] {
      for (int pass = 0; pass < 2; ++pass) mse_loss(model(zeros({4, 7})).to(DType::f32), zeros({4, 5}), 20).backward();
      optimizer.step();
      optimizer.zero_grad();
    });
    if (group.rank() == 0) plan = mine;
  };
  if (kind == "alone")
    dist::run_one_of(groups.world, body);
  else
    on(groups.world, device, body, kind);
  return plan;
}

TEST(Reshard, ThePlanPredictsBytesAndPeaks) {
  for (const Groups& groups : kGroups) {
    Plan predicted = plan_of_two_passes(groups, {}, kMeta), measured = plan_of_two_passes(groups, {}, kCpu);
    EXPECT_EQ(predicted, measured) << text_of(groups) << predicted.table() << measured.table();
    EXPECT_GT(predicted.peaks.at(Category::secondary_shard), 0);
    EXPECT_EQ(plan_of_two_passes(groups, {}, kMeta, "alone"), predicted) << text_of(groups);
    EXPECT_EQ(plan_of_two_passes(groups, {}, kMeta, "shared_memory"),
              plan_of_two_passes(groups, {}, kCpu, "shared_memory"))
        << text_of(groups);
    for (Config config : {Config{.move_params_to_cpu = true}, Config{.param_dtype = DType::bf16}})
      EXPECT_EQ(plan_of_two_passes(groups, config, kMeta), plan_of_two_passes(groups, config, kAcc)) << text_of(groups);
  }
}

// --- units and users ------------------------------------------------------------------------------------------------

TEST(Reshard, AUnitMayHaveGroupsOfItsOwn) {
  on(4, kCpu, [](dist::ProcessGroup& group) {
    EnableWrap scope;
    auto model = nn::make<Rooted>();
    wrap(model->b0, {.reshard_after_forward = 2}), wrap(model->b1), wrap(model->b2, {.reshard_after_forward = 1});
    auto sharded = fully_shard(*model, group);
    Tensor loss = loss_of(model, 0, 0, 4);
    EXPECT_EQ(sharded->units()[3]->state(), UnitState::unsharded);
    context().recorder().clear();
    loss.backward();
    int64_t bytes[] = {0, bytes_of(*sharded->units()[1]), bytes_of(*sharded->units()[2])};
    EXPECT_THAT(gathers_of("b0"), ElementsAre(Gather{"b0", "backward", sent_of(bytes[1], 2)}));
    EXPECT_THAT(gathers_of("b1"), ElementsAre(Gather{"b1", "backward", sent_of(bytes[2], 4)}));
  });
}

TEST(Reshard, WhatTheUserGathersComesFromTheGroupAndStateFromShards) {
  on(4, kAcc, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group, {.reshard_after_forward = 2});
    Weights before = weights_of(*sharded);
    Tensor loss = loss_of(model, 0, 0, 4);
    int64_t kept = bytes(Category::secondary_shard);
    context().recorder().clear();
    unshard(*sharded, "b0").wait();
    EXPECT_EQ(values_of(model->b0->weight.detach()), before.at("b0.weight"));
    EXPECT_THAT(gathers_of("b0"), ElementsAre(Gather{"b0", "forward", sent_of(bytes_of(*sharded->units()[1]), 2)}));
    reshard(*sharded, "b0");
    EXPECT_EQ(bytes(Category::secondary_shard), kept);
    EXPECT_EQ(weights_of(*sharded), before);
    {
      SummonFullParams scope(*sharded);
      EXPECT_EQ(values_of(model->b0->weight.detach()), before.at("b0.weight"));
    }
    loss.backward();
  });
}

TEST(Reshard, WhatIsWrittenBackIsGatheredFromAllRanks) {
  on(4, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group, {.reshard_after_forward = 2});
    loss_of(model, 0, 0, 4).backward();
    {
      SummonFullParams scope(*sharded, true);
      NoGrad no_grad;
      fill_(model->b0->weight, 2);
    }
    context().recorder().clear();
    unshard(*sharded, "b0").wait();
    EXPECT_THAT(gathers_of("b0"), ElementsAre(Gather{"b0", "forward", sent_of(bytes_of(*sharded->units()[1]), 4)}));
    EXPECT_EQ(values_of(model->b0->weight.detach()), std::vector<double>(63, 2));
  });
}

// What was kept before the failure is what the shards are still.
TEST(Reshard, AForwardThatFailsHalfwayIsRepeatedInTheGroup) {
  struct Failing : Rooted {
    bool fails = false;
    Tensor forward(const Tensor& x) {
      Tensor h = tanh(b1(tanh(b0(x * scale))));
      if (fails) fail("no more");
      return b2(h) + shift;
    }
  };
  auto train_with = [](int ranks, bool fails) {
    Weights end;
    on(4, kAcc, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Failing>();
      auto sharded = fully_shard(*model, group, {.reshard_after_forward = ranks});
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
      for (int step = 0; step < 3; ++step) {
        model->fails = fails;
        if (fails) {
          EXPECT_THAT(message_of([&] { loss_of(model, step, 0, 4); }), HasSubstr("no more"));
        }
        model->fails = false;
        train_step(model, optimizer, step, group.rank());
        EXPECT_EQ(bytes(Category::secondary_shard), 0);
      }
      Weights mine = weights_of(*sharded);
      if (group.rank() == 0) end = mine;
    });
    return end;
  };
  EXPECT_EQ(train_with(2, true), train_with(0, false));
}

// --- what is refused ------------------------------------------------------------------------------------------------

TEST(Reshard, ValuesThatChangeBetweenForwardAndBackwardAreRefused) {
  on(4, kCpu, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    fully_shard(*model, group, {.reshard_after_forward = 2});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    loss_of(model, 0, 0, 4).backward();
    Tensor loss = loss_of(model, 1, 0, 4);
    optimizer.step();
    EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("was changed in place"));
  });
}

TEST(Reshard, ANumberThatDoesNotDivideIsRefusedWithTheNearestThatDo) {
  on(6, kMeta, [](dist::ProcessGroup& group) {
    auto refusal = [&](const Config& config) {
      return message_of([&] { fully_shard(*nn::make<Rooted>(), group, config); });
    };
    EXPECT_THAT(refusal({.reshard_after_forward = 4}),
                HasSubstr("fully_shard: reshard_after_forward is 4; groups of as many ranks do not divide the 6 that "
                          "the parameters are split over; choose 3 or 6"));
    EXPECT_THAT(refusal({.reshard_after_forward = 1 << 30}), HasSubstr("choose 6"));
    EXPECT_THAT(refusal({.reshard_after_forward = -2}), HasSubstr("reshard_after_forward is -2; it must be 0 or more"));
    EXPECT_THAT(refusal({.strategy = Strategy::hybrid, .shard_ranks = 3, .reshard_after_forward = 2}),
                HasSubstr("do not divide the 3 that the parameters are split over; choose 1 or 3"));
  });
  on(1, kMeta, [](dist::ProcessGroup& group) {
    EXPECT_THAT(message_of([&] { fully_shard(*nn::make<Rooted>(), group, {.reshard_after_forward = 2}); }),
                HasSubstr("do not divide the 1 that the parameters are split over; choose 1"));
  });
}

TEST(Reshard, AStrategyThatKeepsParametersRefusesIt) {
  on(4, kMeta, [](dist::ProcessGroup& group) {
    for (auto [strategy, how_long] : {std::pair(Strategy::ddp, "ddp keeps full parameters always"),
                                      {Strategy::zero1, "zero1 keeps full parameters always"},
                                      {Strategy::zero2, "zero2 keeps full parameters until backward"}})
      EXPECT_THAT(
          message_of([&, strategy = strategy] {
            fully_shard(*nn::make<Rooted>(), group, {.strategy = strategy, .reshard_after_forward = 2});
          }),
          HasSubstr(concat("reshard_after_forward is 2, but ", how_long, "; use zero3 or hybrid, or leave it 0")));
  });
}

TEST(Reshard, AUnitsOwnBadNumberIsRefusedByItsName) {
  on(4, kMeta, [](dist::ProcessGroup& group) {
    EnableWrap scope;
    auto model = nn::make<Rooted>();
    wrap(model->b1, {.reshard_after_forward = 3});
    EXPECT_THAT(message_of([&] { fully_shard(*model, group); }),
                HasSubstr("unit 'b1': reshard_after_forward is 3; groups of as many ranks do not divide the 4"));
    auto other = nn::make<Rooted>();
    wrap(other->b1, {.strategy = Strategy::zero2, .reshard_after_forward = 2});
    EXPECT_THAT(message_of([&] { fully_shard(*other, group); }),
                HasSubstr("unit 'b1': reshard_after_forward is 2, but zero2 keeps full parameters until backward"));
  });
}

TEST(Reshard, RanksThatDisagreeAreRefused) {
  std::string what = message_of([] {
    on(4, kCpu, [](dist::ProcessGroup& group) {
      fully_shard(*nn::make<Rooted>(), group, {.reshard_after_forward = group.rank() == 3 ? 4 : 2});
    });
  });
  EXPECT_THAT(what, HasSubstr("have different models or sharding options"));
}

}  // namespace
}  // namespace shardgrad::fsdp::testing::resharding
