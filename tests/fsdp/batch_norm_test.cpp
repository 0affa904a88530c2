// Batch norm takes its statistics from each rank's own samples, of which a rank may have none in a short last batch, or
// from those of all ranks.

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include <shardgrad/fsdp/sync_batchnorm.h>
#include <shardgrad/nn/recompute.h>

#include <tests/autograd/support.h>
#include <tests/fsdp/training.h>

namespace shardgrad::fsdp::testing {
namespace {

struct Normed : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6);
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 6);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 6, 5);
  Tensor forward(const Tensor& x) { return out(relu(norm(in(x)))); }
};

constexpr int kRanks = 4, kSteps = 5;
constexpr int64_t kSamples[kSteps][kRanks] = {{3, 2, 4, 2}, {3, 2, 2, 0}, {2, 0, 3, 2}, {0, 2, 0, 0}, {2, 2, 2, 2}};

using Weights = std::map<std::string, std::vector<double>>;

Tensor normed_loss(nn::Child<Normed>& model, int step, int rank) {
  const int64_t* samples = kSamples[step];
  int64_t begin = std::accumulate(samples, samples + rank, int64_t(0)), end = begin + samples[rank];
  int64_t batch = std::accumulate(samples, samples + kRanks, int64_t(0));
  Tensor x = rows_of_batch("x", step, begin, end, 7, DType::f64);
  return mse_loss(model(x), rows_of_batch("t", step, begin, end, 5, DType::f64), double(batch * 5));
}

// One process that goes through the ranks' samples part by part, as each rank would see them.
Weights train_parts() {
  Context context;
  auto model = nn::make<Normed>();
  model->to(DType::f64);
  auto optimizer = make_optimizer(Optim::sgd, model->named_parameters());
  for (int step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank)
      if (kSamples[step][rank] > 0) normed_loss(model, step, rank).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  Weights weights;
  for (auto& p : model->named_parameters()) weights[p.name] = values_of(p.tensor.detach());
  return weights;
}

TEST(BatchNorm, RanksWithoutSamplesTakePartInEveryStrategy) {
  Weights expected = train_parts();
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    for (Device device : {kCpu, kAcc})
      dist::run_ranks(kRanks,
                      [&](dist::ProcessGroup& group) {
                        auto model = nn::make<Normed>();
                        model->to(DType::f64);
                        auto sharded = fully_shard(*model, group, {.strategy = strategy});
                        auto optimizer = make_optimizer(Optim::sgd, model->named_parameters());
                        for (int step = 0; step < kSteps; ++step) {
                          Tensor mean = step > 0 ? clone(model->norm->running_mean) : Tensor();
                          normed_loss(model, step, group.rank()).backward();
                          if (kSamples[step][group.rank()] == 0) {
                            EXPECT_EQ(values_of(model->norm->running_mean), values_of(mean)) << "step " << step;
                          }
                          optimizer->step();
                          optimizer->zero_grad();
                        }
                        auto state = full_state_dict(*sharded, false);
                        for (auto& [name, weight] : expected)
                          test::expect_close(values_of(state.at(name)), weight, 1e-12, name);
                      },
                      {.device = device});
}

