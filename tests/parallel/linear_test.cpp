// The seam for tensor parallelism: a column-parallel and a row-parallel Linear on a mesh with a data axis beside it,
// trained like one plain model.

#include <functional>

#include <gtest/gtest.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/parallel/mesh.h>

#include "tests/parallel/split_linear.h"

namespace shardgrad::parallel {
namespace {

using dist::ProcessGroup;
using testing::ColumnParallelLinear;
using testing::RowParallelLinear;

struct Split : nn::Module {
  nn::Child<ColumnParallelLinear> up;
  nn::Child<RowParallelLinear> down;
  explicit Split(ProcessGroup& model)
      : up(child<ColumnParallelLinear>("up", 6, 8, model)), down(child<RowParallelLinear>("down", 8, 4, model)) {}
  Tensor forward(const Tensor& x) { return down(relu(up(x))); }
};

struct Whole : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 6, 8), down = child<nn::Linear>("down", 8, 4);
  Tensor forward(const Tensor& x) { return down(relu(up(x))); }
};

constexpr int64_t kBatch = 8;
constexpr int kSteps = 5;

Tensor batch(int step) {
  Tensor x = empty({kBatch, 6});
  nn::init::normal().fill(x, 0, x.shape(), concat("batch ", step));
  return x;
}

/// Losses of the plain model on one rank.
std::vector<double> expected_losses() {
  std::vector<double> losses;
  dist::run_ranks(1,
                  [&](ProcessGroup&) {
                    auto model = nn::make<Whole>();
                    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
                    for (int step = 0; step < kSteps; ++step) {
                      Tensor loss = mse_loss(model(batch(step)), zeros({kBatch, 4}), kBatch * 4);
                      loss.backward();
                      losses.push_back(loss.item());
                      optimizer.step();
                      optimizer.zero_grad();
                    }
                  },
                  {.seed = 3});
  return losses;
}

void train_split(int data, int model_ranks, fsdp::Strategy strategy, std::vector<double>& losses) {
  dist::run_ranks(data * model_ranks,
                  [&](ProcessGroup& world) {
                    Mesh mesh(world, {{"data", data}, {"model", model_ranks}});
                    auto model = nn::make<Split>(mesh.group("model"));
                    auto sharded = fsdp::fully_shard(model.module(), mesh.group("data"), {.strategy = strategy});
                    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
                    int64_t rows = kBatch / data, begin = rows * mesh.coordinate("data");
                    for (int step = 0; step < kSteps; ++step) {
                      Tensor x = slice(batch(step), 0, begin, begin + rows);
                      Tensor loss = mse_loss(model(x), zeros({rows, 4}), kBatch * 4);
                      loss.backward();
                      Tensor total = loss.detach();
                      mesh.group("data").all_reduce(total).host_wait();
                      if (world.rank() == 0) losses.push_back(total.item());
                      optimizer.step();
                      optimizer.zero_grad();
                    }
                  },
                  {.seed = 3});
}

TEST(TensorParallel, TrainsLikeOnePlainModelBesideEveryZeroStage) {
  std::vector<double> expected = expected_losses();
  for (auto [data, model] : {std::pair(1, 2), std::pair(1, 4), std::pair(2, 2)})
    for (fsdp::Strategy strategy : {fsdp::Strategy::ddp, fsdp::Strategy::zero2, fsdp::Strategy::zero3}) {
      std::vector<double> losses;
      train_split(data, model, strategy, losses);
      ASSERT_EQ(losses.size(), expected.size());
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], 1e-6 * expected[i]) << data << " x " << model << ", step " << i;
    }
}

TEST(TensorParallel, PartsBeginWithTheValuesOfTheWholeWhateverTheInitialiser) {
  for (nn::Init init : {nn::init::uniform(), nn::init::normal(), nn::init::trunc_normal(), nn::init::xavier_normal(),
                        nn::init::orthogonal(), nn::init::constant(3)})
    for (int dim : {0, 1, 2})
      dist::run_ranks(
          1,
          [&](ProcessGroup&) {
            Shape whole({4, 6, 2}), part = whole.with(dim, whole[dim] / 2);
            Tensor all = empty(whole);
            init.fill(all, 0, whole, "w");
            for (int64_t r : {0, 1}) {
              Tensor mine = empty(part), tail = empty({part.numel() - 5});
              nn::Part where{dim, part[dim] * r, whole[dim]};
              init.fill_part(mine, 0, part, where, "w");
              Tensor expected = slice(all, dim, part[dim] * r, part[dim] * (r + 1));
              EXPECT_EQ(mine.to_vector<float>(), expected.to_vector<float>()) << "dim " << dim << ", part " << r;
              init.fill_part(tail, 5, part, where, "w");
              std::vector<float> rest = expected.to_vector<float>();
              EXPECT_EQ(tail.to_vector<float>(), std::vector<float>(rest.begin() + 5, rest.end())) << "dim " << dim;
            }
          },
          {.seed = 11});
}

