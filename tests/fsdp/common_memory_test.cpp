// On one node the shards of a unit lie side by side in common memory: gathering copies nothing.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

dist::VirtualOptions on_one_node(Device device = kCpu) {
  dist::VirtualOptions options{.device = device};
  options.group.kind = "shared_memory";
  return options;
}

struct Slow : Rooted {
  bool dawdles = false;
  Tensor forward(const Tensor& x) {
    Tensor y = b2(tanh(b1(tanh(b0(x * scale)))));
    if (dawdles) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return y + shift;
  }
};

TEST(CommonParameters, GatheringBringsNoBytesIntoMemory) {
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
    dist::run_ranks(
        2,
        [&](dist::ProcessGroup& world) {
          auto model = nn::make<Rooted>();
          auto sharded = fully_shard(*model, world, {.strategy = strategy});
          int64_t padded = 0;
          for (const auto& unit : sharded->units()) {
            EXPECT_EQ(unit->full_bytes(), 0u) << unit->name();
            for (const auto& flat : unit->flat_params()) padded += flat->padded();
          }
          Ledger& ledger = context().ledger();
          EXPECT_EQ(2 * ledger.current(Category::parameter_shard), 4 * padded);
          mse_loss(model(rows_of_batch("x", 0, 0, 4, 7, DType::f32)), rows_of_batch("t", 0, 0, 4, 5, DType::f32), 20)
              .backward();
          EXPECT_EQ(ledger.peak(Category::gathered_parameter), 0);
        },
        on_one_node());
}

TEST(CommonParameters, AShardChangesOnlyWhenNoRankReadsIt) {
  dist::run_ranks(
      2,
      [](dist::ProcessGroup& world) {
        auto model = nn::make<Slow>();
        fully_shard(*model, world);
        optim::SGD optimizer(model->named_parameters(), {.lr = 1});
        Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 5, DType::f32);
        mse_loss(model(x), t, 20).backward();
        NoGrad no_grad;
        std::vector<float> expected = model(x).to_vector<float>();
        // Rank 0 has not read `shift`, which rank 1 updates, when rank 1 comes to its step.
        model->dawdles = world.rank() == 0;
        EXPECT_EQ(model(x).to_vector<float>(), expected);
        optimizer.step();
        EXPECT_NE(model(x).to_vector<float>(), expected);
      },
      on_one_node());
}

// Two optimizers: what was gathered before the first one's step is still read after it, without another gather.
TEST(CommonParameters, AShardChangesOnlyWhenNoRankReadsItAfterAStepOfOthers) {
  struct Dawdler : nn::Module {
    Tensor weight = param("weight", {7}, nn::init::ones());
    bool dawdles = false;
    Tensor forward(const Tensor& x) {
      if (dawdles) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return x * weight;
    }
  };
  struct Two : nn::Module {
    nn::Child<Dawdler> a = child<Dawdler>("a"), b = child<Dawdler>("b");
    Tensor forward(const Tensor& x) { return b(a(x)); }
  };
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
    dist::run_ranks(
        2,
        [&](dist::ProcessGroup& world) {
          auto model = nn::make<Two>();
          auto sharded = fully_shard(*model, world, {.strategy = strategy});
          optim::SGD of_a(model->a->named_parameters(), {.lr = 1}), of_b(model->b->named_parameters(), {.lr = 1});
          Tensor x = ones({2, 7});
          sum(model(x)).backward();
          Unsharding gathered = unshard(*sharded, "b");
          of_a.step();
          NoGrad no_grad;
          model->b->dawdles = world.rank() == 1;
          EXPECT_EQ(values_of(model->b(x)), std::vector<double>(14, 1)) << "the old values";
          of_b.step();
        },
        on_one_node());
}

TEST(CommonParameters, AShardedParameterCannotBeReadOutsideItsUnit) {
  dist::run_ranks(
      2,
      [](dist::ProcessGroup& world) {
        auto model = nn::make<Rooted>();
        fully_shard(*model, world);
        EXPECT_TRUE(contains(message_of([&] { model->scale.to_vector<float>(); }), "SummonFullParams"));
        model(rows_of_batch("x", 0, 0, 4, 7, DType::f32));
        NoGrad no_grad;
        model(rows_of_batch("x", 0, 0, 4, 7, DType::f32));
        EXPECT_TRUE(contains(message_of([&] { model->scale.to_vector<float>(); }), "SummonFullParams"));
      },
      on_one_node());
}

TEST(CommonParameters, DeviceMetaPredictsTheSameMemory) {
  std::map<DeviceKind, std::vector<int64_t>> peaks;
  for (Device device : {kMeta, kCpu})
    dist::run_ranks(
        2,
        [&](dist::ProcessGroup& world) {
          auto model = nn::make<Rooted>();
          fully_shard(*model, world);
          mse_loss(model(zeros({4, 7})), zeros({4, 5}), 20).backward();
          if (world.rank() != 0) return;
          for (Category::Kind c : {Category::parameter_shard, Category::gathered_parameter, Category::full_gradient})
            peaks[device.kind].push_back(context().ledger().peak(c));
        },
        on_one_node(device));
  EXPECT_EQ(peaks[DeviceKind::meta], peaks[DeviceKind::cpu]);
}

TEST(CommonParameters, AnAsynchronousDeviceGathersCopies) {
  dist::run_ranks(
      2,
      [](dist::ProcessGroup& world) {
        auto model = nn::make<Rooted>();
        auto sharded = fully_shard(*model, world);
        for (const auto& unit : sharded->units()) EXPECT_GT(unit->full_bytes(), 0u);
      },
      on_one_node(kAcc));
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
