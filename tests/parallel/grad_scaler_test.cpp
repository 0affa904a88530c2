// A gradient scaler of a model on a mesh: an overflow in one rank's part leaves out the step on all.

#include <shardgrad/fsdp/grad_scaler.h>

#include <gtest/gtest.h>

#include <limits>

#include "tests/parallel/messages.h"
#include "tests/parallel/split_mlp.h"

namespace shardgrad::parallel::testing {
namespace {

/// One backward pass, after which rank 0 alone has an infinite gradient.
void backward(MeshRun& run) {
  sum(run.model(batch(0, 0, 4))).backward();
  const Tensor& grad = run.sharded->units()[0]->flat_params()[0]->grad();
  if (run.mesh.world().rank() == 0) fill_(grad.rows(0, 1), std::numeric_limits<double>::infinity());
}

TEST(MeshGradScaler, OfTheModelAsksAllRanksOfTheMesh) {
  for (int data : {1, 2, 4})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      MeshRun run(world, data, fsdp::Config{});
      optim::GradScaler scaler = fsdp::sharded_grad_scaler(*run.sharded, {.init_scale = 8});
      backward(run);
      EXPECT_FALSE(scaler.step(run.optimizer)) << data;
      scaler.update();
      EXPECT_EQ(scaler.factor(), 4);
      EXPECT_EQ(saved(run.states()).at("scale.step").values, std::vector<double>{0});
    });
}

TEST(MeshGradScaler, ThatWouldAskSomeRanksOnlyIsRefusedBeforeTheStep) {
  for (const char* axis : {"data", "model"})
    dist::run_ranks(4, [&](ProcessGroup& world) {
      MeshRun run(world, 2, fsdp::Config{});
      Saved before = saved(run.parameters());
      optim::GradScaler some = fsdp::sharded_grad_scaler(run.mesh.group(axis)), all = fsdp::sharded_grad_scaler(world);
      backward(run);
      std::string what = message_of([&] { some.step(run.optimizer); });
      expect_message(what, "holds something of the model of 'scale', too, and this scaler does not ask it");
      expect_message(what, "fsdp::sharded_grad_scaler(*sharded)");
      EXPECT_EQ(saved(run.parameters()), before);
      EXPECT_FALSE(all.step(run.optimizer));
    });
}

// Its units are the larger model's, of which the ranks of the whole mesh hold something.
TEST(MeshGradScaler, OfAPartThatWasShardedBeforeTheModelAsksAllRanksToo) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    Mesh mesh(world, {{"data", 1}, {"model", 2}});
    auto model = nn::make<SplitMlp>(mesh.group("model"));
    auto part = fsdp::fully_shard(model->up.module(), mesh.group("data"));
    optim::GradScaler early = fsdp::sharded_grad_scaler(*part);
    auto sharded = fsdp::fully_shard(model.module(), mesh, "data");
    optim::GradScaler late = fsdp::sharded_grad_scaler(*part);
    optim::AdamW optimizer(model->up->named_parameters(), {});
    EXPECT_EQ(&part->holders(), &world);
    sum(model(batch(0, 0, 4))).backward();
    expect_message(message_of([&] { early.step(optimizer); }), "this scaler does not ask it");
    EXPECT_TRUE(late.step(optimizer));
  });
}

TEST(MeshGradScaler, OfOneProcessIsRefusedForAPart) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    MeshRun run(world, 1, std::nullopt);
    optim::GradScaler alone, together = fsdp::sharded_grad_scaler(world);
    sum(run.model(batch(0, 0, 4))).backward();
    expect_message(message_of([&] { alone.step(run.optimizer); }),
                   "is spread over the ranks, which must leave out a step together; make the scaler with "
                   "fsdp::sharded_grad_scaler(mesh.world())");
    EXPECT_TRUE(together.step(run.optimizer));
  });
}

}  // namespace
}  // namespace shardgrad::parallel::testing