/// What training with statistics of the global batch ends with: parameters and buffers.
Weights train_together(nn::Child<Normed>& model, Sharded* sharded, int rank, int world) {
  auto optimizer = make_optimizer(Optim::sgd, model->named_parameters());
  constexpr int64_t kCuts[] = {0, 1, 1, 5, 12};  // of four ranks: one sample, none, four, seven
  for (int step = 0; step < kSteps; ++step) {
    int64_t begin = world == 1 ? 0 : kCuts[rank], end = world == 1 ? 12 : kCuts[rank + 1];
    Tensor x = rows_of_batch("x", step, begin, end, 7, DType::f64);
    mse_loss(model(x), rows_of_batch("t", step, begin, end, 5, DType::f64), 60).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  Weights weights;
  if (sharded) {
    for (auto& [name, tensor] : full_state_dict(*sharded, false)) weights[name] = values_of(tensor);
    for (auto& buffer : model->named_buffers()) weights[buffer.name] = values_of(buffer.tensor);
  } else {
    for (auto& [name, tensor] : model->state_dict()) weights[name] = values_of(tensor.detach());
  }
  return weights;
}

// Also where a rank has one sample, or none, and where forward is computed twice.
TEST(BatchNorm, OverTheGlobalBatchTrainsTheSameModelOnAnyNumberOfRanks) {
  Weights expected;
  {
    Context context;
    auto model = nn::make<Normed>();
    model->to(DType::f64);
    expected = train_together(model, nullptr, 0, 1);
  }
  for (bool recompute : {false, true})
    for (const Config& config : strategies(kRanks))
      for (Device device : {kCpu, kAcc})
        dist::run_ranks(
            kRanks,
            [&](dist::ProcessGroup& group) {
              SCOPED_TRACE(concat(name_of(config.strategy), " on ", device, recompute ? ", recomputed" : ""));
              auto model = nn::make<Normed>();
              model->to(DType::f64);
              convert_sync_batchnorm(*model, group);
              if (recompute) nn::recompute_by_type(*model, {"BatchNorm1d"});
              auto sharded = fully_shard(*model, group, config);
              Weights found = train_together(model, sharded.get(), group.rank(), kRanks);
              for (auto& [name, values] : expected) test::expect_close(found.at(name), values, 1e-12, name);
            },
            {.device = device});
}

// Ranks with one image, none, and two: those of all together are normalised as one process does it.
TEST(BatchNorm, OfImagesOverAllRanksIsThatOfOneProcess) {
  static constexpr int64_t kCuts[] = {0, 1, 1, 3};
  auto batch = [](const char* name, int rank, int world) {
    Tensor all = rows_of_batch(name, 0, 0, 3, 2 * 3 * 4, DType::f64).view({3, 2, 3, 4});
    return world == 1 ? all : clone(all.rows(kCuts[rank], kCuts[rank + 1]));
  };
  std::mutex mutex;
  std::vector<std::vector<double>> dx(3), y(3);
  std::vector<double> running;
  auto run = [&](nn::Child<nn::BatchNorm2d>& norm, int rank, int world) {
    norm->to(DType::f64);
    Tensor x = batch("x", rank, world);
    x.set_requires_grad();
    Tensor result = norm(x);
    result.backward(batch("dy", rank, world));
    std::lock_guard lock(mutex);
    y[size_t(rank)] = values_of(result.detach()), dx[size_t(rank)] = values_of(x.grad());
    running = values_of(norm->running_var);
  };
  auto whole = [](const std::vector<std::vector<double>>& parts) {
    std::vector<double> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  {
    Context context;
    auto norm = nn::make<nn::BatchNorm2d>(2);
    run(norm, 0, 1);
  }
  std::vector<double> expected_y = y[0], expected_dx = dx[0], expected_running = running;
  dist::run_ranks(3, [&](dist::ProcessGroup& group) {
    auto norm = nn::make<nn::BatchNorm2d>(2);
    convert_sync_batchnorm(*norm, group);
    run(norm, group.rank(), 3);
  });
  test::expect_close(whole(y), expected_y, 1e-12, "y");
  test::expect_close(whole(dx), expected_dx, 1e-12, "dx");
  test::expect_close(running, expected_running, 1e-6, "running variance");
}

TEST(BatchNorm, OneSampleOnAllRanksTogetherIsRefusedAndNoneMovesNothing) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto norm = nn::make<nn::BatchNorm1d>(3);
    convert_sync_batchnorm(*norm, group);
    EXPECT_TRUE(contains(message_of([&] { norm(ones({group.rank(), 3})); }), "one sample together"));
    auto images = nn::make<nn::BatchNorm2d>(3);
    convert_sync_batchnorm(*images, group);
    EXPECT_TRUE(contains(message_of([&] { images(ones({group.rank(), 3, 1, 1})); }), "BatchNorm2d: in training"));
    norm(ones({0, 3}));
    EXPECT_EQ(values_of(norm->running_var), std::vector<double>(3, 1));
    norm->eval();
    EXPECT_EQ(norm(ones({1, 3})).shape(), Shape({1, 3})) << "evaluation sends nothing and takes what it is given";
  });
}

TEST(BatchNorm, ACallAfterTheGroupIsGoneIsRefused) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    auto group = world.split(0, world.rank());
    auto model = nn::make<Normed>();
    convert_sync_batchnorm(*model, *group);
    model(ones({2, 7}));
    group.reset();
    std::string what = message_of([&] { model(ones({2, 7})); });
    EXPECT_TRUE(contains(what, "batch_norm of 'norm': the process group that it sums over is gone")) << what;
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