TEST(TensorParallel, APartOutsideOfItsWholeIsRefused) {
  dist::run_ranks(1, [](ProcessGroup&) {
    Tensor w = empty({4, 3});
    try {
      nn::init::uniform().fill_part(w, 0, {4, 3}, {1, 4, 6}, "w");
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("3 indices from 4 on along dimension 1"), std::string::npos)
          << error.what();
    }
  });
}

// One rank's part would be taken for the whole: these do not know of the ranks that hold the others.
void expect_refused(const std::string& who, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << who << " took a part for the whole";
  } catch (const Error& error) {
    std::string what = error.what();
    bool named = what.find("'up.weight' is a part, indices [4, 8) along dimension 0 of 8") != std::string::npos ||
                 what.find("'down.weight' is a part, indices [4, 8) along dimension 1 of 8") != std::string::npos;
    EXPECT_TRUE(named) << who << ": " << what;
  }
}

TEST(TensorParallel, AStateThatWouldHaveAPartForTheWholeIsRefused) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    Mesh mesh(world, {{"data", 1}, {"model", 2}});
    if (world.rank() == 0) return;
    auto model = nn::make<Split>(mesh.group("model"));
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = 0.9});
    expect_refused("Module::state_dict", [&] { model->state_dict(); });
    expect_refused("Module::load_state_dict", [&] { model->load_state_dict({}); });
    expect_refused("Optimizer::state_dict", [&] { optimizer.state_dict(); });
    expect_refused("Optimizer::load_state_dict", [&] { optimizer.load_state_dict({}); });
  });
}

TEST(TensorParallel, AStateOfAShardedModelThatWouldHaveAPartForTheWholeIsRefused) {
  dist::run_ranks(4, [](ProcessGroup& world) {
    Mesh mesh(world, {{"data", 2}, {"model", 2}});
    auto model = nn::make<Split>(mesh.group("model"));
    auto sharded = fsdp::fully_shard(model.module(), mesh.group("data"));
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = 0.9});
    if (mesh.coordinate("model") == 0) return;
    expect_refused("state_specs", [&] { fsdp::state_specs(*sharded); });
    expect_refused("full_state_dict", [&] { fsdp::full_state_dict(*sharded); });
    expect_refused("load_full_state_dict", [&] { fsdp::load_full_state_dict(*sharded, {}); });
    expect_refused("sharded_state_dict", [&] { fsdp::sharded_state_dict(*sharded); });
    expect_refused("load_sharded_state_dict", [&] { fsdp::load_sharded_state_dict(*sharded, {}); });
    expect_refused("visit_pieces", [&] { fsdp::visit_pieces(*sharded, {}); });
    expect_refused("fill_pieces", [&] { fsdp::fill_pieces(*sharded, {}); });
    expect_refused("full_optim_state_dict", [&] { fsdp::full_optim_state_dict(*sharded, optimizer); });
    expect_refused("load_full_optim_state_dict", [&] { fsdp::load_full_optim_state_dict(*sharded, optimizer, {}); });
    expect_refused("load_sharded_optim_state_dict",
                   [&] { fsdp::load_sharded_optim_state_dict(*sharded, optimizer, {}); });
    expect_refused("sharded_optim_state_dict", [&] { fsdp::sharded_optim_state_dict(optimizer); });
    expect_refused("visit_optim_pieces", [&] { fsdp::visit_optim_pieces(optimizer, {}); });
    expect_refused("optim_state_specs", [&] { fsdp::optim_state_specs(optimizer); });
  });
}

// Each rank would scale its gradients by another factor.
TEST(TensorParallel, ANormOfTheGradientsOfPartsIsRefused) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    Mesh mesh(world, {{"data", 1}, {"model", 2}});
    auto plain = nn::make<Split>(mesh.group("model")), model = nn::make<Split>(mesh.group("model"));
    auto sharded = fsdp::fully_shard(model.module(), mesh, "data");
    for (const std::function<void()>& call : std::vector<std::function<void()>>{
             [&] { optim::clip_grad_norm(plain->named_parameters(), 1); }, [&] { fsdp::clip_grad_norm(*sharded, 1); }})
      try {
        call();
        ADD_FAILURE() << "a norm of parts";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("' is a part of a larger parameter"), std::string::npos)
            << error.what();
      }
  });
}

// Such as the whole world in the place of the data axis: their shapes are the same.
TEST(TensorParallel, RanksWithDifferentPartsAreNoCopiesOfOneModel) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    Mesh mesh(world, {{"data", 1}, {"model", 2}});
    auto model = nn::make<Split>(mesh.group("model"));
    try {
      fsdp::fully_shard(model.module(), world);
      ADD_FAILURE() << "parts are mixed";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 and rank 0 have different models"), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace shardgrad::parallel
