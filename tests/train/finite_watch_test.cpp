#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include <shardgrad/fsdp/clip.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/finite_watch.h>

#include "checkpoint_files.h"

namespace shardgrad {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

// The last element of what each rank has of the unit's gradient.
void plant(Trained& trained, const std::string& name, float value) {
  for (const auto& unit : trained.sharded->units())
    for (const auto& flat : unit->flat_params()) {
      if (unit->name() != name) continue;
      std::vector<fsdp::GradRun> runs = fsdp::grad_runs(*flat);
      if (!runs.empty()) flat->grad().data<float>()[runs.back().end - 1] = value;
    }
}

// What two ranks say of step 7 after `harm`, which may change the gradients and this rank's loss; empty: nothing.
std::string said_after(const std::function<void(Trained&, Tensor& loss)>& harm) {
  std::string said;
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 1);
    Tensor loss = mean(trained.model(test::normal({4, 5}, "x")));
    loss.backward();
    trained.optimizer->step();
    harm(trained, loss);
    train::FiniteWatch watch(*trained.sharded);
    watch.keep(7, watch.look(loss));
    std::vector<int64_t> found = world.share<int64_t>({watch.found()}, {"", "test"});
    if (std::ranges::count(found, 0) == 2) return;
    std::string text = watch.explain();
    if (world.rank() == 0) said = text;
  });
  return said;
}

TEST(FiniteWatch, SaysNothingOfNumbers) {
  EXPECT_EQ(said_after([](Trained&, Tensor&) {}), "");
  EXPECT_EQ(said_after([](Trained& trained, Tensor&) { plant(trained, "last", -3e38f); }), "");
}

TEST(FiniteWatch, NamesTheUnitThatBackwardCameToFirst) {
  for (float value : {kInfinity, -kInfinity, kNaN}) {
    EXPECT_EQ(said_after([&](Trained& trained, Tensor&) { plant(trained, "first", value); }),
              "step 7: the losses are finite, but the first gradient that is not is that of unit 'first'");
    EXPECT_EQ(said_after([&](Trained& trained, Tensor&) {
                for (const char* unit : {"first", "norm"}) plant(trained, unit, value);
              }),
              "step 7: the losses are finite, but the first gradient that is not is that of unit 'norm'");
  }
}

TEST(FiniteWatch, NamesTheRanksWhoseLossesAreNone) {
  for (float value : {kInfinity, kNaN}) {
    EXPECT_EQ(said_after([&](Trained& trained, Tensor& loss) {
                if (trained.world.rank() == 1) loss = full({}, value);
              }),
              "step 7: the loss of rank 1 is not finite; all gradients are");
    EXPECT_EQ(said_after([&](Trained& trained, Tensor& loss) {
                loss = full({}, value);
                plant(trained, "last", value);
              }),
              "step 7: the loss of rank 0, 1 is not finite; the first gradient that is not either is that of unit "
              "'last'");
  }
}

// The device is busy until the host has looked, which would wait for it if anything were to be copied there.
TEST(FiniteWatch, WaitsForNothingWhereGradientsAreInHostMemory) {
  auto body = [](dist::ProcessGroup& world) {
    auto model = nn::make<Net>();
    auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3, .move_params_to_cpu = true});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    Tensor loss = mean(model(test::normal({4, 5}, "x")));
    loss.backward();
    optimizer.step();
    sharded->flats().back()->grad().data<float>()[0] = kNaN;
    std::atomic<bool> looked{false}, waited{false};
    Stream& compute = context().backend(kAcc).compute();
    compute.run("busy", [&] {
      for (int i = 0; i < 5000 && !looked; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      waited = !looked;
    });
    train::FiniteWatch watch(*sharded);
    watch.keep(7, watch.look(loss));
    looked = true;
    EXPECT_TRUE(watch.found());
    EXPECT_FALSE(waited);
    EXPECT_THAT(watch.explain(), ::testing::StartsWith("step 7: the losses are finite, but the first gradient"));
  };
  dist::run_ranks(1, body, {.device = kAcc});
}

}  // namespace
}  // namespace shardgrad
