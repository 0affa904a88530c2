// Gathers that a program asks for itself.

#include <gmock/gmock.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing::unsharding {
namespace {

using ::testing::HasSubstr;

void on_two(Device device, const std::function<void(dist::ProcessGroup&)>& body) {
  dist::run_ranks(2, body, {.device = device, .seed = 1, .threads = 1});
}

int64_t gathers() {
  auto records = context().recorder().records();
  return std::ranges::count_if(records, [](const Record& r) { return r.op == "all_gather" && r.unit == "b"; });
}

TEST(Unshard, ParametersAreGatheredAheadOfTheCallWhichGathersNothingThen) {
  for (Device device : {kCpu, kAcc})
    on_two(device, [](dist::ProcessGroup& world) {
      auto model = nn::make<Chain>();
      auto sharded = fully_shard(*model, world, {.prefetch = 0});
      Unsharding gather = unshard(*sharded, "b");
      EXPECT_EQ(gathers(), 1);
      gather.wait();
      EXPECT_EQ(values_of(model->b->bias).size(), 3U) << "readable";
      {
        NoGrad no_grad;
        model(ones({2, 7}));
      }
      EXPECT_EQ(gathers(), 1) << "by the call none";
      for (const auto& unit : sharded->units()) EXPECT_EQ(unit->state(), UnitState::sharded) << unit->name();
    });
}

TEST(Unshard, ReshardGivesThemBackAndSoDoesACallOfTheRootWithoutThem) {
  on_two(kAcc, [](dist::ProcessGroup& world) {
    auto model = nn::make<Unused>();
    auto sharded = fully_shard(*model, world);
    int64_t before = bytes(Category::gathered_parameter);
    unshard(*sharded, "spare").wait();
    EXPECT_GT(bytes(Category::gathered_parameter), before);
    reshard(*sharded, "spare");
    EXPECT_EQ(bytes(Category::gathered_parameter), before);
    unshard(*sharded, "spare");
    {
      NoGrad no_grad;
      model(ones({2, 7}));
    }
    EXPECT_EQ(bytes(Category::gathered_parameter), before);
  });
}

TEST(Unshard, TrainingWithItGivesTheSameBits) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    auto train = [&](bool asks) {
      std::vector<double> trained;
      on_two(kAcc, [&](dist::ProcessGroup& world) {
        auto model = nn::make<Chain>();
        auto sharded = fully_shard(*model, world, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
        optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
        for (int step = 0; step < 3; ++step) {
          if (asks) unshard(*sharded, step == 1 ? "c" : "b");
          mse_loss(model(rows_of_batch("x", step, 0, 4, 7, DType::f32)), zeros({4, 5}), 40).backward();
          if (asks) unshard(*sharded, "a");
          optimizer.step();
          optimizer.zero_grad();
        }
        for (auto& [name, tensor] : full_state_dict(*sharded, false))
          for (double value : values_of(tensor))
            if (world.rank() == 0) trained.push_back(value);
      });
      return trained;
    };
    EXPECT_EQ(train(true), train(false)) << name_of(strategy);
  }
}

TEST(Unshard, AnUnknownUnitIsRefusedWithThoseThatThereAre) {
  on_two(kCpu, [](dist::ProcessGroup& world) {
    auto sharded = fully_shard(*nn::make<Chain>(), world);
    EXPECT_THAT(message_of([&] { unshard(*sharded, "d"); }), HasSubstr("there is no unit 'd'; there are a, b, c"));
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing::unsharding
